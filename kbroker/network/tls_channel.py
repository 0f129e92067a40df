"""The bytes of one connection under TLS: a non-blocking socket, and OpenSSL between two buffers in memory.

    socket -> received -> OpenSSL -> the connection's buffers
    socket <- sealed   <- OpenSSL <- parts of answers, slices of files

OpenSSL never touches the socket: it is read in large pieces, whatever the records' size, and what is left decrypted or
undecrypted when a buffer is full is asked for again without the socket's saying so (`start_reading`). What is sealed
but not out yet counts as not taken: the connection comes again with the same bytes, and they are not sealed twice. So
much is done in one turn of the event loop and no more: SLICE bytes each way.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kbroker.network.channel import has_left

SLICE = 1 << 17
"""Bytes that are encrypted or decrypted for one connection in one turn: some 50 microseconds."""
PIECE = 1 << 16
"""What is taken out of OpenSSL's buffer at once: larger pieces would be fresh memory each time."""
MOST_UNSENT = 1 << 16
"""Bytes that a peer may make TLS itself answer (key updates) without reading them."""
RECORD_OVERHEAD = 64
LARGEST_RECORD = 1 << 14
"""Bytes that one record of TLS may hold: OpenSSL gives none of them before it has all."""


class TlsBuffers:
    """Memory that all channels of an event loop share: what is in it is used up before anybody else's turn."""

    __slots__ = ("from_file", "received")

    def __init__(self) -> None:
        self.received = bytearray(SLICE + (SLICE >> 14) * RECORD_OVERHEAD)
        self.from_file = bytearray(SLICE)


class TlsChannel:
    """One connection's TLS after its handshake."""

    __slots__ = (
        "_buffers",
        "_fd",
        "_incoming",
        "_is_ended",
        "_loop",
        "_on_readable",
        "_outgoing",
        "_owed",
        "_peeked",
        "_socket",
        "_tls",
        "_unsent",
    )

    def __init__(
        self,
        sock: socket.socket,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        buffers: TlsBuffers,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._tls = tls
        self._incoming = incoming
        self._outgoing = outgoing
        self._buffers = buffers
        self._loop = loop
        self._on_readable: Callable[[], None] | None = None
        self._peeked = b""
        """A byte that `_is_at_end` had to take out to know."""
        self._is_ended = False
        """Whether the socket has ended."""
        self._unsent: memoryview | None = None
        """Sealed bytes that the socket did not take."""
        self._owed = 0
        """Bytes that are sealed, but were not reported as taken."""

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._fd

    # -- reading ------------------------------------------------------------------------------------------------------

    def start_reading(self, on_readable: Callable[[], None]) -> None:
        """Call back when there is something to read, from the socket or left over here."""
        self._on_readable = on_readable
        self._loop.add_reader(self._fd, on_readable)
        if self._has_rest():
            self._loop.call_soon(self._read_on)

    def stop_reading(self) -> None:
        """Call back no more."""
        self._on_readable = None
        self._loop.remove_reader(self._fd)

    def _has_rest(self) -> bool:
        """Whether the socket need not be asked: something is left here, or it was the end, which is to be told."""
        return bool(self._peeked or self._incoming.pending or self._tls.pending() or self._is_ended)

    def _read_on(self) -> None:
        if self._on_readable is not None and self._has_rest():
            self._on_readable()

    def recv_into(self, buffer: Any) -> int:
        """Read what there is, at most the buffer's size or SLICE; 0 when the peer has closed."""
        view = memoryview(buffer)
        wanted = min(len(view), SLICE)
        filled = 0
        if self._peeked and wanted:
            view[:1], self._peeked, filled = self._peeked, b"", 1
        received, is_dry = 0, False
        while filled < wanted:
            if self._incoming.pending or self._tls.pending():  # else OpenSSL would only say so, by an exception
                count = self._decrypt(view[filled:wanted])
                if count:
                    filled += count
                    continue
                if count == 0:
                    break
            if is_dry or received > SLICE:
                break
            most = min(len(self._buffers.received), _sealed(max(wanted - filled, LARGEST_RECORD)))
            more = self._receive(most)
            received, is_dry = received + more, more < most
        if filled and (filled == wanted or self._is_ended) and self._on_readable is not None and self._has_rest():
            self._loop.call_soon(self._read_on)
        self._answer_peer()
        if not filled and not self._is_ended and wanted:
            raise BlockingIOError
        return filled

    def _decrypt(self, view: memoryview) -> int | None:
        """Return how many bytes came out; 0 when the peer has closed, None when more has to be received."""
        try:
            count: int = self._tls.read(len(view), view)  # type: ignore[assignment]
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLZeroReturnError:
            count = 0
        if count == 0:
            self._is_ended = True
        return count

    def _receive(self, most: int) -> int:
        """Take ciphertext from the socket, so much at most; returns its bytes, 0 when there are none now.

        Who loops over it counts them: some of what TLS sends yields no plaintext, as often as the peer likes.
        """
        if self._is_ended:
            return 0
        received = self._buffers.received
        try:
            count = self._socket.recv_into(received, most)
        except (BlockingIOError, InterruptedError):
            return 0
        if not count:
            self._is_ended = True
            return 0
        self._incoming.write(memoryview(received)[:count])
        return count

    def has_left(self) -> bool:
        """Whether the peer has closed, also where it sent something before that is not read yet."""
        return has_left(self._fd) or self._is_at_end()

    def _is_at_end(self) -> bool:
        """Whether TLS says that the peer has closed, and nothing is left to be read: the socket may stay open for long.
        Keeps what it had to read to know.
        """
        if self._peeked:
            return False
        byte = bytearray(1)
        try:
            received = 0
            while received <= SLICE:
                count = self._decrypt(memoryview(byte))
                if count:
                    self._peeked = bytes(byte)
                    return False
                more = 0 if count == 0 else self._receive(_sealed(LARGEST_RECORD))
                if not more:
                    return self._is_ended
                received += more
            return False
        except OSError:
            return True

    def _answer_peer(self) -> None:
        """TLS itself may have something to say: send it if nothing is before it, else with the next answer."""
        if self._outgoing.pending:
            self._flush()
            if self._outgoing.pending > MOST_UNSENT:
                raise OSError("it asks for TLS keys again and again, and does not read them")

    # -- writing ------------------------------------------------------------------------------------------------------

    def send(self, buffers: Sequence[Any], more: bool = False) -> int:
        """Write bytes-like parts, return how many bytes were taken: at most SLICE, or what was owed."""
        owed = self._pay()
        if owed:
            return owed
        taken = 0
        for buffer in buffers:
            view = memoryview(buffer).cast("B") if len(buffer) else memoryview(b"")
            room = SLICE - taken
            taken += self._seal(view[:room])
            if taken == SLICE:
                break
        return self._sent(taken)

    def send_file(self, file: int, position: int, size: int) -> int:
        """Write a slice of a file, return how many bytes were taken."""
        owed = self._pay()
        if owed:
            return owed
        view = memoryview(self._buffers.from_file)[: min(size, SLICE)]
        return self._sent(self._seal(view[: os.preadv(file, [view], position)]))

    def _pay(self) -> int:
        """Send what is sealed; return how many bytes that settles. Raises BlockingIOError when the socket is full."""
        if not self._flush():
            raise BlockingIOError
        owed, self._owed = self._owed, 0
        return owed

    def _seal(self, view: memoryview) -> int:
        done = 0
        while done < len(view):
            done += self._tls.write(view[done:])  # one record at a time
        return done

    def _sent(self, taken: int) -> int:
        """Report bytes as taken when they are out; until then they are owed."""
        if not self._flush():
            self._owed = taken
            raise BlockingIOError
        return taken

    def _flush(self) -> bool:
        """Hand sealed bytes to the socket; True when all are out."""
        try:
            while True:
                if self._unsent is None:
                    if not self._outgoing.pending:
                        return True
                    self._unsent = memoryview(self._outgoing.read(PIECE))
                sent = self._socket.send(self._unsent)
                self._unsent = self._unsent[sent:] if sent < len(self._unsent) else None
        except (BlockingIOError, InterruptedError):
            return False

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Say that this is the end, where the socket takes it, and close it."""
        self._on_readable = None
        if self._unsent is None and not self._is_ended:
            with suppress(OSError):  # the peer's own end is not waited for
                self._tls.unwrap()
        with suppress(OSError):  # it has gone
            self._flush()
        self._socket.close()


def _sealed(size: int) -> int:
    """Return about how many bytes of ciphertext hold so many of plaintext."""
    return size + (1 + (size >> 14)) * RECORD_OVERHEAD
