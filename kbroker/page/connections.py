"""Who may stay connected: nobody who asks for nothing, and from one address not so many that others find no place.

    a request   head and body within REQUEST_S of its first byte, the first one of the connection's begin
    an answer   goes on as long as something of it is taken within TAKE_S
    places      MOST at once, MOST_OF_ADDRESS of them from one address; who finds none is turned away

No token was given yet: any stranger could hold every descriptor of the process otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

log = logging.getLogger(__name__)
_of_views = log.getChild("views")
_of_views.setLevel(logging.ERROR)
"""What goes wrong in them; instead of uvicorn's, which has a line for each request that is no HTTP, or wants another
protocol: strangers send them.
"""

REQUEST_S = 10.0
TAKE_S = 120.0
"""What waits to be taken is some 64 KB; who takes nothing holds what a download has read."""
MOST = 512
MOST_OF_ADDRESS = 128
"""A proxy before the page is one address, too."""
LOG_S = 60.0
"""How often the log says that somebody was turned away."""


class Listener(socket.socket):
    """Accepts for asyncio's loop, which learns of a place that is not free as of a client that has gone already.

    Counted from here on, rather than where HTTP begins: a client that does not shake hands for TLS holds a place, too.
    """

    def __init__(self, family: socket.AddressFamily) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._open: Counter[str] = Counter()
        self._logged_at = -LOG_S

    def accept(self) -> tuple[socket.socket, Any]:
        """Give a connection; raises ConnectionAbortedError where it was turned away."""
        accepted, peer = super().accept()
        address = str(peer[0])
        if self._open[address] >= MOST_OF_ADDRESS or self._open.total() >= MOST:
            accepted.close()
            self._log_refusal(address)
            raise ConnectionAbortedError
        self._open[address] += 1
        return _Accepted(accepted, lambda: self._free(address)), peer

    def _free(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]

    def _log_refusal(self, address: str) -> None:
        if time.monotonic() - self._logged_at >= LOG_S:
            self._logged_at = time.monotonic()
            counts = self._open[address], self._open.total()
            log.warning("a connection from %s is turned away: it has %d open, all have %d", address, *counts)


class _Accepted(socket.socket):
    """Says when it is closed."""

    def __init__(self, accepted: socket.socket, closed: Callable[[], None]) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, accepted.detach())
        self._tell: Callable[[], None] | None = closed

    def close(self) -> None:
        """Close, and give the place back."""
        super().close()
        tell, self._tell = self._tell, None
        if tell is not None:
            tell()


class Connection(H11Protocol):
    """Ends itself where a request does not come, or its answer is not taken."""

    _late: asyncio.TimerHandle | None = None
    _untaken: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.logger = _of_views
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take a piece of a request."""
        if self._late is None:
            self._wait()
        super().data_received(data)

    def handle_events(self) -> None:
        """Answer what is there; a request that is there as a whole is waited for no longer."""
        super().handle_events()
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_waiting()
        self._taken()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait until the client takes something."""
        super().pause_writing()
        self._wait_for_taking(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """It has."""
        super().resume_writing()
        self._taken()

    def _wait_for_taking(self, waiting: int) -> None:
        self._untaken = self.loop.call_later(TAKE_S, self._look_what_is_taken, waiting)

    def _look_what_is_taken(self, before: int) -> None:
        """A large piece is taken little by little, and the transport says nothing until nearly all of it is."""
        now = self.transport.get_write_buffer_size()
        if now < before:
            self._wait_for_taking(now)
        else:
            self.transport.abort()

    def _wait(self) -> None:
        self._late = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _taken(self) -> None:
        if self._untaken is not None:
            self._untaken.cancel()
            self._untaken = None

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
