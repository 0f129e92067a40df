"""What those who have not logged in may take of a turn of the event loop.

Whoever has logged in is served as soon as there is something to read. Strangers share TURN_S of each turn, and others
of them wait in a queue: ten thousand wrong passwords a second take their time from each other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

TURN_S = 0.001
MOST_WAITING = 100
"""With more in the queue, further strangers are left in their listener's."""


class Strangers:
    """Of one server."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._turn_ends = 0.0
        """When this turn's time is up; 0 while nobody has asked in it."""

    @property
    def waiting(self) -> int:
        """How many wait; with more than MOST_WAITING no further ones had better come in."""
        return len(self._waiting)

    def have_time(self) -> bool:
        """Whether one may be served at once: nobody waits, and there is time left."""
        if self._waiting:
            return False
        if not self._turn_ends:
            self._begin_turn()
            return True
        return monotonic() < self._turn_ends

    def serve(self, work: Callable[[], None]) -> None:
        """Do it at once or in a later turn, in order."""
        if self.have_time():
            work()
        else:
            self.wait(work)

    def wait(self, work: Callable[[], None]) -> None:
        """Do it in a later turn, in order."""
        self._waiting.append(work)
        if not self._turn_ends:
            self._begin_turn()

    def _begin_turn(self) -> None:
        self._turn_ends = monotonic() + TURN_S
        self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_ends = 0.0
        if self._waiting:
            self._begin_turn()
            self._waiting.popleft()()
            while self._waiting and monotonic() < self._turn_ends:
                self._waiting.popleft()()
