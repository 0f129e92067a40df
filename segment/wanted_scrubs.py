"""Scrubs that somebody wants now, beside the rounds that come by themselves (scrubber.py).

Who wants one chooses an id for it and asks under that id until it is over: the first question begins it, each one tells
how far it is, and one that is not asked about for a minute is given up. They are worked off one after the other, at the
rate of the other rounds, in a thread that is there only while there is something to do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Set

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.segment.log import Log
from kbroker.segment.log_manager import LogManager
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.scrubber import Damage, LogScrubber

MOST = 16
"""That are under way at a time."""
MOST_KNOWN = 64
"""With those that are over, and are told of still."""
PATIENCE_S = 60.0
MOST_DAMAGES = 10_000
"""That are told of one."""

Topics = Mapping[str, Set[int]]
"""Topic -> partitions."""


class WantedScrub:
    """One of them, and how far it is."""

    __slots__ = ("asked_s", "bytes", "checked_bytes", "checked_segments", "damages", "is_over", "places", "segments")

    def __init__(self, places: list[tuple[Log, LogSegment]], now_s: float) -> None:
        self.places = places
        self.segments = len(places)
        self.bytes = sum(segment.size for _, segment in places)
        self.checked_segments = self.checked_bytes = 0
        self.damages: list[Damage] = []
        self.asked_s = now_s
        """When it was asked about last."""
        self.is_over = not places


class WantedScrubs:
    """Thread-safe; to be stopped."""

    def __init__(self, logs: LogManager, scrubber: LogScrubber, clock: Callable[[], float] = time.monotonic) -> None:
        self._logs = logs
        self._scrubber = scrubber
        self._clock = clock
        self._lock = threading.Lock()
        """Guards what follows."""
        self._known: dict[bytes, WantedScrub] = {}
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def ask(self, scrub_id: bytes, topics: Topics | None) -> WantedScrub:
        """Begin the scrub of that id, of all closed segments of some logs (None: of all), or tell how far it is.

        Raises KafkaError THROTTLING_QUOTA_EXCEEDED when too many are under way.
        """
        with self._lock:
            now = self._clock()
            known = self._known.get(scrub_id)
            if known is None:
                self._make_room(now)
                known = self._known[scrub_id] = WantedScrub(self._places(topics), now)
                if self._thread is None and not known.is_over and not self._stopping.is_set():
                    self._thread = threading.Thread(target=self._run, name="wanted-scrubs")
                    self._thread.start()
            known.asked_s = now
            return known

    def _make_room(self, now: float) -> None:
        for scrub_id, known in list(self._known.items()):
            if now - known.asked_s > PATIENCE_S:
                del self._known[scrub_id]
        over = sorted((known.asked_s, scrub_id) for scrub_id, known in self._known.items() if known.is_over)
        if len(self._known) - len(over) >= MOST:
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{MOST} scrubs are under way here: wait for one to end"
            )
        if len(self._known) >= MOST_KNOWN:
            del self._known[over[0][1]]

    def _places(self, topics: Topics | None) -> list[tuple[Log, LogSegment]]:
        logs = [
            each
            for each in list(self._logs.logs.values())
            if topics is None or each.partition in topics.get(each.topic, ())
        ]
        return [(each, segment) for each in logs for segment in each.segments[:-1]]

    def _run(self) -> None:
        while (wanted := self._next()) is not None:
            for owner, segment in wanted.places:
                if self._stopping.is_set() or self._clock() - wanted.asked_s > PATIENCE_S:
                    break
                is_read, damage = self._scrubber.look_at(owner, segment, self._stopping)
                damage = damage or self._scrubber.look_behind(owner, segment)
                if damage is not None and len(wanted.damages) < MOST_DAMAGES:
                    wanted.damages.append(damage)
                if is_read:
                    wanted.checked_segments += 1
                    wanted.checked_bytes += segment.size
            wanted.places = []  # holds on to logs that may go
            wanted.is_over = True

    def _next(self) -> WantedScrub | None:
        with self._lock:
            waiting = (each for each in self._known.values() if not each.is_over)
            found = None if self._stopping.is_set() else next(waiting, None)
            if found is None:
                self._thread = None
            return found

    def stop(self) -> None:
        """Give all up; blocks until the thread has ended."""
        self._stopping.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()
