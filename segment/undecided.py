"""The transactions that hold a log's last stable offset back (pure).

    begin        its first batch was appended: open
    end          its marker was appended: decided, but a new leader may not have the marker
    replicated   the high watermark has passed the marker: forgotten

First offsets ascend as transactions begin, markers as they end; transactions of several producers interleave, so the
first to begin need not be the first to end.
"""

from __future__ import annotations

import threading


class UndecidedTransactions:
    """Changed by the log's appender, and by who moves the high watermark, which may wait for no appender.

    `first_unstable_offset` may be read by anybody.
    """

    __slots__ = ("_all", "_decided", "_lock", "_open", "first_unstable_offset")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Guards what follows; nobody waits for a disk with it."""
        self._all: dict[int, None] = {}
        """First offsets of all, ascending."""
        self._open: dict[int, int] = {}
        """First offset -> producer id of those without a marker, ascending."""
        self._decided: dict[int, int] = {}
        """Marker's offset -> first offset, ascending by the marker."""
        self.first_unstable_offset: int | None = None
        """First offset of the earliest transaction that is open, or whose marker is not replicated yet."""

    @property
    def open(self) -> dict[int, int]:
        """First offset -> producer id of the transactions without a marker, ascending; to be read only."""
        return self._open

    @property
    def has_decided(self) -> bool:
        """Whether markers wait for the high watermark."""
        return bool(self._decided)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Note a transaction, which begins behind all that are known."""
        with self._lock:
            self._all[first_offset] = None
            self._open[first_offset] = producer_id
            if self.first_unstable_offset is None:
                self.first_unstable_offset = first_offset

    def end(self, first_offset: int, marker_offset: int) -> int:
        """Note a transaction's marker; the last stable offset once it is replicated."""
        with self._lock:
            del self._open[first_offset]
            self._decided[marker_offset] = first_offset
            return next(iter(self._open), marker_offset + 1)

    def replicated(self, high_watermark: int) -> None:
        """Forget what is decided below the high watermark."""
        with self._lock:
            while self._decided:
                marker_offset = next(iter(self._decided))
                if marker_offset >= high_watermark:
                    break
                del self._all[self._decided.pop(marker_offset)]
            self.first_unstable_offset = next(iter(self._all), None)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._all.clear()
            self._open.clear()
            self._decided.clear()
            self.first_unstable_offset = None
