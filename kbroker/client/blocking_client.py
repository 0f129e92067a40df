"""What the blocking clients have in common: an asyncio client on a loop in a background thread.

One thread with one loop per client, started by the constructor, ended by `close` (which `with`, and the interpreter's
end, call too). A client belongs to the process that made it: after a fork the child gets an error instead of answers
meant for its parent.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import queue
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kbroker.client.errors import AFTER_FORK, ClientClosed

T = TypeVar("T")

_open_clients: weakref.WeakSet[Client] = weakref.WeakSet()


class Client:
    """A background loop and the asyncio client that lives on it.

    What the client asks of its user's code (rebalance listeners) runs in the thread that waits here, not on the loop:
    there it may call the client again.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        """What the waiting thread has to do; None only wakes it."""
        self._thread = threading.Thread(target=self._loop.run_forever, name="kbroker-client", daemon=True)
        self._thread.start()
        self._closed = False
        try:
            self._client = self.run(call(make))
        except BaseException:
            self._stop_loop()
            raise
        _open_clients.add(self)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait; an exception here (KeyboardInterrupt) cancels it."""
        try:
            self._check()
        except BaseException:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        future.add_done_callback(lambda done: self._calls.put(None))
        try:
            while not future.done():
                call = self._calls.get()
                if call is not None:
                    call()
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def _in_waiting_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """Have a function called by the thread that waits in `run` now or next; returns or raises what it does."""
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
                self._loop.call_soon_threadsafe(set_outcome, None, error)
            except BaseException:
                interrupted = RuntimeError(f"{getattr(function, '__qualname__', function)} was interrupted")
                self._loop.call_soon_threadsafe(set_outcome, None, interrupted)
                raise
            else:
                self._loop.call_soon_threadsafe(set_outcome, result, None)

        self._calls.put(call)
        return await outcome

    def _check(self) -> None:
        if self._closed:
            raise ClientClosed("this client is closed")
        if os.getpid() != self._process:
            raise ClientClosed(AFTER_FORK)
        if threading.current_thread() is self._thread:
            text = "a callback on the client's own thread waits for that thread for ever"
            raise RuntimeError(f"{text}: call the client from another one")

    def close(self, timeout: float | None = 30.0) -> None:
        """Close the client and end its thread; safe to call again."""
        if self._closed or os.getpid() != self._process:
            return
        self._check()
        try:
            self.run(self._close(timeout))
        finally:
            self._stop_loop()

    async def _close(self, timeout: float | None) -> None:
        await self._client.close()

    def _stop_loop(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __exit__(self, *exception: object) -> None:
        self.close()


async def call(make: Callable[[], T]) -> T:
    """Call a function on the loop."""
    return make()


@atexit.register
def _close_all() -> None:
    for client in list(_open_clients):
        client.close(timeout=5.0)
