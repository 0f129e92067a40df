"""Answers that lie in memory because their clients do not read them: they have an end, all together.

One connection has one such answer, as nothing more is read from it meanwhile; but an answer may be a hundred megabytes,
and connections thousands. Beyond the limit those are closed that have taken nothing for longest, sooner the more waits.
Records are sent from files, and take no memory here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol

MOST_BYTES = 256 << 20
PATIENCE_S = 2.0
"""A client that has taken something so recently reads, if slowly."""
MOST_HASTE = 4
"""The patience is divided by how many times the limit wait, up to so many: answers are made by the gigabyte in it."""


class Sender(Protocol):
    """A connection."""

    last_active: float
    """On the monotonic clock."""

    def close(self, reason: str, level: int = ...) -> None:
        """Close it; it is `forgotten` then."""


class Unread:
    """The answers of one server."""

    def __init__(self, later: Callable[..., object], most_bytes: int = MOST_BYTES) -> None:
        """`later(seconds, function)`: the event loop's."""
        self.bytes = 0
        """What waits, all together."""
        self._later = later
        self._is_to_look = False
        self._most_bytes = most_bytes
        self._waiting: dict[Sender, int] = {}

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._waiting)

    def waits(self, sender: Sender, parts: list[Any]) -> None:
        """An answer has begun to wait for its client, who may have waited for it before."""
        sender.last_active = monotonic()
        size = sum(memoryview(part).nbytes for part in parts if not hasattr(part, "fileno"))
        self._waiting[sender] = size
        self.bytes += size
        if self.bytes > self._most_bytes:
            self._make_room()
            self._look_later()

    def is_out(self, sender: Sender) -> None:
        """It has been sent, or never will be."""
        self.bytes -= self._waiting.pop(sender, 0)

    def _look_later(self) -> None:
        """Look again at those that may yet be reading, where they all came at once."""
        if self.bytes > self._most_bytes and not self._is_to_look:
            self._is_to_look = True
            self._later(self._patience(), self._look)

    def _patience(self) -> float:
        return PATIENCE_S / min(max(self.bytes / self._most_bytes, 1.0), MOST_HASTE)

    def _look(self) -> None:
        self._is_to_look = False
        self._make_room()
        self._look_later()

    def _make_room(self) -> None:
        last = monotonic() - self._patience()
        for sender in sorted((each for each in self._waiting if each.last_active < last), key=_last_active):
            if self.bytes <= self._most_bytes:
                return
            size = self._waiting[sender]
            reason = f"it does not read its answer of {size:,} bytes, and {self.bytes:,} bytes of such answers wait"
            sender.close(reason, logging.WARNING)
            self.is_out(sender)


def _last_active(sender: Sender) -> float:
    return sender.last_active
