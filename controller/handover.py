"""From the threads of a library to the loop: calls, and answers to requests."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)


class Reply:
    """What kazoo fills in on its thread, and the future on the loop that gets it."""

    __slots__ = ("future", "session")

    def __init__(self, session: Handover, future: asyncio.Future[Any]) -> None:
        self.session = session
        self.future = future

    def set(self, value: Any) -> None:
        """This is the answer."""
        self.session.put(self._resolve, value)

    def set_exception(self, error: BaseException) -> None:
        """There is none, for this reason."""
        self.session.put(self._reject, error)

    def _resolve(self, value: Any) -> None:
        if not self.future.done():
            self.future.set_result(value)

    def _reject(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Handover:
    """Calls from kazoo's threads to the loop, in order; one wake-up for all that wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._lock = threading.Lock()
        self._is_scheduled = False

    def put(self, function: Callable[[Any], None], argument: Any) -> None:
        """Call the function on the loop; from any thread."""
        with self._lock:
            self._calls.append((function, argument))
            if self._is_scheduled:
                return
            self._is_scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._run)
        except RuntimeError:  # the loop is closed: nobody is left to hear it
            self._calls.clear()

    def _run(self) -> None:
        with self._lock:
            calls = list(self._calls)
            self._calls.clear()
            self._is_scheduled = False
        for function, argument in calls:
            try:
                function(argument)
            except Exception:  # those behind it are answers that others wait for
                log.exception("what ZooKeeper's client told was not taken in")
