"""How much is too much, and for how long to wait then: the arithmetic of Kafka's quotas. Pure: the time is passed."""

from __future__ import annotations

from collections import deque

LONGEST_MS = (1 << 31) - 1
"""Of a delay: what answers have room for."""


class Rate:
    """What is counted per second, over the last `samples` samples of `sample_ms` each."""

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._samples: deque[_Sample] = deque(maxlen=samples + 1)
        self._count = samples
        self._sample_ms = sample_ms

    def record(self, value: float, now_ms: float) -> None:
        """Count something; less than nothing takes back what was counted."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._sample_ms:
            samples.append(_Sample(now_ms))
        samples[-1].total += value
        samples[-1].last_ms = now_ms

    def delay_ms(self, limit: float, now_ms: float) -> int:
        """Return for how long whoever went over the limit has to wait, until the rate is within it; 0 where it is."""
        length_ms = self._count * self._sample_ms
        total, oldest_ms = 0.0, now_ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= length_ms:
                sample.start_ms, sample.total = now_ms, 0.0
            total += sample.total
            oldest_ms = min(oldest_ms, sample.start_ms)
        elapsed_ms = now_ms - oldest_ms
        whole = elapsed_ms // self._sample_ms
        if whole < self._count - 1:
            elapsed_ms += (self._count - 1 - whole) * self._sample_ms
        window_ms = max(elapsed_ms, 1)
        rate = total * 1000 / window_ms
        if rate <= limit:
            return 0
        return round(min((rate - limit) / limit * window_ms, LONGEST_MS)) if limit > 0 else round(window_ms)


class _Sample:
    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, now_ms: float) -> None:
        self.start_ms = now_ms
        self.last_ms = now_ms
        self.total = 0.0


class TokenBucket:
    """So much per second, saved up to `burst_s` seconds' worth; it may be overdrawn, and is then filled up first."""

    def __init__(self, burst_s: float) -> None:
        self._burst_s = burst_s
        self._tokens: float | None = None
        self._as_of_ms = 0.0

    def tokens(self, limit: float, now_ms: float) -> float:
        """Return what may be taken; it begins full."""
        most = limit * self._burst_s
        if self._tokens is None:
            self._tokens = most
        else:
            self._tokens = min(most, self._tokens + limit * (now_ms - self._as_of_ms) / 1000)
        self._as_of_ms = now_ms
        return self._tokens

    def take(self, count: float, limit: float, now_ms: float) -> None:
        """Take it, whatever is there."""
        self._tokens = self.tokens(limit, now_ms) - count

    def delay_ms(self, limit: float, now_ms: float) -> int:
        """Return for how long to wait until nothing is owed."""
        owed = -self.tokens(limit, now_ms)
        return round(min(owed / limit * 1000, LONGEST_MS)) if owed > 0 and limit > 0 else 0
