"""Clients that leave while their request is in work, and have sent more behind it.

What came behind a request is read when that is answered. So the end behind those bytes is not seen, and requests that
nobody waits for would be worked on without limit: a client that comes, asks for much and leaves has the broker work for
ever longer. Connections that are not read from are looked at now and then instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

LOOK_S = 0.5


class Waiting(Protocol):
    """A connection."""

    is_paused: bool
    """Whether it is not read from, though there is something to read."""

    def close_if_left(self) -> bool:
        """Close it if its client has gone and nobody else wants what is in work; whether it is closed."""


class Departures:
    """Those of one server."""

    def __init__(self, later: Callable[[float, Callable[[], None]], object]) -> None:
        """`later(seconds, function)`: the event loop's."""
        self._later = later
        self._watched: set[Waiting] = set()

    def watch(self, connection: Waiting) -> None:
        """Look at it from time to time, until it is read from again or closed."""
        if not self._watched:
            self._later(LOOK_S, self._look)
        self._watched.add(connection)

    def _look(self) -> None:
        watched, self._watched = self._watched, set()
        for connection in watched:
            if connection.is_paused and not connection.close_if_left():
                self.watch(connection)
