"""Whether the disk of a log directory keeps up, as far as those who write there have noticed.

A write goes into the page cache and a name into a journal, in microseconds, until the disk is so far behind that the
kernel makes whoever comes wait. One call that took long is a sign that others will: for a minute from then on, and
while one is under way, who must not wait (the broker's event loop) leaves the directory to threads. Not by how long a
sync takes: that is always long, and nobody waits for it who must not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SLOW_S = 0.1
REMEMBERED_S = 60.0


class DiskPace:
    """One directory's. Thread-safe."""

    __slots__ = ("_noting", "_slow_until", "signs")

    def __init__(self) -> None:
        self.signs: dict[object, float] = {}
        """Nothing: the disk is not slow. Else whatever is under way that is timed from its beginning, with that moment,
        and what is remembered: look at `is_slow`."""
        self._slow_until = 0.0
        self._noting = threading.Lock()

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Note how long something takes that makes, renames, removes or replaces a file."""
        key = object()
        begun = self.signs[key] = time.monotonic()
        try:
            yield
        finally:
            del self.signs[key]
            self.note(begun)

    def note(self, begun: float) -> None:
        """Something that began then has ended now."""
        now = time.monotonic()
        if now - begun >= SLOW_S:
            with self._noting:
                self._slow_until = now + REMEMBERED_S
                self.signs[self] = now

    @property
    def is_slow(self) -> bool:
        """Whether a call that writes may well have to wait for the disk."""
        if not self.signs:
            return False
        now = time.monotonic()
        if now < self._slow_until:
            return True
        with self._noting:
            if now >= self._slow_until:
                self.signs.pop(self, None)
        return any(now - begun >= SLOW_S for begun in list(self.signs.values()))
