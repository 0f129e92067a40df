"""Handshakes: who gets in and under which name, and that those who do not hold up nobody."""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbroker.network import handshakes
from kbroker.network.connection import Connection
from kbroker.network.limits import ServerLimits
from kbroker.network.server import Server
from kbroker.security.limited_lines import LINES_EACH
from tests.fixtures.certificates import HOUR, Authority, Identity
from tests.kbroker.network.serving import until
from tests.kbroker.network.tls_serving import tls_client, tls_listener, tls_serving

ENOUGH_S = 30.0
HELLO = bytes.fromhex("16030100ff010000fb0303")
"""How a first message begins whose rest is to come."""


def tell_principal(connection: Connection, frame: memoryview) -> list[bytes]:
    """Answer with who asks, and how."""
    text = f"{connection.principal} {connection.security_protocol}".encode()
    return [len(text).to_bytes(4), text]


async def dial(server: Server, data: bytes = b"") -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", server.ports["SSL"]))
    sock.setblocking(False)
    if data:
        async with asyncio.timeout(ENOUGH_S):
            await asyncio.get_running_loop().sock_sendall(sock, data)
    return sock


async def dial_on(sock: socket.socket, data: bytes) -> None:
    """Send more; the other side may have had enough."""
    with contextlib.suppress(OSError):
        async with asyncio.timeout(ENOUGH_S):
            await asyncio.get_running_loop().sock_sendall(sock, data)


def lines(caplog: pytest.LogCaptureFixture, text: str) -> Callable[[], list[str]]:
    return lambda: [message for message in caplog.messages if text in message]


async def test_a_client_is_named_by_its_certificate_or_anonymous(
    authority: Authority, broker_identity: Identity, client_identity: Identity
) -> None:
    rules = "RULE:CN=(.*)/team-$1/U"
    listener = tls_listener(broker_identity, authority, client_auth=ssl.CERT_OPTIONAL, rules=rules)
    async with tls_serving(tell_principal, listener) as server:
        async with tls_client(server, authority, client_identity) as client:
            assert await client.ask(b"who?") == b"User:TEAM-CLIENT SSL"
        async with tls_client(server, authority) as client:
            assert await client.ask(b"who?") == b"User:ANONYMOUS SSL"


@pytest.mark.parametrize("whose", ["an expired one", "another authority's", "none"])
async def test_a_certificate_that_does_not_hold_keeps_its_client_out_with_one_line(
    whose: str, authority: Authority, broker_identity: Identity, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shown, said = None, "peer did not return a certificate"
    if whose == "an expired one":
        shown = authority.issue("late", expires_in=-HOUR)
        said = "the client's certificate is refused: certificate has expired"
    elif whose == "another authority's":
        shown = Authority(tmp_path, "others").issue("strange")
        said = "the client's certificate is refused: unable to get local issuer certificate"
    listener = tls_listener(broker_identity, authority, client_auth=ssl.CERT_REQUIRED)
    async with tls_serving(tell_principal, listener) as server:
        with caplog.at_level(logging.INFO), pytest.raises((OSError, asyncio.IncompleteReadError)):
            async with tls_client(server, authority, shown) as client:
                await client.ask(b"who?")
        await until(lambda: len(lines(caplog, "TLS handshake failed")()) == 1, ENOUGH_S)
        assert said in caplog.text
        assert not server.connections


async def test_a_name_that_no_rule_fits_is_not_let_in(
    authority: Authority,
    broker_identity: Identity,
    client_identity: Identity,
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = tls_listener(broker_identity, authority, client_auth=ssl.CERT_REQUIRED, rules="RULE:CN=boss/boss/")
    async with tls_serving(tell_principal, listener) as server:
        with caplog.at_level(logging.INFO), pytest.raises((OSError, asyncio.IncompleteReadError)):
            async with tls_client(server, authority, client_identity) as client:
                await client.ask(b"who?")
        await until(lambda: bool(lines(caplog, "no rule of ssl.principal.mapping.rules fits CN=client")()), ENOUGH_S)


async def test_failures_of_one_address_are_some_lines_and_then_a_count(
    authority: Authority, broker_identity: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    async with tls_serving(tell_principal, tls_listener(broker_identity, authority)) as server:
        with caplog.at_level(logging.INFO):
            for _ in range(LINES_EACH + 20):
                sock = await dial(server, b"\0\0\0\x10 a frame in clear")
                async with asyncio.timeout(ENOUGH_S):
                    with contextlib.suppress(ConnectionError):
                        await asyncio.get_running_loop().sock_recv(sock, 1)
                sock.close()
            server.handshakes_on("SSL").lines.tell()
        counts = [int(line.split()[0]) for line in lines(caplog, "more failed TLS handshakes of 127.0.0.1")()]
        single = lines(caplog, "it does not speak TLS")()
        assert sum(counts) + len(single) == LINES_EACH + 20
        assert counts
        async with tls_client(server, authority) as client:
            assert client is not None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "it speaks HTTP"),
        (b"\0\0\0\x10 a frame in clear", "it does not speak TLS"),
        (b"\x16\x03\x01\x00\x20" + b"garbage" * 10, "TLS handshake failed"),
        (b"\x16\x03\x01\xff\xff" + os.urandom(100), "TLS handshake failed"),
    ],
)
async def test_what_is_no_handshake_ends_with_one_line(
    data: bytes, reason: str, authority: Authority, broker_identity: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    async with tls_serving(tell_principal, tls_listener(broker_identity, authority)) as server:
        with caplog.at_level(logging.INFO):
            sock = await dial(server, data)
            await until(lambda: bool(lines(caplog, reason)()), ENOUGH_S)
        assert len(caplog.messages) == 1
        sock.close()


async def test_a_handshake_without_end_is_ended_by_its_size(
    authority: Authority, broker_identity: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    """A message that OpenSSL would take, but larger than any honest one, and then one of 10 MB."""
    honest = b"\x16\x03\x01\x3f\x00" + b"\x01\x01\xff\xf0".ljust(0x3F00, b"\3")
    record = b"\x16\x03\x01\x3f\x00" + b"\x01\x98\x96\x80".ljust(0x3F00, b"\3")
    async with tls_serving(tell_principal, tls_listener(broker_identity, authority)) as server:
        with caplog.at_level(logging.INFO):
            sock = await dial(server, honest * 8)
            await dial_on(sock, honest)
            await until(lambda: bool(lines(caplog, "more than 131072 bytes")()), ENOUGH_S)
            sock.close()
            sock = await dial(server)
            with pytest.raises(OSError, match=r"reset|pipe"):
                await asyncio.get_running_loop().sock_sendall(sock, record * (10_000_000 // len(record)))
            await until(lambda: len(lines(caplog, "TLS handshake failed")()) == 2, ENOUGH_S)
        sock.close()


async def test_a_handshake_that_stops_halfway_is_ended_in_time(
    authority: Authority,
    broker_identity: Identity,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshakes, "LONGEST_S", 0.05)
    async with tls_serving(tell_principal, tls_listener(broker_identity, authority)) as server:
        with caplog.at_level(logging.INFO):
            sock = await dial(server, HELLO)
            await until(lambda: bool(lines(caplog, "not over after 0.05 s")()), ENOUGH_S)
        sock.close()


async def test_who_comes_and_goes_without_a_word_is_no_line(
    authority: Authority, broker_identity: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    limits = ServerLimits(max_connections_per_ip=1)
    async with tls_serving(tell_principal, tls_listener(broker_identity, authority), limits) as server:
        with caplog.at_level(logging.INFO):
            sock = await dial(server)
            await until(lambda: server.handshakes_on("SSL").count == 1, ENOUGH_S)
            sock.close()
            await until(lambda: server.handshakes_on("SSL").count == 0, ENOUGH_S)
            async with tls_client(server, authority) as client:  # its place is free again
                assert await client.ask(b"who?") == b"User:ANONYMOUS SSL"
        assert not caplog.messages


async def test_others_are_served_while_many_shake_hands(authority: Authority, broker_identity: Identity) -> None:
    async with tls_serving(tell_principal, tls_listener(broker_identity, authority)) as server:
        halves = [await dial(server, HELLO) for _ in range(50)]
        reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["PLAIN"])
        shaking = [asyncio.create_task(come_in(server, authority)) for _ in range(20)]
        served = 0
        while not all(task.done() for task in shaking):
            writer.write((1).to_bytes(4) + b"x")
            async with asyncio.timeout(ENOUGH_S):
                await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
            served += 1
        await asyncio.gather(*shaking)
        assert served > 1
        writer.close()
        for sock in halves:
            sock.close()


async def come_in(server: Server, authority: Authority) -> None:
    async with tls_client(server, authority) as client:
        assert await client.ask(b"who?")


async def test_what_does_not_fit_into_the_sockets_buffer_is_sent_when_it_does(
    authority: Authority, broker_identity: Identity, client_identity: Identity, tmp_path: Path
) -> None:
    """The names of many authorities, from whom clients may have their certificates."""
    listener = tls_listener(broker_identity, authority, client_auth=ssl.CERT_REQUIRED)
    for number in range(40):
        listener.context.load_verify_locations(Authority(tmp_path / str(number), f"{number} {'x' * 40}").file)
    taken: list[int] = []
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the least there is: some kilobytes
    sock = Slow(ours, taken)
    for each in (ours, theirs):
        each.setblocking(False)
    done: asyncio.Future[str] = loop.create_future()
    all_of_them = handshakes.Handshakes(loop)
    all_of_them.begin(sock, listener, "somebody", lambda channel, name: done.set_result(name), lambda _: None)  # type: ignore[arg-type]
    context = ssl.create_default_context(cafile=str(authority.file))
    context.load_cert_chain(client_identity.file)
    async with asyncio.timeout(ENOUGH_S):
        _, writer = await asyncio.open_connection(sock=theirs, ssl=context, server_hostname="localhost")
        assert await done == "User:CN=client"
    assert len(taken) > 3
    writer.transport.abort()
    all_of_them.close()
    ours.close()


class Slow:
    """A socket that takes a thousand bytes at a time, and then wants a rest."""

    def __init__(self, sock: socket.socket, taken: list[int]) -> None:
        self._socket = sock
        self._taken = taken
        self._is_tired = False

    def send(self, data: bytes) -> int:
        self._is_tired = not self._is_tired
        if not self._is_tired:
            raise BlockingIOError
        self._taken.append(self._socket.send(data[:1000]))
        return self._taken[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


async def test_strangers_who_shake_hands_keep_no_broker_waiting(
    authority: Authority, broker_identity: Identity
) -> None:
    limits = ServerLimits(broker_listeners=frozenset({"BROKERS"}))
    listener = tls_listener(broker_identity, authority)
    over = threading.Event()
    async with tls_serving(tell_principal, listener, limits, ("SSL", "BROKERS")) as server:
        # As long as those of many that have come before.
        server.handshakes_on("SSL")._thread.submit(over.wait, ENOUGH_S)
        try:
            stranger = await dial(server, HELLO + bytes(225))
            async with tls_client(server, authority, listener="BROKERS") as broker:
                assert await broker.ask(b"who?") == b"User:ANONYMOUS SSL"
            assert server.handshakes_on("SSL").count == 1
        finally:
            over.set()
        async with tls_client(server, authority) as client:
            assert await client.ask(b"who?") == b"User:ANONYMOUS SSL"
        stranger.close()


async def test_a_server_that_stops_ends_its_handshakes(authority: Authority, broker_identity: Identity) -> None:
    async with tls_serving(tell_principal, tls_listener(broker_identity, authority)) as server:
        sock = await dial(server)
        await until(lambda: server.handshakes_on("SSL").count == 1, ENOUGH_S)
    with contextlib.closing(sock):
        async with asyncio.timeout(ENOUGH_S):
            assert await asyncio.get_running_loop().sock_recv(sock, 10) == b""
