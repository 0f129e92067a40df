"""A connection whose client has used more than it may is not read for a while (KIP-219).

The answer tells the client for how long and goes out at once; what it sends meanwhile waits in its socket, or where it
lies already. Answers that come later go out all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

CLOCK_S = 0.001
"""Timers of the loop may be as early."""


class Muting:
    """Until when a connection is not read."""

    __slots__ = ("_loop", "_over", "_timer", "until")

    def __init__(self, loop: asyncio.AbstractEventLoop, over: Callable[[], object]) -> None:
        """`over`: called when it may be read again."""
        self._loop = loop
        self._over = over
        self._timer: asyncio.TimerHandle | None = None
        self.until = 0.0
        """Loop time; 0: it is read."""

    def extend(self, seconds: float) -> None:
        """Do not read it for so long from now on."""
        self.until = max(self.until, self._loop.time() + seconds)
        self.cancel()
        self._timer = self._loop.call_at(self.until, self._over)

    def cancel(self) -> None:
        """Nothing is to be called: it may be for hours, and hold a connection that has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def is_on(self) -> bool:
        """Whether the time is not over."""
        if self.until and self._loop.time() + CLOCK_S >= self.until:
            self.until = 0.0
        return self.until > 0
