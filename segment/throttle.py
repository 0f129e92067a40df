"""Holds several threads together to a rate of bytes per second."""

from __future__ import annotations

import threading
import time

_SLACK_S = 0.1
"""Shorter pauses are saved up."""


class Throttle:
    """Thread-safe."""

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._lock = threading.Lock()
        self._paid_until = time.monotonic()
        """When the bytes taken so far would all have passed at the rate."""

    def take(self, size: int, stopping: threading.Event) -> None:
        """Count bytes; wait, at most until `stopping` is set, when that was too fast."""
        with self._lock:
            now = time.monotonic()
            self._paid_until = max(self._paid_until, now) + size / self.bytes_per_second
            ahead = self._paid_until - now
        if ahead > _SLACK_S:
            stopping.wait(min(ahead, threading.TIMEOUT_MAX))
