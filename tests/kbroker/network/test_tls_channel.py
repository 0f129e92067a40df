"""Bytes of connections under TLS, between a real server and clients of the standard library."""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kbroker.network.connection import Connection
from kbroker.network.dispatch import PENDING
from kbroker.network.limits import ServerLimits
from kbroker.network.tls_channel import SLICE, TlsBuffers, TlsChannel
from tests.fixtures.certificates import Authority, Identity
from tests.kbroker.network.serving import until
from tests.kbroker.network.tls_serving import echo, framed, tls_client, tls_listener, tls_serving

ENOUGH_S = 30.0
VERSIONS = [("TLSv1_2", "TLSv1_2"), ("TLSv1_3", "TLSv1_3")]


class FilePart:
    """A slice of a file, as answers to Fetch hold it."""

    def __init__(self, path: Path, position: int, size: int) -> None:
        self._file = path.open("rb")
        self.position = position
        self.size = size

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self) -> bytes:
        return os.pread(self.fileno(), self.size, self.position)

    def close(self) -> None:
        self._file.close()


@pytest.mark.parametrize("versions", VERSIONS)
async def test_frames_of_all_sizes_come_back_whole(
    versions: tuple[str, str], authority: Authority, broker_identity: Identity
) -> None:
    async with (
        tls_serving(echo, tls_listener(broker_identity, authority)) as server,
        tls_client(server, authority, versions=versions) as client,
    ):
        for size in (0, 1, 15, 16_380, 16_384, 16_385, SLICE, SLICE + 1, 1_000_003):
            data = os.urandom(size)
            assert await client.ask(data) == data


async def test_what_is_left_in_tls_is_served_without_further_bytes_on_the_socket(
    authority: Authority, broker_identity: Identity
) -> None:
    async with (
        tls_serving(echo, tls_listener(broker_identity, authority)) as server,
        tls_client(server, authority) as client,
    ):
        frames = [bytes([number % 256]) * (number * 37 % 3000) for number in range(600)]
        client.writer.write(b"".join(map(framed, frames)))
        for frame in frames:
            assert await client.read() == frame


async def test_requests_behind_one_in_work_are_served_after_it(authority: Authority, broker_identity: Identity) -> None:
    waiting: list[Connection] = []

    def answer(connection: Connection, frame: memoryview) -> Any:
        if bytes(frame) == b"wait":
            waiting.append(connection)
            return PENDING
        return echo(connection, frame)

    async with (
        tls_serving(answer, tls_listener(broker_identity, authority)) as server,
        tls_client(server, authority) as client,
    ):
        client.writer.write(framed(b"wait"))
        await until(lambda: bool(waiting), ENOUGH_S)
        later = [os.urandom(5_000) for _ in range(40)]
        client.writer.write(b"".join(map(framed, later)))
        await asyncio.sleep(0.05)
        waiting[0].answer([framed(b"done")])
        assert await client.read() == b"done"
        for frame in later:
            assert await client.read() == frame


async def test_files_and_bytes_arrive_in_order_however_slowly_they_are_read(
    authority: Authority, broker_identity: Identity, tmp_path: Path
) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "log").write_bytes(content)
    parts: list[FilePart] = []

    def answer(connection: Connection, frame: memoryview) -> list[Any]:
        big, small = FilePart(tmp_path / "log", 5, 2_500_000), FilePart(tmp_path / "log", 100, 500)
        parts.extend((big, small))
        size = 10 + big.size + 7 + small.size + 200_000
        return [size.to_bytes(4), b"x" * 10, big, b"y" * 7, small, b"z" * 200_000]

    expected = b"x" * 10 + content[5:2_500_005] + b"y" * 7 + content[100:600] + b"z" * 200_000
    async with (
        tls_serving(answer, tls_listener(broker_identity, authority)) as server,
        tls_client(server, authority) as client,
    ):
        client.writer.write(framed(b"fetch") * 2)
        await asyncio.sleep(0.05)  # the sockets' buffers fill up
        for _ in range(2):
            assert await client.read() == expected
    for part in parts:
        part.close()


async def test_a_client_that_goes_while_it_waits_is_noticed_with_tls_or_without_a_word(
    authority: Authority, broker_identity: Identity
) -> None:
    answers: list[asyncio.Future[Any]] = []

    def answer(connection: Connection, frame: memoryview) -> Any:
        answers.append(asyncio.get_running_loop().create_future())
        connection.cancel_when_closed(answers[-1])
        return PENDING

    async with tls_serving(answer, tls_listener(broker_identity, authority)) as server:
        for says_so in (True, False):
            async with tls_client(server, authority) as client:
                client.writer.write(framed(b"wait"))
                await until(lambda: bool(server.connections and answers) and not answers[-1].done(), ENOUGH_S)
                if says_so:
                    client.writer.close()
                else:
                    client.writer.transport.abort()
                await until(lambda: answers[-1].cancelled() and not server.connections, ENOUGH_S)


async def test_what_is_looked_at_for_the_clients_end_is_not_lost(
    authority: Authority, broker_identity: Identity
) -> None:
    """A client that waits sends its next requests: the broker looks whether it has gone, and reads them later."""
    waiting: list[Connection] = []

    def answer(connection: Connection, frame: memoryview) -> Any:
        if bytes(frame) != b"wait":
            return echo(connection, frame)
        connection.cancel_when_closed(asyncio.get_running_loop().create_future())
        waiting.append(connection)
        return PENDING

    async with (
        tls_serving(answer, tls_listener(broker_identity, authority)) as server,
        tls_client(server, authority) as client,
    ):
        client.writer.write(framed(b"wait"))
        await until(lambda: bool(waiting), ENOUGH_S)
        client.writer.write(framed(b"first") + framed(b"second"))
        await until(lambda: waiting[0].is_paused, ENOUGH_S)
        waiting[0].answer([framed(b"done")])
        assert [await client.read() for _ in range(3)] == [b"done", b"first", b"second"]


async def test_an_end_that_comes_with_the_last_bytes_is_noticed_though_the_socket_stays_open(
    authority: Authority, broker_identity: Identity
) -> None:
    """A client that says in TLS that this is its end, in one piece with its last request, and keeps the socket."""
    waiting: list[Connection] = []

    def answer(connection: Connection, frame: memoryview) -> Any:
        if bytes(frame) == b"wait":
            waiting.append(connection)
            return PENDING
        return echo(connection, frame)

    listener = tls_listener(broker_identity, authority)
    trusting = ssl.create_default_context(cafile=str(authority.file))
    async with tls_serving(answer, listener) as server:
        for last in (b"echo", b"wait"):
            with socket.create_connection(("127.0.0.1", server.ports["SSL"])) as sock:
                received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
                client = trusting.wrap_bio(received, sent, server_hostname="localhost")
                await shake_hands(sock, client, received, sent)
                client.write(framed(last))
                with contextlib.suppress(ssl.SSLWantReadError):
                    client.unwrap()
                sock.sendall(sent.read())
                if last == b"wait":
                    await until(lambda: bool(waiting), ENOUGH_S)
                    waiting[0].answer([framed(b"done")])
                await until(lambda: not server.connections, ENOUGH_S)


async def test_the_start_of_a_frame_is_kept_while_the_next_record_comes_in_pieces(
    authority: Authority, broker_identity: Identity
) -> None:
    """Java's clients write the size of a frame into a record of its own; that of a large one is not enough to go by."""
    trusting = ssl.create_default_context(cafile=str(authority.file))
    limits = ServerLimits(small_request_max_bytes=100)
    async with tls_serving(echo, tls_listener(broker_identity, authority), limits) as server:
        with socket.create_connection(("127.0.0.1", server.ports["SSL"])) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
            client = trusting.wrap_bio(received, sent, server_hostname="localhost")
            await shake_hands(sock, client, received, sent)
            await until(lambda: bool(server.connections), ENOUGH_S)
            (connection,) = server.connections
            data = framed(bytes(1000))  # key 0: a Produce may be as large
            client.write(data[:4])
            sock.sendall(sent.read())
            await until(lambda: connection._partial is not None, ENOUGH_S)
            client.write(data[4:])
            record = sent.read()
            for piece in (record[:10], record[10:]):
                sock.sendall(piece)
                await asyncio.sleep(0.02)
            answer = b""
            while len(answer) < len(data):
                async with asyncio.timeout(ENOUGH_S):
                    received.write(await asyncio.get_running_loop().sock_recv(sock, 1 << 16))
                with contextlib.suppress(ssl.SSLWantReadError):
                    while True:
                        answer += client.read(1 << 16)
            assert answer == data


async def shake_hands(sock: socket.socket, client: ssl.SSLObject, received: ssl.MemoryBIO, sent: ssl.MemoryBIO) -> None:
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    while True:
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            await loop.sock_sendall(sock, sent.read())
            async with asyncio.timeout(ENOUGH_S):
                received.write(await loop.sock_recv(sock, 1 << 16))
        else:
            await loop.sock_sendall(sock, sent.read())
            return


class Endless:
    """A socket that always has something, and TLS that makes nothing of it: keys that are changed again and again."""

    def __init__(self) -> None:
        self.received = 0
        self.asked = 0

    def fileno(self) -> int:
        return 0

    def recv_into(self, buffer: Any, most: int) -> int:
        self.received += most
        assert self.received < 100 * SLICE, "it never ends"
        return most

    def read(self, size: int, buffer: Any) -> int:
        self.asked += 1
        raise ssl.SSLWantReadError

    def pending(self) -> int:
        return 0


def test_tls_that_yields_nothing_gets_a_bounded_piece_of_a_turn() -> None:
    endless, loop = Endless(), asyncio.new_event_loop()
    parts: list[Any] = [endless, endless, ssl.MemoryBIO(), ssl.MemoryBIO(), TlsBuffers(), loop]
    channel = TlsChannel(*parts)
    with pytest.raises(BlockingIOError):
        channel.recv_into(bytearray(SLICE))
    assert endless.received <= 3 * SLICE
    endless.received = 0
    with pytest.raises(BlockingIOError):
        channel.recv_into(bytearray(10))
    assert endless.received <= 3 * SLICE
    endless.received = 0
    assert not channel._is_at_end()
    assert endless.received <= 3 * SLICE
    loop.close()


async def test_garbage_in_the_middle_ends_the_connection(authority: Authority, broker_identity: Identity) -> None:
    async with tls_serving(echo, tls_listener(broker_identity, authority)) as server:
        async with tls_client(server, authority) as client:
            assert await client.ask(b"hello") == b"hello"
            sock = client.writer.get_extra_info("socket")
            os.write(sock.fileno(), b"this is not TLS at all, though it comes where TLS was" * 10)
            await until(lambda: not server.connections, ENOUGH_S)


def shaken_hands(
    authority: Authority, broker_identity: Identity
) -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO, ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    """Return a server and a client in memory, each with what it receives and what it has to send."""
    incoming, outgoing, received, sent = (ssl.MemoryBIO() for _ in range(4))
    server = tls_listener(broker_identity, authority).context.wrap_bio(incoming, outgoing, server_side=True)
    trusting = ssl.create_default_context(cafile=str(authority.file))
    client = trusting.wrap_bio(received, sent, server_hostname="localhost")
    for _ in range(3):
        for side, out, into in ((client, sent, incoming), (server, outgoing, received)):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
            into.write(out.read())
    return server, incoming, outgoing, client, received, sent


class Counted:
    """Passes on, and counts how often it is asked for bytes."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def recv_into(self, *arguments: Any) -> int:
        self.asked += 1
        return int(self._real.recv_into(*arguments))

    def read(self, *arguments: Any) -> int:
        self.asked += 1
        return int(self._real.read(*arguments))


class Pair(NamedTuple):
    """A channel, its socket and its OpenSSL, and a peer that writes so many bytes in records."""

    channel: TlsChannel
    looks: tuple[Counted, Counted]
    write: Callable[[int], None]
    theirs: socket.socket


@pytest.fixture
def pair(authority: Authority, broker_identity: Identity) -> Iterator[Pair]:
    loop = asyncio.new_event_loop()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
    theirs.settimeout(ENOUGH_S)
    server, incoming, outgoing, client, _, sent = shaken_hands(authority, broker_identity)
    looks = Counted(ours), Counted(server)
    parts: list[Any] = [*looks, incoming, outgoing, TlsBuffers(), loop]
    channel = TlsChannel(*parts)

    def write(size: int) -> None:
        for position in range(0, size, 1 << 14):
            client.write(bytes(min(size - position, 1 << 14)))
        theirs.sendall(sent.read())
        for look in looks:
            look.asked = 0

    yield Pair(channel, looks, write, theirs)
    channel.close()
    theirs.close()
    loop.close()


def test_what_has_come_is_read_without_asking_in_vain(pair: Pair) -> None:
    buffer = bytearray(SLICE)
    for size, records in ((100, 1), (1 << 14, 1), (3 << 14, 3)):
        pair.write(size)
        assert pair.channel.recv_into(buffer) == size
        assert [look.asked for look in pair.looks] == [1, records]
    pair.theirs.close()
    assert pair.channel.recv_into(buffer) == 0


def test_a_few_bytes_of_a_large_record_are_asked_for_once(pair: Pair) -> None:
    buffer = bytearray(SLICE)
    for size in (1, 10, 1_000):
        pair.write(1 << 14)
        assert pair.channel.recv_into(memoryview(buffer)[:size]) == size
        assert [look.asked for look in pair.looks] == [1, 1]
        assert pair.channel.recv_into(buffer) == (1 << 14) - size
    pair.write(1 << 14)
    assert not pair.channel.has_left()
    assert pair.looks[0].asked == 1
    assert pair.channel.recv_into(buffer) == 1 << 14


def test_a_record_that_came_with_the_one_before_is_told_of_though_the_socket_is_empty(pair: Pair) -> None:
    channel, loop = pair.channel, pair.channel._loop
    told = asyncio.Event()
    pair.write(10)
    pair.write(20)
    assert channel.recv_into(bytearray(10)) == 10
    channel.start_reading(told.set)
    loop.run_until_complete(asyncio.wait_for(told.wait(), ENOUGH_S))
    channel.stop_reading()
    assert channel.recv_into(bytearray(100)) == 20


def test_what_is_sealed_but_not_out_counts_as_not_taken(authority: Authority, broker_identity: Identity) -> None:
    loop = asyncio.new_event_loop()
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    for each in (ours, theirs):
        each.setblocking(False)
    server, incoming, outgoing, client, received, _ = shaken_hands(authority, broker_identity)
    channel = TlsChannel(ours, server, incoming, outgoing, TlsBuffers(), loop)
    data = os.urandom(300_000)
    taken, got, position = 0, b"", 0
    while len(got) < len(data):
        try:
            if taken < len(data):
                taken += channel.send([memoryview(data)[taken:]])
        except BlockingIOError:
            position += 1
        try:
            received.write(theirs.recv(1 << 16))
            while True:
                got += client.read(1 << 16)
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        assert taken <= len(got) + (1 << 18)
    assert got == data
    assert taken == len(data)
    assert position > 0
    channel.close()
    theirs.close()
    loop.close()
