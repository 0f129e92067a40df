"""How long the event loop had nothing to do: since somebody first asked, and its share of the last minute."""

from __future__ import annotations

from collections import deque

WINDOW_S = 60.0
SHORTEST_S = 1.0
"""Between two notes."""


class LoopIdle:
    """Remembers how busy the loop was when somebody last asked."""

    def __init__(self) -> None:
        self._notes: deque[tuple[float, float]] = deque()
        self._first: tuple[float, float] | None = None
        self._idle_s = 0.0

    def idle_s(self, now: float, busy_s: float) -> float:
        """Return the seconds since the first question in which it was not busy; never less than was told before."""
        if self._first is None:
            self._first = now, busy_s
        then, busy_then = self._first
        self._idle_s = max(self._idle_s, (now - then) - (busy_s - busy_then))
        return self._idle_s

    def share(self, now: float, busy_s: float) -> float:
        """Return the idle share since a minute ago, or since the first question; `busy_s`: of the loop's whole life."""
        notes = self._notes
        while len(notes) > 1 and notes[1][0] <= now - WINDOW_S:
            notes.popleft()
        share = 1.0
        if notes:
            then, busy_then = notes[0]
            if now > then:
                share = 1 - (busy_s - busy_then) / (now - then)
        if not notes or now - notes[-1][0] >= SHORTEST_S:
            notes.append((now, busy_s))
        return min(max(share, 0.0), 1.0)
