"""Flushes what a roll has closed, so that a recovery after a crash need not look at it (as Kafka does).

One thread for each log directory, and only while it has something to do: a slow disk holds up nobody but itself. Many
rolls of a log that waits are one flush.
"""

from __future__ import annotations

import logging
import threading

from kbroker.protocol.errors import KafkaError
from kbroker.segment.log import Log

log = logging.getLogger(__name__)


class BackgroundFlush:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Guards what follows; a log's lock may be held by who takes it."""
        self._waiting: dict[str, dict[Log, None]] = {}
        """By log directory, in order."""
        self._threads: dict[str, threading.Thread] = {}
        self._closed = False

    def add(self, rolled: Log) -> None:
        """Flush the log's closed segments soon."""
        log_dir = rolled.log_dir
        with self._lock:
            if self._closed:
                return
            self._waiting.setdefault(log_dir, {})[rolled] = None
            if log_dir in self._threads:
                return
            thread = threading.Thread(target=self._run, args=(log_dir,), name=f"flush-{log_dir}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # too many threads: the next roll tries again
                log.warning("segments of %s are not flushed: %s", log_dir, error)
            else:
                self._threads[log_dir] = thread

    def _run(self, log_dir: str) -> None:
        while (rolled := self._next(log_dir)) is not None:
            try:
                rolled.flush_rolled()
            except KafkaError as error:  # the log has told so, or was deleted
                log.debug("%s", error.message)
            except Exception:
                log.exception("%s: its closed segments are not flushed", rolled.name)

    def _next(self, log_dir: str) -> Log | None:
        with self._lock:
            waiting = self._waiting[log_dir]
            if not waiting or self._closed:
                del self._threads[log_dir]
                return None
            rolled = next(iter(waiting))
            del waiting[rolled]
            return rolled

    def finish(self) -> None:
        """Wait until nothing waits any more."""
        while threads := list(self._threads.values()):
            for thread in threads:
                thread.join()

    def close(self) -> None:
        """Take on nothing more, and wait for the flushes under way; a shutdown flushes the rest."""
        with self._lock:
            self._closed = True
        self.finish()
