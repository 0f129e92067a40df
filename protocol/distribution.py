"""Values counted by size: what a histogram costs while it is filled, and the quantiles that a reader takes of it.

    bounds   0.01 ms · each a quarter larger than the one before · more than an hour

Whoever counts does one look-up in a table; whoever reads compares with what was counted some minutes ago.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

RATIO = 1.25
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
WINDOW_S = 300.0
SLICE_S = 60.0


def _bounds(lowest: float, ratio: float, count: int) -> tuple[float, ...]:
    return tuple(lowest * ratio**place for place in range(count))


BOUNDS_MS = _bounds(0.01, RATIO, 90)
BOUNDS_BYTES = _bounds(8.0, RATIO, 75)


class Distribution:
    """Counts by size. `add` is for one thread; `quantiles` for one other."""

    __slots__ = ("_before", "_next_slice", "bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = BOUNDS_MS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """By bound, the last of what is larger than all."""
        self.sum = 0.0
        self._before: deque[tuple[float, list[int]]] = deque()
        """Earlier counts, the oldest first."""
        self._next_slice = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value; `times` it, when only one in so many is looked at."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        """How many were counted."""
        return sum(self.counts)

    def quantiles(self, now: float, wanted: Sequence[float] = QUANTILES) -> list[float]:
        """Return quantiles of what came in the last minutes (of all, when nothing came); zeros when nothing ever did.

        `now` in seconds. Each is right to some ten percent.
        """
        counts = list(self.counts)
        recent = counts
        while len(self._before) > 1 and self._before[1][0] <= now - WINDOW_S:
            self._before.popleft()
        if self._before:
            recent = [after - before for after, before in zip(counts, self._before[0][1], strict=True)]
        if now >= self._next_slice:
            self._before.append((now, counts))
            self._next_slice = now + SLICE_S
        if not any(recent):
            recent = counts
        return [self._quantile(recent, each) for each in wanted]

    def _quantile(self, counts: Sequence[int], quantile: float) -> float:
        total = sum(counts)
        if not total:
            return 0.0
        rank = quantile * total
        place, reached = 0, counts[0]
        while reached < rank or not counts[place]:
            place += 1
            reached += counts[place]
        count = counts[place]
        upper = self.bounds[min(place, len(self.bounds) - 1)]
        lower = self.bounds[place - 1] if place else 0.0
        share = 1 - (reached - rank) / count
        return lower + (upper - lower) * share
