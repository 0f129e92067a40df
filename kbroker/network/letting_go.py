"""Lets go of large messages in turns of the event loop: to free a hundred thousand structs at once takes it 50 ms."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

from kbroker.protocol.schema import Message, Struct, schema_of
from kbroker.replica.turns import PORTION, Turn

_tasks: set[asyncio.Future[None]] = set()
"""Under way: the loop itself holds its tasks weakly."""


def let_go(message: Message) -> None:
    """Free what is in a message's arrays in turns; the caller forgets the message now.

    Whoever else holds some of it may go on: nothing is taken out of it.
    """
    task = asyncio.ensure_future(_free([message]))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


async def _free(held: list[Any]) -> None:
    """Take hold of every struct, then let go of one portion after the other: first of those that hold others."""
    turn = Turn()
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
