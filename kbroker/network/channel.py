"""The bytes of one connection: a non-blocking socket, plain here. TLS has the same methods (tls_channel.py)."""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Callable, Sequence
from typing import Any, Protocol

MORE = getattr(socket, "MSG_MORE", 0)


_PEER_HAS_CLOSED = getattr(select, "POLLRDHUP", 0)
"""Linux tells it beside what there is to read; others tell of errors, and of an end in both directions."""


def has_left(descriptor: int) -> bool:
    """Whether the peer of a socket has closed it, or the connection is broken, whatever is left to be read."""
    poll = select.poll()
    poll.register(descriptor, _PEER_HAS_CLOSED)
    return bool(poll.poll(0))


class Channel(Protocol):
    """What a connection asks of its socket. All may raise BlockingIOError (try again when ready) or OSError."""

    def fileno(self) -> int:
        """The descriptor to wait on."""

    def start_reading(self, on_readable: Callable[[], None]) -> None:
        """Call back when there is something to read."""

    def stop_reading(self) -> None:
        """Call back no more."""

    def recv_into(self, buffer: Any) -> int:
        """Read what there is, at most the buffer's size; 0 when the peer has closed."""

    def has_left(self) -> bool:
        """Whether the peer has closed, also where it sent something before that is not read yet. Reads nothing."""

    def send(self, buffers: Sequence[Any], more: bool = False) -> int:
        """Write bytes-like parts, return how many bytes were taken; `more` says that other bytes follow at once."""

    def send_file(self, file: int, position: int, size: int) -> int:
        """Write a slice of a file, return how many bytes were taken."""

    def close(self) -> None:
        """Close the socket."""


class PlainChannel:
    """A TCP socket without encryption: files go out by sendfile, never through the interpreter."""

    __slots__ = ("_fd", "_loop", "_sendmsg", "_socket", "recv_into")

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._socket = sock
        self._loop = loop or asyncio.get_running_loop()
        self._fd = sock.fileno()
        self._sendmsg = sock.sendmsg
        self.recv_into = sock.recv_into

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._fd

    def start_reading(self, on_readable: Callable[[], None]) -> None:
        """Call back when there is something to read."""
        self._loop.add_reader(self._fd, on_readable)

    def stop_reading(self) -> None:
        """Call back no more."""
        self._loop.remove_reader(self._fd)

    def has_left(self) -> bool:
        """Whether the peer has closed, also where it sent something before that is not read yet."""
        return has_left(self._fd)

    def send(self, buffers: Sequence[Any], more: bool = False) -> int:
        """Write bytes-like parts, return how many bytes were taken."""
        if more:
            return self._sendmsg(buffers, (), MORE)
        return self._sendmsg(buffers)

    def send_file(self, file: int, position: int, size: int) -> int:
        """Write a slice of a file, return how many bytes were taken."""
        return os.sendfile(self._fd, file, position, size)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
