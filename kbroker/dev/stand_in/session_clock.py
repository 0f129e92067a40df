"""When sessions expire that nobody hears of (pure: the time is passed in, and never goes back)."""

from __future__ import annotations

import heapq


class SessionClock:
    """The deadlines of all sessions."""

    def __init__(self) -> None:
        self._deadlines: dict[int, int] = {}
        self._queue: list[tuple[int, int]] = []
        """(no later than the deadline, session): looked at again when it comes up."""

    def heard_of(self, session_id: int, timeout_ms: int, now_ms: int) -> None:
        """Begin the time of a session, or begin it anew."""
        is_new = session_id not in self._deadlines
        deadline = now_ms + timeout_ms
        is_sooner = not is_new and deadline < self._deadlines[session_id]
        self._deadlines[session_id] = deadline
        if is_new or is_sooner:
            heapq.heappush(self._queue, (deadline, session_id))

    def forget(self, session_id: int) -> None:
        """End a session's time."""
        self._deadlines.pop(session_id, None)

    def expired(self, now_ms: int) -> list[int]:
        """Return, and forget, the sessions whose time is up, the longest overdue first."""
        ended = []
        while self._queue and self._queue[0][0] <= now_ms:
            session_id = heapq.heappop(self._queue)[1]
            deadline = self._deadlines.get(session_id)
            if deadline is None:
                continue
            if deadline > now_ms:
                heapq.heappush(self._queue, (deadline, session_id))
            else:
                del self._deadlines[session_id]
                ended.append(session_id)
        return ended

    def next_look_ms(self) -> int | None:
        """Return when `expired` may have something to tell at the earliest; None without sessions."""
        return self._queue[0][0] if self._queue else None
