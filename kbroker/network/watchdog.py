"""Says what held the event loop up: which API, or which chore, and where in the code.

One loop serves all clients, so work on it is bounded. Where a bound is missing, all of them wait; this module makes
that visible instead of mysterious. It costs two looks at the clock for each turn of the loop, and a thread that wakes
some ten times a second: it looks at the loop's stack only when a turn takes long already.

    turn    select returns · callbacks run · select is called again
    stall   a turn of more than STALL_S
"""

from __future__ import annotations

import asyncio
import logging
import selectors
import sys
import threading
import time
from collections import Counter, deque
from time import monotonic
from types import FrameType
from typing import NamedTuple

from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.distribution import Distribution

log = logging.getLogger(__name__)

STALL_S = 0.1
SUSPICIOUS_S = 0.04
"""A turn that has taken as long is looked at: what runs now is most likely what takes the time."""
NOTED_S = 0.005
TURN_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
BUSY_PAUSE_S, IDLE_PAUSE_S = 0.05, 0.15
LOG_PAUSE_S = 1.0
MOST_FRAMES = 5
MOST_NAMES = 200
"""How many different culprits are counted; there are fewer APIs and chores."""
UNSEEN = "something unseen"


class Turn(NamedTuple):
    """A turn of the loop that took too long."""

    begun: float
    seconds: float


class WatchedSelector(selectors.DefaultSelector):
    """The loop's selector, which knows since when the loop is at work."""

    def __init__(self) -> None:
        super().__init__()
        self.busy_since = 0.0
        """By the monotonic clock; 0 while the loop waits."""
        self.stalls: deque[Turn] = deque(maxlen=1000)
        self.busy_s = 0.0
        """In all turns that are over."""
        self.turns = 0
        self.long_turns = Distribution(TURN_BOUNDS_S)
        """Those of more than NOTED_S."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events; what happens between two calls is a turn."""
        if self.busy_since:
            seconds = monotonic() - self.busy_since
            self.busy_s += seconds
            self.turns += 1
            if seconds > NOTED_S:
                self.long_turns.add(seconds)
                if seconds > STALL_S:
                    self.stalls.append(Turn(self.busy_since, seconds))
        self.busy_since = 0.0
        events = super().select(timeout)
        self.busy_since = monotonic()
        return events


class Watchdog:
    """A thread that watches a loop until it is stopped.

    watchdog = Watchdog()
    with asyncio.Runner(loop_factory=watchdog.new_loop) as runner: ...
    """

    def __init__(self) -> None:
        self.stalls = 0
        self.stalled_s = 0.0
        self.by_name: Counter[str] = Counter()
        """API or chore -> how often it held the loop up."""
        self.selector = WatchedSelector()
        self._loop_thread = 0
        self._seen: dict[float, tuple[str, str]] = {}
        """Begin of a turn -> who was seen at work in it, and where."""
        self._worst: tuple[float, str, str] | None = None
        self._told = 0
        self._next_line = 0.0
        self._stopped = False

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """Return a loop for the calling thread, watched from now on."""
        self._loop_thread = threading.get_ident()
        threading.Thread(target=self._watch, name="loop-watchdog", daemon=True).start()
        return asyncio.SelectorEventLoop(self.selector)

    def stop(self) -> None:
        """End the thread soon."""
        self._stopped = True

    def _watch(self) -> None:
        selector, sleep = self.selector, time.sleep
        while not self._stopped:
            since = selector.busy_since
            if not since and not selector.stalls and self._worst is None:
                sleep(IDLE_PAUSE_S)
                continue
            if since and monotonic() - since > SUSPICIOUS_S:
                self._look(since)
            while selector.stalls:
                self._count(selector.stalls.popleft())
            self._seen = {begun: who for begun, who in self._seen.items() if begun == since}
            self._tell()
            sleep(BUSY_PAUSE_S)

    def _look(self, since: float) -> None:
        """See who is at work in a turn, and let go of the stack at once: it holds all that those work with."""
        frame = sys._current_frames().get(self._loop_thread)
        if frame is not None and self.selector.busy_since == since:
            self._seen[since] = culprit(frame)

    def _count(self, turn: Turn) -> None:
        name, where = self._seen.get(turn.begun, (UNSEEN, ""))
        self.stalls += 1
        self.stalled_s += turn.seconds
        if name in self.by_name or len(self.by_name) < MOST_NAMES:
            self.by_name[name] += 1
        if self._worst is None or turn.seconds > self._worst[0]:
            self._worst = turn.seconds, name, where

    def _tell(self) -> None:
        """Log the worst stall since the last line, at most one line a second."""
        if self._worst is None or monotonic() < self._next_line:
            return
        seconds, name, where = self._worst
        others = self.stalls - self._told - 1
        more = f"; {others} shorter stalls before" if others else ""
        log.warning("the event loop was held up for %.0f ms by %s%s%s", seconds * 1000, name, where, more)
        self._worst, self._told, self._next_line = None, self.stalls, monotonic() + LOG_PAUSE_S


def culprit(frame: FrameType | None) -> tuple[str, str]:
    """Return the name of the API or chore that a stack is at work for, and the place in our code, innermost first."""
    places: list[str] = []
    name = UNSEEN
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("kbroker."):
            api = _api_name(frame, module)
            if api is not None:
                return api, _where(places)
            name = f"{module.removeprefix('kbroker.')}.{frame.f_code.co_qualname}"
            if module != __name__:
                places.append(f"{name}:{frame.f_lineno}")
        frame = frame.f_back
    return name, _where(places)


def _where(places: list[str]) -> str:
    return f" ({' < '.join(places[:MOST_FRAMES])})" if places else ""


def _api_name(frame: FrameType, module: str) -> str | None:
    """Return the API whose request a frame of dispatch serves, or that a handler's frame is for."""
    if module == "kbroker.network.dispatch" and frame.f_code.co_qualname in ("Dispatcher.__call__", "_Finish.__call__"):
        found = frame.f_locals
        key = found.get("key", getattr(getattr(found.get("self"), "ctx", None), "api_key", None))
        return API_BY_KEY[key].name if key in API_BY_KEY else None
    if module.startswith("kbroker.handlers."):
        key = getattr(frame.f_locals.get("ctx"), "api_key", None)
        return API_BY_KEY[key].name if key in API_BY_KEY else None
    return None
