"""One heap for the deadlines of all groups, and one timer of the event loop for its top.

A group's `deadline` only tells when to look at it next: heartbeats move their members' deadlines without a word to the
heap, and `tick` finds out. An entry whose group was scheduled anew meanwhile is skipped when it comes up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from time import monotonic
from typing import Generic, Protocol, TypeVar

from kbroker.coordinator.member import NEVER
from kbroker.replica.turns import TURN_S


class Timed(Protocol):
    """What has a deadline."""

    deadline: int
    scheduled_at: int


T = TypeVar("T", bound=Timed)


class GroupTimers(Generic[T]):
    """Calls `fire(group)` at or soon after each scheduled group's deadline."""

    def __init__(self, clock: Callable[[], int], fire: Callable[[T], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._heap: list[tuple[int, int, T]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = NEVER

    def schedule(self, group: T) -> None:
        """See to it that the group is looked at when its deadline comes."""
        deadline = group.deadline
        if deadline < group.scheduled_at:
            group.scheduled_at = deadline
            heappush(self._heap, (deadline, next(self._numbers), group))
            if deadline < self._armed_for:
                self._arm()

    def run_due(self) -> None:
        """Fire for groups whose time has come, as many as fit into a turn of the loop; set the timer for the next."""
        now = self._clock()
        heap = self._heap
        ends = monotonic() + TURN_S
        while heap and heap[0][0] <= now and monotonic() < ends:
            deadline, _, group = heappop(heap)
            if group.scheduled_at == deadline:
                group.scheduled_at = NEVER
                self._fire(group)
        self._arm()

    def close(self) -> None:
        """Fire no more."""
        self._heap.clear()
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._armed_for = self._heap[0][0] if self._heap else NEVER
        if self._heap:
            # A millisecond more than the rest: the loop's clock is finer than ours, and too early would be in vain.
            wait_s = max(self._armed_for - self._clock(), 0) / 1000 + 0.001
            self._timer = asyncio.get_running_loop().call_later(wait_s, self.run_due)
