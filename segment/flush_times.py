"""How long segments take to reach the disk: Kafka's LogFlushRateAndTimeMs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from kbroker.protocol.distribution import Distribution


class FlushTimes:
    """Of all logs of a broker, in milliseconds. Thread-safe."""

    def __init__(self) -> None:
        self.distribution = Distribution()
        self._lock = threading.Lock()

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count what is done meanwhile as one flush, unless it fails."""
        begun = perf_counter()
        yield
        milliseconds = (perf_counter() - begun) * 1000
        with self._lock:
            self.distribution.add(milliseconds)
