"""How many large requests are in work at once: the others wait in line as the bytes they came in.

Decoded, a request takes ten to twenty times its bytes, and so may its answer; a thousand clients who ask for as much as
they may would take all of the memory. A place is held from before a request is decoded until it is answered and let go
of. Who waits for others (replicas, the end of a transaction, records to come) gives his place up: nobody waits in line
for what may take long, or for somebody behind him.

A connection has one request in line at most, so that all have their turn; one whose client leaves is given up, but for
a Produce, which may have no answer to wait for. What brokers ask each other has a line of its own. Bytes that wait
count for queued.max.request.bytes, as those of all requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from kbroker.network.letting_go import CancelledInTurn
from kbroker.replica.turns import Errand

if TYPE_CHECKING:
    from kbroker.network.connection import Connection

MOST_AT_WORK = 8
"""As many as num.io.threads lets Apache Kafka decode."""
PATIENCE_S = 0.02
"""Who has had no work for so long, or for twice as long, waits for others."""
SHARE_OF_FRAME = 1 / 16
"""What it takes of a turn to let go of a frame that waits in line: frames come faster than one in each turn."""


class LargeRequests:
    """The places there are, and the line before them."""

    def __init__(self) -> None:
        self.at_work = 0
        self._line: deque[asyncio.Future[None]] = deque()

    async def enter(self, ends_with: Connection | None = None) -> Place:
        """Wait for a place; cancelled when that connection is closed."""
        if self.at_work < MOST_AT_WORK:
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


class Place(Errand):
    """One request's place, for as long as there is work to be done for it."""

    __slots__ = ("_loop", "_of", "_timer")

    def __init__(self, of: LargeRequests) -> None:
        super().__init__()
        self._of: LargeRequests | None = of
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(PATIENCE_S, self._look)

    def _look(self) -> None:
        if self.awaited:
            self._timer = self._loop.call_later(PATIENCE_S, self._look)
        else:
            self.leave()

    def leave(self, *_: Any) -> None:
        """Give it up, if that has not been done."""
        if self._of is not None:
            self._timer.cancel()
            self._of.leave()
            self._of = None
