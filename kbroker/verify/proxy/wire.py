"""One socket's incoming bytes, frame by frame, on asyncio: small frames at once, large ones piece by piece.

    size = await incoming.next_frame()       what the peer announces, held against what is allowed
    head = await incoming.peek(14)           the frame's first bytes
    frame = await incoming.whole()           either all of it, in memory of its own,
    piece = await incoming.piece()           or piece by piece, the size in front of the first; b"" behind the last

Nothing is read ahead but what fits the staging buffer: a peer that is not listened to waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

from kbroker.protocol.frame import SIZE_BYTES, FrameError, frame_size
from kbroker.protocol.records.buffers import BufferPool

STAGING_BYTES = 256 << 10
MOST_PEEKED = 96 << 10
"""A request's head: client id, transactional id, and the few bytes around them."""
CONNECT_TIMEOUT_S = 10.0
_RESET = struct.pack("ii", 1, 0)


class Incoming:
    """Reads the frames of one non-blocking socket."""

    def __init__(self, sock: socket.socket, max_frame: int, pool: BufferPool) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._max_frame = max_frame
        self._pool = pool
        self._staging = memoryview(bytearray(STAGING_BYTES))
        self._start = 0
        self._end = 0
        self._left = 0
        """Bytes of this frame (its size included) that are not taken yet."""

    async def next_frame(self) -> int | None:
        """Wait for the next frame and return its size; None when the peer has ended in good order between two.

        Raises FrameError for a size that no frame may have, ConnectionError when it ends within one.
        """
        assert self._left == 0, "the frame before is not taken"
        if self._start == self._end:
            self._start = self._end = 0
            if not await self._receive():
                return None
        await self._fill(SIZE_BYTES)
        size = frame_size(self._staging, self._max_frame, self._start)
        if size < SIZE_BYTES:
            raise FrameError(f"a frame of {size} bytes has no correlation id")
        self._left = size + SIZE_BYTES
        return size

    async def peek(self, most: int) -> memoryview:
        """Return the first bytes of the frame, at most so many; a view that holds until more is read."""
        count = min(most, MOST_PEEKED, self._left - SIZE_BYTES)
        await self._fill(SIZE_BYTES + count)
        first = self._start + SIZE_BYTES
        return self._staging[first : first + count]

    async def whole(self) -> memoryview:
        """Take the frame, without its size."""
        size = self._left - SIZE_BYTES
        self._start += SIZE_BYTES
        frame = memoryview(self._pool.borrow(size))[:size]
        staged = min(size, self._end - self._start)
        frame[:staged] = self._staging[self._start : self._start + staged]
        self._start += staged
        while staged < size:
            count = await self._loop.sock_recv_into(self._sock, frame[staged:])
            if not count:
                raise ConnectionError(f"the peer ended within a frame of {size} bytes")
            staged += count
        self._left = 0
        return frame

    async def piece(self) -> memoryview:
        """Take what there is of the frame, its size included; a view that holds until more is read. Empty: no more."""
        if self._left and self._start == self._end:
            self._start = self._end = 0
            if not await self._receive():
                raise ConnectionError(f"the peer ended, {self._left} bytes before the end of a frame")
        count = min(self._left, self._end - self._start)
        first = self._start
        self._start += count
        self._left -= count
        return self._staging[first : first + count]

    async def _fill(self, wanted: int) -> None:
        """Have so many bytes staged."""
        if self._start + wanted > STAGING_BYTES:
            kept = bytes(self._staging[self._start : self._end])
            self._staging[: len(kept)] = kept
            self._start, self._end = 0, len(kept)
        while self._end - self._start < wanted:
            if not await self._receive():
                raise ConnectionError("the peer ended within a frame")

    async def _receive(self) -> int:
        count = await self._loop.sock_recv_into(self._sock, self._staging[self._end :])
        self._end += count
        return count


async def dial(host: str, port: int) -> socket.socket:
    """Connect; raises OSError (TimeoutError is one)."""
    loop = asyncio.get_running_loop()
    failure = OSError(f"{host} has no address")
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            sock = socket.socket(family, kind, protocol)
            try:
                prepare(sock)
                await loop.sock_connect(sock, address)
            except OSError as error:
                failure = error
                sock.close()
            except BaseException:
                sock.close()
                raise
            else:
                return sock
    raise failure


def prepare(sock: socket.socket) -> None:
    """Make it non-blocking, and let small frames leave at once."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def reset(sock: socket.socket) -> None:
    """Close it so that the other side sees a reset; nobody may wait on it any more."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    sock.close()
