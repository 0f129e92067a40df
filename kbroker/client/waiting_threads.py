"""Threads that wait for an event loop, and what it asks of them meanwhile: functions of the user's that belong there.

What a client asks of its user's code (rebalance listeners) runs in a thread that waits for the client, not on the loop:
there it may call the client again. Several threads may wait at a time.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
Calls = queue.SimpleQueue[Callable[[], None] | None]


def tell_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: Any) -> bool:
    """Have a function called by a loop that another thread may be closing; False when it is closed."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        if loop.is_closed():
            return False
        raise
    return True


class WaitingThreads:
    """Belongs to one loop; knows nothing of the client, so that a client nobody holds any more can go."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting: list[Calls] = []
        """Of each thread that waits: what it has to do; None only wakes it."""
        self._left: list[Callable[[], None]] = []
        """What nobody has done yet, as nobody waits."""

    def wait(self, future: concurrent.futures.Future[Any]) -> None:
        """Wait until the future is done, and do what is asked meanwhile; raises what that raises."""
        calls: Calls = queue.SimpleQueue()
        with self._lock:
            self._waiting.append(calls)
            left, self._left = self._left, []
        for call in left:
            calls.put(call)
        future.add_done_callback(lambda done: calls.put(None))
        try:
            while not future.done():
                wanted = calls.get()
                if wanted is not None:
                    wanted()
        finally:
            with self._lock:
                self._waiting.remove(calls)
            while not calls.empty():
                wanted = calls.get()
                if wanted is not None:
                    self._hand_over(wanted)

    def _hand_over(self, call: Callable[[], None]) -> None:
        """Have a function called by the thread that has begun to wait last, else by the next that waits."""
        with self._lock:
            if self._waiting:
                self._waiting[-1].put(call)
            else:
                self._left.append(call)

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Have a function called by the thread that waits now or next; returns or raises what it does."""
        outcome: asyncio.Future[T] = self._loop.create_future()

        def set_outcome(result: T | None, error: BaseException | None) -> None:
            if not outcome.done():
                if error is None:
                    outcome.set_result(result)  # type: ignore[arg-type]
                else:
                    outcome.set_exception(error)

        def call() -> None:
            try:
                result = function(*arguments)
            except Exception as error:
                tell_loop(self._loop, set_outcome, None, error)
            except BaseException:
                interrupted = RuntimeError(f"{getattr(function, '__qualname__', function)} was interrupted")
                tell_loop(self._loop, set_outcome, None, interrupted)
                raise
            else:
                tell_loop(self._loop, set_outcome, result, None)

        self._hand_over(call)
        return await outcome
