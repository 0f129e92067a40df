"""A thread beside the page's event loop, for what is asked of the whole cluster: no view waits while that is read.

At ten thousand topics an answer takes tenths of a second to be read and counted. The thread has a loop, a client and
facts of its own; what it hands over nobody changes any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from kbroker.client.admin import Admin
from kbroker.page.facts import Facts
from kbroker.page.rates import Watch

T = TypeVar("T")


class Beside:
    """Asks, and watches, from `async with` to its end."""

    def __init__(self, make_admin: Callable[[], Admin]) -> None:
        self._make_admin = make_admin
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kbroker-page-beside", daemon=True)
        self._clients = contextlib.AsyncExitStack()
        self._facts: Facts
        self._watching: asyncio.Task[None]
        self.watch: Watch

    async def ask(self, question: Callable[[Facts], Coroutine[Any, Any, T]]) -> T:
        """Ask there, and wait for the answer here."""
        return await self._run(question(self._facts))

    async def __aenter__(self) -> Beside:
        self._thread.start()
        try:
            await self._run(self._begin())
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._run(self._end())
        finally:
            await self._stop()

    async def _begin(self) -> None:
        self._facts = Facts(await self._clients.enter_async_context(self._make_admin()))
        self.watch = Watch(self._facts)
        self._watching = asyncio.ensure_future(self.watch.run())

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._clients.aclose()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> Awaitable[T]:
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    async def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()
