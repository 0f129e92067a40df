"""How many large requests are in work at once: the others wait in line as the bytes they came in.

Decoded, a request takes ten to twenty times its bytes, and so may its answer; a thousand clients who ask for as much as
they may, or with few bytes for all there is, would take all of the memory. A place is held from before a request is
decoded until it is answered and let go of. Who waits for others (replicas, the end of a transaction, records to come)
gives his place up: nobody waits in line for what may take long, or for somebody behind him.

A connection has one request in line at most, so that all have their turn; one whose client leaves is given up, but for
a Produce, which may have no answer to wait for. What brokers ask each other has a line of its own. Bytes that wait
count for queued.max.request.bytes, as those of all requests.

What is changed in ZooKeeper one by one, or by the controller (limits.py), takes milliseconds each, and goes on when the
client has left: a place is kept until all is done, or any number of such requests would be in work at once. What then
waits for the controller or other brokers ends with its connection. Small ones have places of their own, so that who
changes one thing does not wait for somebody who changes thousands.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kbroker.network.letting_go import CancelledInTurn
from kbroker.network.limits import BROKERS_LINE, CHANGES_ONE_BY_ONE, LARGE_FRAME
from kbroker.replica.turns import Errand

if TYPE_CHECKING:
    from kbroker.network.connection import Connection

MOST_AT_WORK = 8
"""As many as num.io.threads lets Apache Kafka decode."""
MOST_SMALL_CHANGES = 64
PATIENCE_S = 0.02
"""Who has had no work for so long, or for twice as long, waits for others."""
SHARE_OF_FRAME = 1 / 16
"""What it takes of a turn to let go of a frame that waits in line: frames come faster than one in each turn."""


class LargeRequests:
    """The places there are, and the line before them."""

    def __init__(self, most_at_work: int = MOST_AT_WORK, *, are_kept: bool = False) -> None:
        """`are_kept`: places are, by who waits for others, too, until he says that all is done (`only_waits`)."""
        self.at_work = 0
        self.are_kept = are_kept
        self._most_at_work = most_at_work
        self._line: deque[asyncio.Future[None]] = deque()

    async def enter(self, ends_with: Connection | None = None) -> Place:
        """Wait for a place; cancelled when that connection is closed."""
        if self.at_work < self._most_at_work:
            self.at_work += 1
        else:
            await self._wait_in_line(ends_with)
        return Place(self)

    async def _wait_in_line(self, ends_with: Connection | None) -> None:
        given = asyncio.get_running_loop().create_future()
        self._line.append(given)
        if ends_with is not None:
            ends_with.cancel_when_closed(CancelledInTurn(given, SHARE_OF_FRAME))
        try:
            await given
        except asyncio.CancelledError:
            if not given.cancelled():  # it has been given the place that it no longer wants
                self.leave()
            raise
        if ends_with is not None:
            ends_with.cancel_when_closed(None)

    @property
    def waiting(self) -> int:
        """How many wait in line."""
        return sum(not given.done() for given in list(self._line))

    def leave(self) -> None:
        """A place is free for the next in line."""
        while self._line:
            given = self._line.popleft()
            if not given.done():
                given.set_result(None)
                return
        self.at_work -= 1


class Lines:
    """All lines that requests of one server stand in."""

    def __init__(self) -> None:
        self._clients, self._brokers = LargeRequests(), LargeRequests()
        self._large_changes = LargeRequests(are_kept=True)
        self._small_changes = LargeRequests(MOST_SMALL_CHANGES, are_kept=True)

    def line_of(self, api_key: int, size: int, takes_brokers: bool) -> LargeRequests:
        """Return where a request of so many bytes stands; `takes_brokers`: it may come from a broker."""
        if api_key in CHANGES_ONE_BY_ONE:
            return self._large_changes if size > LARGE_FRAME else self._small_changes
        return self._brokers if takes_brokers and api_key in BROKERS_LINE else self._clients

    @property
    def waiting(self) -> int:
        """How many wait in all of them."""
        return sum(line.waiting for line in (self._clients, self._brokers, self._large_changes, self._small_changes))


class Place(Errand):
    """One request's place, for as long as there is work to be done for it."""

    __slots__ = ("_loop", "_of", "_timer", "when_it_only_waits")

    def __init__(self, of: LargeRequests) -> None:
        super().__init__()
        self.when_it_only_waits: Callable[[], object] | None = None
        self._of: LargeRequests | None = of
        self._loop = asyncio.get_running_loop()
        self._timer = None if of.are_kept else self._loop.call_later(PATIENCE_S, self._look)

    def _look(self) -> None:
        if self.awaited:
            self._timer = self._loop.call_later(PATIENCE_S, self._look)
        else:
            self.leave()

    def only_waits(self) -> None:
        """See Errand."""
        self.leave()
        if self.when_it_only_waits is not None:
            self.when_it_only_waits()

    def leave(self, *_: Any) -> None:
        """Give it up, if that has not been done."""
        if self._of is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._of.leave()
            self._of = None
