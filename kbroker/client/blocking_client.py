"""What the blocking clients have in common: an asyncio client on a loop in a background thread.

One thread with one loop per client, started by the constructor, ended by `close` (which `with`, and the interpreter's
end, call too). A client belongs to the process that made it: after a fork the child gets an error instead of answers
meant for its parent.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import queue
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kbroker.client.errors import AFTER_FORK, ClientClosed

T = TypeVar("T")
Calls = queue.SimpleQueue[Callable[[], None] | None]

TELL_S = 1.0
AT_EXIT_S = 5.0

_open_clients: weakref.WeakSet[Client] = weakref.WeakSet()


class Client:
    """A background loop and the asyncio client that lives on it.

    What the client asks of its user's code (rebalance listeners) runs in a thread that waits here, not on the loop:
    there it may call the client again. Several threads may wait at a time.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._waiting: list[Calls] = []
        """Of each thread that waits in `run`: what it has to do; None only wakes it."""
        self._left: list[Callable[[], None]] = []
        """What nobody has done yet, as nobody waits."""
        self._lock = threading.Lock()
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
        calls: Calls = queue.SimpleQueue()
        self._wait_with(calls)
        future.add_done_callback(lambda done: calls.put(None))
        try:
            while not future.done():
                call = calls.get()
                if call is not None:
                    call()
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClientClosed("this client was closed meanwhile") from None
        except BaseException:
            future.cancel()
            raise
        finally:
            self._wait_no_more(calls)

    def _wait_with(self, calls: Calls) -> None:
        with self._lock:
            self._waiting.append(calls)
            left, self._left = self._left, []
        for call in left:
            calls.put(call)

    def _wait_no_more(self, calls: Calls) -> None:
        with self._lock:
            self._waiting.remove(calls)
        while not calls.empty():
            call = calls.get()
            if call is not None:
                self._hand_over(call)

    def _hand_over(self, call: Callable[[], None]) -> None:
        """Have a function called by the thread that has begun to wait last, else by the next that waits."""
        with self._lock:
            if self._waiting:
                self._waiting[-1].put(call)
            else:
                self._left.append(call)

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

        self._hand_over(call)
        return await outcome

    def _tell(self, function: Callable[[], None]) -> None:
        """Have a short function called on the loop; once this has begun, no interrupt keeps it from being called."""
        if self._closed or os.getpid() != self._process:
            return
        done = threading.Event()

        def call_it() -> None:
            function()
            done.set()

        self._loop.call_soon_threadsafe(call_it)
        done.wait(TELL_S)

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("this client is closed")
        if os.getpid() != self._process:
            raise ClientClosed(AFTER_FORK)

    def _check(self) -> None:
        self._check_open()
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
            self.run(_cancel_others())
            self._stop_loop()

    async def _close(self, timeout: float | None) -> None:
        await self._client.close()

    def _close_at_exit(self) -> None:
        """The interpreter ends, and nobody has closed this client."""
        self.close(timeout=AT_EXIT_S)

    def _stop_loop(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        self.close()


async def _cancel_others() -> None:
    """Other threads may still wait here: nobody waits for ever."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def call(make: Callable[[], T]) -> T:
    """Call a function on the loop."""
    return make()


@atexit.register
def _close_all() -> None:
    for client in list(_open_clients):
        client._close_at_exit()
