"""What the blocking clients have in common: an asyncio client on a loop in a background thread.

One thread with one loop per client, started by the constructor, ended by `close`, which `with` calls too. A client that
is still open when the interpreter ends, its threads that are no daemons included, is closed then, within EXIT_S for all
of them; one that is collected without having been closed warns, is closed behind the scenes and ends its thread. A
client belongs to the process that made it: a forked child gets an error instead of answers meant for its parent.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # its hook at the interpreter's end is there before ours, and so runs after it
import logging
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kbroker.client.errors import AFTER_FORK, ClientClosed, IllegalState
from kbroker.client.waiting_threads import WaitingThreads, tell_loop

T = TypeVar("T")

log = logging.getLogger(__name__)

EXIT_S = 5.0
"""How long open clients may take to send and commit what they have when the interpreter ends."""

TELL_S = 1.0
"""How long is waited for a word to the loop."""

_open_clients: weakref.WeakSet[Client] = weakref.WeakSet()
_left_behind: set[threading.Thread] = set()
"""Threads of collected clients that are still being closed."""
_closings: set[asyncio.Task[None]] = set()
"""Loops hold their tasks weakly."""


class Client:
    """A background loop and the asyncio client that lives on it."""

    _closed = True
    """As long as the constructor has not come far."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._callers = WaitingThreads(self._loop)
        self._closing = threading.RLock()
        self._is_closing = False
        self._end_of_loop: asyncio.Future[None] = self._loop.create_future()
        thread_of = (self._loop, self._end_of_loop)
        self._thread = threading.Thread(target=_serve, args=thread_of, name="kbroker-client", daemon=True)
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
        try:
            self._callers.wait(future)
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClientClosed("this client was closed meanwhile") from None
        except BaseException:
            future.cancel()
            raise

    def _tell(self, function: Callable[[], None]) -> None:
        """Have a short function called on the loop; once this has begun, no interrupt keeps it from being called."""
        if self._closed or os.getpid() != self._process:
            return
        done = threading.Event()

        def call_it() -> None:
            function()
            done.set()

        if tell_loop(self._loop, call_it):
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
            raise IllegalState(f"{text}: call the client from another one")

    def close(self, timeout: float | None = 30.0) -> None:
        """Close the client and end its thread; safe to call again, also while another thread closes it."""
        self._end(self._close, timeout)

    def _close_at_exit(self, timeout: float) -> None:
        """The interpreter ends, and nobody has closed this client."""
        self._end(self._close_left, timeout)

    def _end(self, closing: Callable[[float | None], Coroutine[Any, Any, None]], timeout: float | None) -> None:
        if self._closed or os.getpid() != self._process:
            return
        self._check()
        if not self._closing.acquire(timeout=-1 if timeout is None else timeout + EXIT_S):
            raise IllegalState("another thread is closing this client and has not finished")
        try:
            if self._closed or self._is_closing:
                return
            self._is_closing = True
            try:
                self.run(closing(timeout))
            finally:
                self.run(_cancel_others())
                self._stop_loop()
        finally:
            self._closing.release()

    async def _close(self, timeout: float | None) -> None:
        await self._client.close()

    async def _close_left(self, timeout: float | None) -> None:
        """Close a client whose user has not."""
        await self._close(timeout)

    def _stop_loop(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._end_of_loop.set_result, None)
        self._thread.join()

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._closed or os.getpid() != self._process:
            return
        self._closed = True
        # This may be any thread, the client's own too: nothing is waited for here.
        _left_behind.add(self._thread)
        self._loop.call_soon_threadsafe(_close_left_behind, self._end_of_loop, self._close_left(EXIT_S))
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        warnings.warn(f"a {name} was never closed: use `with`, or call close()", ResourceWarning, 2, self)


def _serve(loop: asyncio.AbstractEventLoop, end: asyncio.Future[None]) -> None:
    """Run a client's loop to its end, which only closing the client brings: others wait for what it does."""
    try:
        while not end.done():
            try:
                loop.run_until_complete(end)
            except (SystemExit, KeyboardInterrupt):  # with them whatever ran leaves the loop, too
                log.exception("what a client's thread was given to call wanted to end the program, and cannot")
    finally:
        loop.close()
        _left_behind.discard(threading.current_thread())


def _close_left_behind(end: asyncio.Future[None], closing: Coroutine[Any, Any, None]) -> None:
    """Close a client that nobody holds any more, then end its loop."""

    async def close() -> None:
        try:
            async with asyncio.timeout(2 * EXIT_S):
                await closing
        except Exception:
            log.exception("a client that was never closed could not be closed")
        finally:
            await _cancel_others()
            end.set_result(None)

    task = asyncio.get_running_loop().create_task(close())
    _closings.add(task)
    task.add_done_callback(_closings.discard)


async def _cancel_others() -> None:
    """Other threads may still wait here: nobody waits for ever."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def call(make: Callable[[], T]) -> T:
    """Call a function on the loop."""
    return make()


def _close_all() -> None:
    """Close what is open when the interpreter ends: threads and executors must still be there for that."""
    deadline = time.monotonic() + EXIT_S
    for client in list(_open_clients):
        try:
            client._close_at_exit(max(0.1, deadline - time.monotonic()))
        except Exception:
            log.exception("a client that was open at the interpreter's end could not be closed")
    for thread in list(_left_behind):
        thread.join(max(0.1, deadline - time.monotonic()))


def _others_at_work() -> list[threading.Thread]:
    """Return threads of the program that Python waits for next; those of executors end when they are told."""
    ending = (threading.main_thread(), threading.current_thread())
    idle = concurrent.futures.thread._threads_queues
    return [each for each in threading.enumerate() if not (each.daemon or each in ending or each in idle)]


def _ends_without_atexit() -> bool:
    """Whether this is a process that multiprocessing has forked: nothing is called when its last thread has ended."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is None or processes.parent_process() is None:
        return False
    how = getattr(processes.current_process(), "_start_method", None)  # None: as the program has it
    return bool((how or sys.modules["multiprocessing"].get_start_method()) != "spawn")


def _main_thread_ends() -> None:
    if not _others_at_work():
        _close_all()
    elif _ends_without_atexit():
        threading.Thread(target=_close_behind_others, name="kbroker-end").start()


def _close_behind_others() -> None:
    """In a thread that Python waits for, too: the others may use clients to their end, and wait for the main one's."""
    while others := _others_at_work():
        others[0].join()
    _close_all()


# Functions registered with `atexit` run when executors take no work any more: resolving a name and compressing a large
# batch would have one, and do without. concurrent.futures uses the hook here (Python 3.9 to 3.14); the last registered
# is called first. New threads cannot be had even here in Python 3.12: sender and connection do without.
threading._register_atexit(_main_thread_ends)  # type: ignore[attr-defined]
atexit.register(_close_all)
