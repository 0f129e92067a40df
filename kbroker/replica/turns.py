"""Long work of one request in short turns of the event loop, so that other clients get theirs in between.

A handler whose work grows with what was asked for writes it as a generator that yields after each item:

    @handles(DescribeThingsRequest)
    def describe_things(services, ctx, request):
        return in_turns(_describe(services, request))

    def _describe(services, request):
        found = []
        for name in request.names:
            found.append(...)
            yield
        return DescribeThingsResponse(things=found)

What is done within one turn is answered at once; the rest goes on in the next turns of the loop. The result may itself
be awaitable.

What is done for one request, in however many tasks, is an errand: it knows whether there is work to be done for it, or
others are waited for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TypeVar
from weakref import WeakKeyDictionary, WeakSet

TURN_S = 0.004
"""What all long work together may take of one turn of the loop, more or less."""
SHORTEST_TURN_S = 0.0005
MOST_AT_A_TURN = 8
"""So many of them, each for the shortest time, go on in one turn of the loop; others wait for the next ones."""

PORTION = 200
"""Items worked off between two looks at the clock, where one takes microseconds."""

Answer = TypeVar("Answer")
Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Generator[None, None, Answer | Awaitable[Answer]]

_under_way: WeakSet[object] = WeakSet()
"""What takes more than one turn and is not at its end: generators, and those of Turn."""
_beginnings: WeakKeyDictionary[asyncio.AbstractEventLoop, float] = WeakKeyDictionary()
"""When new work has had its time in this turn of the loop, once there is much of it."""
_lines: WeakKeyDictionary[asyncio.AbstractEventLoop, deque[asyncio.Future[None]]] = WeakKeyDictionary()
"""What waits for its turn, in order."""


class Errand:
    """One request's work; its tasks, and those that they make, have it in their context (`ERRAND`)."""

    __slots__ = ("awaited",)

    def __init__(self) -> None:
        self.awaited = 0
        """So many of its tasks wait for their turn, or for a thread that works for it."""

    def only_waits(self) -> None:
        """Nothing more is done for it: its answer waits for what others make of what was done."""


ERRAND: ContextVar[Errand | None] = ContextVar("ERRAND", default=None)


@contextmanager
def at_work() -> Iterator[None]:
    """What is awaited in here is the errand's own work, not what others do."""
    errand = ERRAND.get()
    if errand is None:
        yield
        return
    errand.awaited += 1
    try:
        yield
    finally:
        errand.awaited -= 1


def only_waits() -> None:
    """All is done for this errand: its answer waits for what others make of that, and ends with the connection."""
    errand = ERRAND.get()
    if errand is not None:
        errand.only_waits()


def in_turns(work: Work[Answer]) -> Answer | Awaitable[Answer]:
    """Begin the work: return its result, or what is to be awaited for it when it takes longer than a turn.

    Where much is under way, and more has begun in this turn, it waits in line with all else.
    """
    if _has_enough_begun():
        _under_way.add(work)
        return _go_on(work)
    ends = monotonic() + _turn_s()
    try:
        while monotonic() < ends:
            next(work)
    except StopIteration as done:
        answer: Answer | Awaitable[Answer] = done.value
        return answer
    _under_way.add(work)
    return _go_on(work)


def at_once(work: Generator[None, None, Answer]) -> Answer:
    """Do all of it now: it is known to be little."""
    try:
        while True:
            next(work)
    except StopIteration as done:
        answer: Answer = done.value
        return answer


async def finished(answer: Answer | Awaitable[Answer]) -> Answer:
    """Return what `in_turns` returned, or gave something to be awaited for."""
    return await answer if isinstance(answer, Awaitable) else answer


def is_long_work_under_way() -> bool:
    """Whether there is work that takes more than one turn."""
    return len(_under_way) > 0


def portions(items: Sequence[Item], size: int | None = None) -> Iterator[Sequence[Item]]:
    """Cut what is worked off in turns into pieces, of so many items that the clock costs nothing beside them."""
    size = size or PORTION
    for start in range(0, len(items), size):
        yield items[start : start + size]


async def each_in_turns(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return what a quick function makes of each item; many take more than one turn."""
    results: list[Result] = []
    turn = Turn()
    for portion in portions(items):
        results += map(function, portion)
        await turn.end_if_over()
    return results


def _turn_s() -> float:
    return max(SHORTEST_TURN_S, TURN_S / (len(_under_way) + 1))


def _has_enough_begun() -> bool:
    """Whether much is under way, and what began in this turn of the loop beside it has had all of the turn."""
    if len(_under_way) < MOST_AT_A_TURN:
        return False
    loop = asyncio.get_running_loop()
    ends = _beginnings.get(loop)
    if ends is not None:
        return monotonic() >= ends
    _beginnings[loop] = monotonic() + TURN_S
    loop.call_soon(_beginnings.pop, loop, None)
    return False


async def _next_turn() -> None:
    """Wait for the loop's next turn; where many do, until it is this one's turn among them."""
    with at_work():
        await _turn()


async def _turn() -> None:
    if len(_under_way) <= MOST_AT_A_TURN:
        await asyncio.sleep(0)
        return
    loop = asyncio.get_running_loop()
    line = _lines.setdefault(loop, deque())
    if not line:
        loop.call_soon(_let_go_on, loop, line)
    place = loop.create_future()
    line.append(place)
    await place


def _let_go_on(loop: asyncio.AbstractEventLoop, line: deque[asyncio.Future[None]]) -> None:
    """Let the first in line go on in the next turn."""
    for place in [line.popleft() for _ in range(min(MOST_AT_A_TURN, len(line)))]:
        if not place.done():
            place.set_result(None)
    if line:
        loop.call_soon(_let_go_on, loop, line)


class Turn:
    """The same for what is a coroutine already: `await turn.end_if_over()` after each item.

    Where enough has begun in this turn of the loop it is over from the start: what is much for one item asks first.
    """

    __slots__ = ("__weakref__", "_ends")

    def __init__(self) -> None:
        self._ends = 0.0 if _has_enough_begun() else monotonic() + _turn_s()

    async def end_if_over(self) -> None:
        """Let others in between when this turn has taken its time."""
        if monotonic() >= self._ends:
            _under_way.add(self)
            await _next_turn()
            self._ends = monotonic() + _turn_s()


async def _go_on(work: Work[Answer]) -> Answer:
    try:
        while True:
            await _next_turn()
            ends = monotonic() + _turn_s()
            while monotonic() < ends:
                next(work)
    except StopIteration as done:
        answer: Answer | Awaitable[Answer] = done.value
    finally:
        _under_way.discard(work)
    return await finished(answer)
