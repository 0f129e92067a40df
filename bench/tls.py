"""TLS: throughput and the broker's CPU per GB, beside Apache Kafka with the same stores and the same clients.

Each system has two listeners, in clear and with TLS 1.3; Java's perf tools load one after the other. Then ten modest
clients in clear wait for their acknowledgements while strangers shake hands as fast as they can.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.broker import RECORD, Figures, create_topic, produce
from bench.quotas import TOPIC, ModestClients
from bench.systems import System, run_java
from kbroker.dev.free_ports import free_ports

PASSWORD = "bench-bench"
RECORDS = 1_000_000
STRANGERS = 16
STORM_S = 15.0
MB_PER_S = 3
"""Where ConsumerPerformance prints its rate."""


def make_stores(folder: Path) -> dict[str, str]:
    """Make a key store and a trust store with Java's keytool; returns the broker's settings."""
    key, trust, certificate = folder / "key.p12", folder / "trust.p12", folder / "broker.crt"
    store = ["-storepass", PASSWORD, "-noprompt"]
    names = ["-dname", "CN=localhost", "-ext", "SAN=DNS:localhost,IP:127.0.0.1"]
    for command in (
        ["-genkeypair", "-alias", "broker", "-keyalg", "EC", "-keystore", str(key), *names, *store],
        ["-exportcert", "-alias", "broker", "-file", str(certificate), "-keystore", str(key), *store],
        ["-importcert", "-alias", "broker", "-file", str(certificate), "-keystore", str(trust), *store],
    ):
        subprocess.run(["keytool", *command], check=True, capture_output=True, timeout=60)
    return {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(key),
        "ssl.keystore.password": PASSWORD,
        **trusting(folder),
    }


def trusting(folder: Path) -> dict[str, str]:
    """Return the settings of a client."""
    return {
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(folder / "trust.p12"),
        "ssl.truststore.password": PASSWORD,
    }


def consume(system: System, topic: str, records: int, settings: dict[str, str]) -> Figures:
    """Read the topic with ConsumerPerformance; returns MB/s and the broker's CPU seconds per GB."""
    file = system.folder / "consumer.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items() if key != "bootstrap.servers"))
    arguments = ["--topic", topic, "--messages", str(records), "--consumer.config", str(file), "--hide-header"]
    before = system.cpu_seconds()
    printed = run_java(
        "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", settings["bootstrap.servers"], *arguments
    )
    cpu = system.cpu_seconds() - before
    cells = printed.strip().splitlines()[-1].split(",")
    return {"MB/s": float(cells[MB_PER_S]), "CPU-s/GB": cpu / (records * RECORD / 1e9)}


def measure(kind: type[System], scale: float) -> dict[str, Figures]:
    """Produce and consume over TLS and in clear."""
    records = max(10_000, int(RECORDS * scale))
    system = kind()
    (port,) = free_ports(1)
    system.settings |= make_stores(system.folder)
    system.settings["listeners"] = f"PLAINTEXT://127.0.0.1:{system.port},SSL://127.0.0.1:{port}"
    encrypted = {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SSL", **trusting(system.folder)}
    rows: dict[str, Figures] = {}
    with system:
        for name, settings in (("TLS", encrypted), ("in clear", {"bootstrap.servers": system.bootstrap})):
            topic = name.lower().replace(" ", "-")
            create_topic(system, topic, 1)
            for warm in (True, False):
                produced = produce(system, topic, records // 4 if warm else records, **settings)
            rows[f"produce {name}"] = produced
            consume(system, topic, records // 4, settings)
            rows[f"consume {name}"] = consume(system, topic, records, settings)
        rows |= beside_handshakes(system, port, max(3.0, STORM_S * scale))
    return rows


def beside_handshakes(system: System, port: int, seconds: float) -> dict[str, Figures]:
    """What modest clients wait, alone and while a process of strangers shakes hands."""
    create_topic(system, TOPIC, 1)
    modest = ModestClients(system.bootstrap)
    modest.run(2.0)
    rows = {"ten modest clients alone": modest.run(seconds)}
    before = system.cpu_seconds()
    command = [sys.executable, "-m", "bench.tls", str(port), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as strangers:
        figures = rows["beside handshakes"] = modest.run(seconds)
        assert strangers.stdout is not None
        done = int(strangers.stdout.readline())
    figures["handshakes/s"] = done / seconds
    figures["CPU-ms per handshake"] = 1e3 * (system.cpu_seconds() - before) / max(done, 1)
    return rows


def shake_hands(port: int, seconds: float) -> int:
    """Connect, shake hands and go, again and again; returns how often."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    end, done = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=30) as connection,
            context.wrap_socket(connection),
        ):
            done += 1
    return done


if __name__ == "__main__":
    arguments = int(sys.argv[1]), float(sys.argv[2])
    with ThreadPoolExecutor(STRANGERS) as threads:
        print(sum(threads.map(lambda number: shake_hands(*arguments), range(STRANGERS))))
