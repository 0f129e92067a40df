"""Lets go of large messages in turns of the event loop: to free a hundred thousand structs at once takes it 50 ms.

What works for clients who are gone is cancelled one after the other, as that frees what it held.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import cache
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from kbroker.protocol.schema import Message, Struct, schema_of
from kbroker.replica.turns import PORTION, Turn

_tasks: set[asyncio.Future[None]] = set()
"""Under way: the loop itself holds its tasks weakly."""
_unwanted: WeakKeyDictionary[asyncio.AbstractEventLoop, deque[Cancellable]] = WeakKeyDictionary()


class Cancellable(Protocol):
    """What nobody may want any more."""

    def cancel(self) -> object:
        """Nobody does."""


class CancelledInTurn:
    """Cancels what may hold much: of all of these one in each turn of the loop."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Cancellable) -> None:
        self._answer = answer

    def cancel(self) -> None:
        """Nobody wants it any more; it hears of that in its turn."""
        loop = asyncio.get_running_loop()
        line = _unwanted.setdefault(loop, deque())
        line.append(self._answer)
        if len(line) == 1:
            loop.call_soon(_cancel_next, loop, line)


def _cancel_next(loop: asyncio.AbstractEventLoop, line: deque[Cancellable]) -> None:
    answer = line.popleft()
    if line:
        loop.call_soon(_cancel_next, loop, line)
    answer.cancel()


def let_go(message: Message) -> asyncio.Future[None]:
    """Free what is in a message's arrays in turns, and return when that is done; the caller forgets the message now.

    Whoever else holds some of it may go on: nothing is taken out of it.
    """
    task = asyncio.ensure_future(_free([message]))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


async def _free(held: list[Any]) -> None:
    """Take hold of every struct, then let go of one portion after the other: first of those that hold others."""
    turn = Turn()
    await turn.end_if_over()
    looked_at = 0
    while looked_at < len(held):
        until = min(looked_at + PORTION, len(held))
        held += _elements(held[looked_at:until])
        looked_at = until
        await turn.end_if_over()
    held.reverse()
    while held:
        del held[-PORTION:]
        await turn.end_if_over()


def _elements(structs: list[Any]) -> list[Any]:
    """Return the structs in their arrays."""
    found: list[Any] = []
    for struct in structs:
        kind: Any = type(struct)
        for name in _arrays(kind):
            array = getattr(struct, name)
            if type(array) is list:  # not what is encoded already
                found += array
    return found


@cache
def _arrays(struct: type[Struct]) -> tuple[str, ...]:
    """Return the names of a struct's arrays of structs."""
    return tuple(field.name for field in schema_of(struct).fields if field.array and field.struct is not None)
