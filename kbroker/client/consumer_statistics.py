"""What a consumer says about itself, under the names of Java's consumer metrics (with underscores).

    records_consumed_total, bytes_consumed_total, fetch_total     so far: decoded records, bytes and answers fetched
    records_consumed_rate, bytes_consumed_rate, fetch_rate        per second, in about the last 30 s
    records_lag, records_lag_max     offsets not given yet, as the last answers said: {partition: lag}, and the largest
    positions, assigned_partitions, paused_partitions             {partition: next offset to give}; how many there are
    buffered_bytes                                                fetched, and not decoded yet
    group_state, rebalance_total, last_rebalance_seconds_ago, commit_total, last_poll_seconds_ago        in a group

Seconds ago are None where it has not happened.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from kbroker.client.assignment import Assignment

WINDOW_S = 30.0
SAMPLE_S = 1.0


class Meter:
    """Totals that grow, and how fast they did: a sample every second is kept."""

    def __init__(self, now: float, totals: tuple[int, ...]) -> None:
        self._samples: deque[tuple[float, tuple[int, ...]]] = deque([(now, totals)])

    def note(self, now: float, totals: tuple[int, ...]) -> None:
        """Keep a sample if the last is old enough, and one from before the window."""
        samples = self._samples
        if now - samples[-1][0] >= SAMPLE_S:
            samples.append((now, totals))
        while len(samples) > 1 and samples[1][0] <= now - WINDOW_S:
            samples.popleft()

    def rates(self, now: float, totals: tuple[int, ...]) -> tuple[float, ...]:
        """Return the growth of each total per second since the oldest sample."""
        self.note(now, totals)
        began, before = self._samples[0]
        seconds = max(now - began, 0.001)
        return tuple((total - first) / seconds for total, first in zip(totals, before, strict=True))


def of_partitions(assignment: Assignment) -> dict[str, Any]:
    """Return positions and what is behind them."""
    positions = assignment.positions()
    lag = {
        key: max(0, state.end_offset - positions[key])
        for key, state in assignment.states.items()
        if state.end_offset >= 0 and positions[key] >= 0
    }
    return {
        "positions": positions,
        "records_lag": lag,
        "records_lag_max": max(lag.values(), default=0),
        "assigned_partitions": len(positions),
        "paused_partitions": len(assignment.paused),
        "buffered_bytes": assignment.buffered_bytes,
    }


def seconds_ago(then: float | None, now: float) -> float | None:
    """Return how long ago something was."""
    return None if then is None else now - then
