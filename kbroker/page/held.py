"""How many bytes of records all searches, tails and downloads together may work on.

    up to FREE      of one reader, as it has read ahead: how many readers there may be is limited elsewhere
    more            WORKED bytes at once, for all: what is read is text, JSON and its encoding for a moment
                    WAITING bytes wait for that; who has read more than has a place there is told so, and lets go

A record is as large as its topic lets it be, and nobody knows before it has been read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

from kbroker.protocol.records.record import Record

FREE = 16 << 20
WORKED = 128 << 20
WAITING = 128 << 20


class TooMany(Exception):
    """As many read topics as may at once, or what they read is as large as it may be."""


class Held:
    """What is held now."""

    def __init__(self) -> None:
        self._freed = asyncio.Event()
        self.worked = 0
        self.waiting = 0
        self._is_littered = False

    def is_littered(self) -> bool:
        """Whether much was held since the last question: errors, and who has gone, keep it until garbage is collected.

        Seldom enough, as the page's many objects make collections slow.
        """
        is_littered, self._is_littered = self._is_littered, False
        return is_littered

    @contextlib.asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Work on so many bytes once there is room for them, or nobody else works on many; raises TooMany."""
        if size <= FREE:
            yield
            return
        self._is_littered = True
        await self._wait(size)
        self.worked += size
        try:
            yield
        finally:  # which waits for nothing: whoever listened may have gone
            self.worked -= size
            self._freed.set()
            self._freed = asyncio.Event()

    async def _wait(self, size: int) -> None:
        if self._has_room(size):
            return
        if self.waiting and self.waiting + size > WAITING:
            raise TooMany("others read records as large as these: try again when they have ended")
        self.waiting += size
        try:
            while not self._has_room(size):
                await self._freed.wait()
        finally:
            self.waiting -= size

    def _has_room(self, size: int) -> bool:
        return not self.worked or self.worked + size <= WORKED


def size_of(records: Iterable[Record]) -> int:
    """Return how many bytes records hold."""
    return sum(
        len(record.value or b"")
        + len(record.key or b"")
        + sum(len(name) + len(value or b"") for name, value in record.headers)
        for record in records
    )
