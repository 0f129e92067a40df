"""What connections of one kind may take of a turn of the event loop, and which kind a connection is of.

Whoever has shown that its requests are quickly answered is served as soon as there is something to read. All others are
served from queues, a request at a time, and each queue has its share of each turn:

    strangers    have not logged in: ten thousand wrong passwords a second take their time from each other
    newcomers    have not been answered yet, or not as quickly as else: nobody knows what their requests take
    dear         ask for what takes long: a thousand who describe the broker wait for each other, not others for them
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

from kbroker.replica.turns import SHORTEST_TURN_S

TURN_S = 0.001
DEAR_TURN_S = 0.004
MOST_WAITING = 100
"""With more strangers in the queue, further ones are left in their listener's."""
DEAR_S = SHORTEST_TURN_S
"""A request that takes longer is dear."""
MOST_OWED_S = 4 * DEAR_S


class Share:
    """Of connections of one kind, of one server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, turn_s: float = TURN_S) -> None:
        self._loop = loop
        self._turn_s = turn_s
        self._waiting: deque[Callable[[], None]] = deque()
        self._turn_ends = 0.0
        """When this turn's time is up; 0 while nobody has asked in it."""

    @property
    def waiting(self) -> int:
        """How many wait."""
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
        self._turn_ends = monotonic() + self._turn_s
        self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_ends = 0.0
        if self._waiting:
            self._begin_turn()
            self._waiting.popleft()()
            while self._waiting and monotonic() < self._turn_ends:
                self._waiting.popleft()()


class Shares:
    """The queues of one server, or those of its brokers' own listener, whom others do not keep waiting."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.strangers = Share(loop)
        self.newcomers = Share(loop)
        self.dear = Share(loop, DEAR_TURN_S)


class Standing:
    """Of one connection: among whom it is served."""

    __slots__ = ("_owed_s", "_shares", "share")

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self.share: Share | None = shares.newcomers
        """Where it waits for its turn; None: nowhere."""
        self._owed_s = 0.0
        """What it has to make good by requests that are not dear."""

    def log_in_first(self) -> None:
        """It is a stranger."""
        self.share = self._shares.strangers

    def logged_in(self) -> None:
        """It is a stranger no more."""
        self.share = self._shares.newcomers

    def suspect(self, took_s: float) -> None:
        """By the clock on the wall its request was dear: it may be that this process was kept waiting."""
        self.share, self._owed_s = self._shares.newcomers, min(took_s, MOST_OWED_S)

    def weigh(self, took_s: float) -> None:
        """Note what a request of one in line took of the processor."""
        if self.share is self._shares.strangers:
            return
        if took_s > DEAR_S:
            self.share, self._owed_s = self._shares.dear, min(self._owed_s + took_s, MOST_OWED_S)
            return
        self._owed_s -= DEAR_S
        if self._owed_s <= 0:
            self._owed_s, self.share = 0.0, None
