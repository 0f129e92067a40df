"""Wrong passwords: what ten modest clients wait while strangers try to log in as fast as one core can.

The strangers hold MOST connections each, send all at once, and do not wait for the answer that comes late: whoever
limits what they get done limits what they take from others. Both listeners are without TLS, so that what a failed
login costs is not hidden behind a handshake.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from struct import pack

from bench.broker import Figures, create_topic
from bench.quotas import TOPIC, ModestClients
from bench.systems import System
from kbroker.dev.free_ports import free_ports
from kbroker.security.jaas import PLAIN_MODULE, SCRAM_MODULE

RUN_S = 20.0
MOST = 1000
USER = "alice"
MECHANISMS = ("PLAIN", "SCRAM-SHA-512")


def measure(kind: type[System], scale: float) -> dict[str, Figures]:
    """Measure one system."""
    seconds = max(3.0, RUN_S * scale)
    system = kind()
    (port,) = free_ports(1)
    prefix = "listener.name.clients"
    system.settings |= {
        "listeners": f"PLAINTEXT://127.0.0.1:{system.port},CLIENTS://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        f"{prefix}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{prefix}.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_{USER}="right";',
        f"{prefix}.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    }
    rows: dict[str, Figures] = {}
    with system:
        create_topic(system, TOPIC, 1)
        add_user(system)
        modest = ModestClients(system.bootstrap)
        modest.run(2.0)
        rows["ten modest clients alone"] = modest.run(seconds)
        for mechanism in MECHANISMS:
            before = system.cpu_seconds()
            command = [sys.executable, "-m", "bench.logins", str(port), mechanism, str(seconds)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as strangers:
                figures = rows[f"beside wrong passwords ({mechanism})"] = modest.run(seconds)
                assert strangers.stdout is not None
                done = int(strangers.stdout.readline())
            figures["wrong passwords/s"] = done / seconds
            figures["CPU-ms per wrong password"] = 1e3 * (system.cpu_seconds() - before) / max(done, 1)
            figures["memory, MB"] = system.resident_mb()
    return rows


def add_user(system: System) -> None:
    """Make the user whose password is guessed."""
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 0})
    changes = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, info, b"right")])
    for future in changes.values():
        future.result(30)


# -- the strangers' process -----------------------------------------------------------------------------------------


class Strangers:
    """Sockets on one selector, each with its place in a login."""

    def __init__(self, port: int, mechanism: str) -> None:
        self.done = 0
        """Wrong passwords that were sent and answered, or whose connection was closed for them."""
        self._address = ("127.0.0.1", port)
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._is_plain = mechanism == "PLAIN"
        name = mechanism.encode()
        self._begin = request(17, 1, pack(">h", len(name)) + name) + authenticate(
            f"\0{USER}\0wrong".encode() if self._is_plain else f"n,,n={USER},r=nonce".encode()
        )
        self._sent: set[int] = set()

    def run(self, seconds: float) -> None:
        """Go on for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            while len(self._sockets) < MOST:
                if not self._connect():
                    break
            for number, events in self._poll.poll(0.02):
                self._on_event(number, events)

    def _connect(self) -> bool:
        sock = socket.socket()
        try:
            sock.settimeout(0.05)
            sock.connect(self._address)
            sock.setblocking(False)
            sock.send(self._begin)
        except OSError:
            sock.close()
            return False
        self._sockets[sock.fileno()] = sock
        self._poll.register(sock.fileno(), select.EPOLLIN)
        return True

    def _on_event(self, number: int, events: int) -> None:
        sock = self._sockets[number]
        try:
            data = sock.recv(4096)
        except OSError:
            data = b""
        at = data.find(b"r=nonce")
        if at >= 0:  # what the server says first: go on with a proof that is none
            nonce = data[at + 2 : data.index(b",", at)]
            try:
                sock.send(authenticate(b"c=biws,r=" + nonce + b",p=" + b"A" * 86 + b"=="))
            except OSError:
                data = b""
        if not data:
            self.done += 1
            del self._sockets[number]
            sock.close()


def request(key: int, version: int, body: bytes) -> bytes:
    """Return a frame with a header."""
    header = pack(">hhih", key, version, 1, 1) + b"w"
    return pack(">i", len(header) + len(body)) + header + body


def authenticate(token: bytes) -> bytes:
    """Return a SaslAuthenticate request."""
    return request(36, 1, pack(">i", len(token)) + token)


if __name__ == "__main__":
    strangers = Strangers(int(sys.argv[1]), sys.argv[2])
    strangers.run(float(sys.argv[3]))
    print(strangers.done)
