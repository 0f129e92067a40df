"""A client's end: begun once, and carried out whole, also where those who wait for it are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Closing:
    """Lives on the loop of its client."""

    def __init__(self, close: Callable[..., Coroutine[Any, Any, None]]) -> None:
        self._close = close
        self._task: asyncio.Task[None] | None = None

    async def run(self, *arguments: Any, waits: bool = True) -> None:
        """Close, or wait for the end of that; what is called while closing (a listener) does not wait for itself.

        `waits=False`: begin it only, for whom the end waits itself.
        """
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._close(*arguments), name="kbroker-closing")
        if waits and asyncio.current_task() is not self._task:
            await asyncio.shield(self._task)
