"""Calls that give records to a thread that may be interrupted at any moment, while it gives up the last one too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from kbroker.client.reader import Reader

T = TypeVar("T")

END_S = 1.0
"""How long is waited for a call that was given up."""


class Handover(Generic[T]):
    """One such call. What it gave is delivered again if it is given up; the loop runs this."""

    def __init__(self, reader: Reader, call: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._reader = reader
        self._call = call
        self._task: asyncio.Task[Any] | None = None
        self._calls_before = 0
        self._is_given_up = False

    async def run(self) -> T:
        """Do it, unless it was given up before it has begun."""
        if self._is_given_up:
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        self._calls_before = self._reader.calls
        return await self._call()

    def give_up(self) -> None:
        """Nobody has got its result, or waits for it; to be called again is fine."""
        if self._is_given_up:
            return
        self._is_given_up = True
        if self._task is not None:
            self._task.cancel()
            self._reader.take_back(self._calls_before)

    async def end(self) -> None:
        """Give it up, and wait until it has ended."""
        self.give_up()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=END_S)
