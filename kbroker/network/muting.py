"""A connection whose client has used more than it may is not read for a while (KIP-219).

The answer tells the client for how long and goes out at once; what it sends meanwhile waits in its socket, or where it
lies already. Answers that come later go out all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

CLOCK_S = 0.001
"""Timers of the loop may be as early."""


class Muting:
    """Until when a connection is not read."""

    __slots__ = ("_loop", "until")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.until = 0.0
        """Loop time; 0: it is read."""

    def extend(self, seconds: float) -> float:
        """Do not read it for so long from now on; returns the loop time at which to look again."""
        self.until = max(self.until, self._loop.time() + seconds)
        return self.until

    def is_on(self) -> bool:
        """Whether the time is not over."""
        if self.until and self._loop.time() + CLOCK_S >= self.until:
            self.until = 0.0
        return self.until > 0
