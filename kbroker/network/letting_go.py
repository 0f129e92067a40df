"""Lets go of large messages in turns of the event loop: to free a hundred thousand structs at once takes it 50 ms.

What works for clients who are gone is cancelled little by little, as that frees what it held.
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
_unwanted: WeakKeyDictionary[asyncio.AbstractEventLoop, deque[tuple[Cancellable, float]]] = WeakKeyDictionary()
"""What is to be cancelled, in order, and its shares of a turn."""


class Cancellable(Protocol):
    """What nobody may want any more."""

    def cancel(self) -> object:
        """Nobody does."""


class CancelledInTurn:
    """Cancels what may hold much: as many of all of these in a turn of the loop as their shares of it let.

    What a large request's work holds takes 3 ms to free, and so all of a turn.
    """

    __slots__ = ("_answer", "_share")

    def __init__(self, answer: Cancellable, share: float = 1.0) -> None:
        self._answer = answer
        self._share = share

    def cancel(self) -> None:
        """Nobody wants it any more; it hears of that in its turn."""
        loop = asyncio.get_running_loop()
        line = _unwanted.setdefault(loop, deque())
        line.append((self._answer, self._share))
        if len(line) == 1:
            loop.call_soon(_cancel_some, loop, line)


def _cancel_some(loop: asyncio.AbstractEventLoop, line: deque[tuple[Cancellable, float]]) -> None:
    unwanted: list[Cancellable] = []
    left = 1.0
    while line and left > 0:
        answer, share = line.popleft()
        unwanted.append(answer)
        left -= share
    if line:
        loop.call_soon(_cancel_some, loop, line)
    for answer in unwanted:
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
