"""Requests that come while the transaction before is still being ended wait here for a while, then are asked again.

    ask(name, question)  --CONCURRENT_TRANSACTIONS, and the name is busy-->  waits  --call_in(name)-->  asked again
                                                                               |
                                                            too many, too long +-->  CONCURRENT_TRANSACTIONS

To tell a client to come again would cost it 20 to 100 ms, where an end is written within a few; and there are clients
that do not come again. They are called in in the order in which they came, however long their first answers took, and
whoever comes while somebody is in line, if only for the turn of the loop in which he is called, stands behind him: of
two producers with one id the later is to shut the earlier out. What a waiting request holds up are the answers behind
it on its connection: so nobody waits for long.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

from kbroker.coordinator.transaction import CONCURRENT, Answer

LONGEST_S = 0.5
"""Of one request, however often it is asked."""
MOST = 1000
"""That wait at a time."""
MOST_OF_A_NAME = 16
"""A client with more of them does not wait for answers, and would take the places of all others."""

Question = Callable[[], Awaitable[Answer]]


class WaitingRoom:
    """Of one coordinator. `is_busy(transactional id)` tells whether waiting helps: `call_in` comes when not."""

    def __init__(self, is_busy: Callable[[str], bool], longest_s: float = LONGEST_S, most: int = MOST) -> None:
        self._is_busy = is_busy
        self._longest_s = longest_s
        self._most = most
        self._waiting: dict[str, dict[int, asyncio.Future[bool]]] = {}
        """By name and number, as they came."""
        self._numbers = itertools.count()
        self._count = 0

    def ask(self, name: str, question: Question) -> Awaitable[Answer]:
        """Ask at once; return the answer, or what is to be awaited for it. What the question raises is raised.

        A future that is not done says that a record of this very request is being written: there is no waiting then.
        """
        first = None if name in self._waiting else question()
        if isinstance(first, asyncio.Future) and not (first.done() and first.result().error is CONCURRENT):
            return first
        return self._ask_on(name, question, first, next(self._numbers))

    async def _ask_on(self, name: str, question: Question, first: Awaitable[Answer] | None, number: int) -> Answer:
        ends = asyncio.get_running_loop().time() + self._longest_s
        if first is None:
            if self._is_full(name):
                return Answer(None, CONCURRENT)  # to be asked now would be to overtake those in line
            await self._is_called_in(name, number, ends)
            first = question()
        answer = await first
        while answer.error is CONCURRENT and await self._is_called_in(name, number, ends):
            answer = await question()
        return answer

    async def _is_called_in(self, name: str, number: int, ends: float) -> bool:
        """Wait until it makes sense to ask again; False: it will not."""
        loop = asyncio.get_running_loop()
        if loop.time() >= ends or self._is_full(name):
            return False
        called = loop.create_future()
        timer = loop.call_at(ends, _answer, called, False)
        waiting = self._waiting.setdefault(name, {})
        waiting[number] = called
        self._count += 1
        try:
            if not self._is_busy(name):  # by now: the answer is older, or nobody but those in line before is waited for
                await asyncio.sleep(0)
                return True
            return bool(await called)
        finally:
            self._count -= 1
            timer.cancel()
            del waiting[number]
            if not waiting:
                del self._waiting[name]

    def _is_full(self, name: str) -> bool:
        return self._count >= self._most or len(self._waiting.get(name, ())) >= MOST_OF_A_NAME

    def call_in(self, name: str) -> None:
        """It is not busy any more."""
        for _, called in sorted(self._waiting.get(name, {}).items()):
            _answer(called, True)

    def call_all_in(self) -> None:
        """Who knows what has changed."""
        for name in list(self._waiting):
            self.call_in(name)


def _answer(called: asyncio.Future[bool], is_called: bool) -> None:
    if not called.done():
        called.set_result(is_called)
