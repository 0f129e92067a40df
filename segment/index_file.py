"""A file of fixed-size, ascending entries: appended in small lots, read through a memory map.

The offset and the time index are both of this kind. New entries wait in memory and reach the file by the lot (one write
for up to 64 entries), at a flush, a roll and a close: a crash loses only entries that recovery rebuilds from the
batches, as it does whenever a log was not closed cleanly. Unlike Kafka the file is never pre-allocated, so it never
ends in zeros. The map is made at the first look-up and counts as an open file of the pool.
"""

from __future__ import annotations

import mmap
import struct

from kbroker.segment.files import FilePool, Folder, PooledFile

_LOT = 64
"""Entries that wait in memory before they are written."""


class IndexFile(PooledFile):
    """The entries of one index, in the file and waiting."""

    __slots__ = ("_entry", "_mapped", "_waiting", "_written", "count")

    def __init__(self, pool: FilePool, folder: Folder, name: str, entry: struct.Struct) -> None:
        super().__init__(pool, folder, name, create=True)
        self._entry = entry
        self._written = self.file_size() // entry.size
        self._waiting: bytearray | None = None
        self._mapped = 0
        """How many entries the current map covers."""
        self.count = self._written
        """Entries altogether."""

    def _append(self, entry: bytes) -> None:
        waiting = self._waiting
        if waiting is None:
            waiting = self._waiting = bytearray()
        waiting += entry
        self.count += 1
        if len(waiting) >= _LOT * self._entry.size:
            self.write_out()

    def write_out(self) -> None:
        """Write the entries that wait (the file is made even when there are none)."""
        waiting = self._waiting
        if not waiting:
            if self.descriptor < 0:
                self.pool.pin(self)
                self.pool.unpin(self)
            return
        data = bytes(waiting)
        self.write(data, self._written * self._entry.size)
        self._written += len(data) // self._entry.size
        del waiting[: len(data)]
        if not waiting:
            self._waiting = None

    @property
    def has_pending(self) -> bool:
        """Whether entries wait in memory."""
        return bool(self._waiting)

    def forget_pending(self) -> None:
        """Drop the entries that wait."""
        self.count, self._waiting = self._written, None

    def close(self) -> None:
        """Write what waits and close."""
        if self._waiting:
            self.write_out()
        super().close()

    def entry(self, number: int) -> tuple[int, int]:
        """The entry at a place, 0 being the first."""
        written = self._written
        if number >= written:
            assert self._waiting is not None
            return self._unpack(self._waiting, (number - written) * self._entry.size)
        with self.pool.lock:
            return self._unpack(self._entries(), number * self._entry.size)

    def _entries(self) -> mmap.mmap:
        """The map, made anew when the file has outgrown it. Call it with the pool's lock held."""
        if self.map is not None and self._mapped >= self._written:
            return self.map
        self.pool.pin(self)
        try:
            if self.map is not None:
                self.map.close()
                self.map = None
            self.map = mmap.mmap(self.descriptor, self._written * self._entry.size, prot=mmap.PROT_READ)
            self._mapped = self._written
        finally:
            self.pool.unpin(self)
        return self.map

    def _count_up_to(self, limit: int, field: int = 0) -> int:
        """Number of leading entries whose field is <= limit (a binary search)."""
        waiting = self._waiting
        if waiting and self._unpack(waiting, 0)[field] <= limit:
            return self._written + self._search(waiting, len(waiting) // self._entry.size, limit, field)
        if not self._written:
            return 0
        with self.pool.lock:
            return self._search(self._entries(), self._written, limit, field)

    def _search(self, entries: bytearray | mmap.mmap, high: int, limit: int, field: int) -> int:
        unpack, size = self._unpack, self._entry.size
        low = 0
        while low < high:
            middle = (low + high) // 2
            if unpack(entries, middle * size)[field] <= limit:
                low = middle + 1
            else:
                high = middle
        return low

    def _unpack(self, entries: bytearray | mmap.mmap, place: int) -> tuple[int, int]:
        first, second = self._entry.unpack_from(entries, place)
        return first, second

    def cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        if count >= self.count:
            return
        if count < self._written:
            self._waiting = None
            with self.pool.lock:  # a map must not outlive the bytes below it: touching it would kill the process
                if self.map is not None:
                    self.map.close()
                    self.map = None
                self.truncate(count * self._entry.size)
                self._written = count
        elif self._waiting is not None:
            del self._waiting[(count - self._written) * self._entry.size :]
        self.count = count

    def empty(self) -> None:
        """Drop whatever is in the file, entries or not. (Emptying one is much cheaper than making one.)"""
        self.cut(0)
        if self.file_size():
            self.truncate(0)
