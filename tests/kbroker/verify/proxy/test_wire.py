"""Frames from a socket, whatever the pieces in which they come."""

import asyncio
import errno
import random
import socket
from collections.abc import Iterator

import pytest

from kbroker.protocol.frame import FrameError
from kbroker.protocol.records.buffers import BufferPool
from kbroker.verify.proxy.wire import STAGING_BYTES, Incoming, dial, prepare, reset

MAX_FRAME = 4 << 20


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        with ours, theirs:
            prepare(ours)
            prepare(theirs)
            yield ours, theirs


def incoming(sock: socket.socket) -> Incoming:
    return Incoming(sock, MAX_FRAME, BufferPool())


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


async def send(sock: socket.socket, data: bytes, pieces: list[int]) -> None:
    loop = asyncio.get_running_loop()
    for size in pieces:
        await loop.sock_sendall(sock, data[:size])
        data = data[size:]
        await asyncio.sleep(0)
    await loop.sock_sendall(sock, data)
    sock.shutdown(socket.SHUT_WR)


async def read_one(reading: Incoming, how: str) -> None:
    await reading.next_frame()
    if how == "peek":
        await reading.peek(20)
    elif how == "whole":
        await reading.whole()
    while await reading.piece():
        pass


async def test_frames_come_out_as_they_went_in(sockets: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = sockets
    rng = random.Random(5)
    sizes = [4, 5, 100, STAGING_BYTES - 8, STAGING_BYTES - 4, STAGING_BYTES, STAGING_BYTES + 1, 1_000_000, 4, 70_000]
    bodies = [rng.randbytes(size) for size in sizes]
    data = b"".join(map(framed, bodies))
    pieces = [rng.randrange(1, 100_000) for _ in range(20)]
    sending = asyncio.create_task(send(theirs, data, pieces))
    reading = incoming(ours)
    for number, body in enumerate(bodies):
        assert await reading.next_frame() == len(body)
        head = await reading.peek(14)
        assert bytes(head) == body[:14]
        if number % 2:
            assert bytes(await reading.whole()) == body
        else:
            got = b""
            while piece := await reading.piece():
                got += piece
            assert got == framed(body)
    assert await reading.next_frame() is None
    await sending


@pytest.mark.parametrize("size", [-1, 3, MAX_FRAME + 1])
async def test_a_size_that_no_frame_may_have_is_refused(
    sockets: tuple[socket.socket, socket.socket], size: int
) -> None:
    ours, theirs = sockets
    theirs.sendall(size.to_bytes(4, "big", signed=True) + bytes(20))
    with pytest.raises(FrameError):
        await incoming(ours).next_frame()


@pytest.mark.parametrize("sent", [2, 4, 10])
@pytest.mark.parametrize("how", ["peek", "whole", "piece"])
async def test_a_peer_that_ends_within_a_frame_is_told(
    sockets: tuple[socket.socket, socket.socket], sent: int, how: str
) -> None:
    ours, theirs = sockets
    theirs.sendall(framed(bytes(20))[:sent])
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionError):
        await read_one(incoming(ours), how)


async def test_a_port_without_a_listener_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (await dial("127.0.0.1", port)).close()
    with pytest.raises(OSError, match=str(errno.ECONNREFUSED)):
        await dial("127.0.0.1", port)


def test_the_other_side_sees_a_reset(sockets: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = sockets
    theirs.setblocking(True)
    reset(ours)
    with pytest.raises(ConnectionResetError):
        theirs.recv(1)
