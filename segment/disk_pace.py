"""Whether the disk of a log directory keeps up, as far as those who write there have noticed.

A write goes into the page cache and a name into a journal, in microseconds, until the disk is so far behind that the
kernel makes whoever comes wait. One call that took long is a sign that others will: for a minute from then on, and
while one is under way, who must not wait (the broker's event loop) leaves the directory to threads. Not by how long a
sync takes: that is always long, and nobody waits for it who must not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

SLOW_S = 0.1
REMEMBERED_S = 60.0


class DiskPace:
    """One directory's. Thread-safe."""

    __slots__ = ("_begun", "_slow_until")

    def __init__(self) -> None:
        self._begun: dict[object, float] = {}
        """When what is under way began, of what is timed from its beginning."""
        self._slow_until = 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Note how long something takes that makes, renames, removes or replaces a file."""
        key = object()
        begun = self._begun[key] = time.monotonic()
        try:
            yield
        finally:
            del self._begun[key]
            self.note(begun)

    def note(self, begun: float) -> None:
        """Something that began then has ended now."""
        now = time.monotonic()
        if now - begun >= SLOW_S:
            self._slow_until = now + REMEMBERED_S

    @property
    def is_slow(self) -> bool:
        """Whether a call that writes may well have to wait for the disk."""
        if not self._begun and not self._slow_until:
            return False
        now = time.monotonic()
        return now < self._slow_until or any(now - begun >= SLOW_S for begun in list(self._begun.values()))
