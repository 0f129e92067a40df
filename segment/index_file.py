"""A file of fixed-size, ascending entries: appended in small lots, read through a memory map.

The offset and the time index are both of this kind. New entries wait in memory and reach the file by the lot (one write
for up to 64 entries), at a flush, a roll and a close: a crash loses only entries that recovery rebuilds from the
batches, as it does whenever a log was not closed cleanly. Unlike Kafka the file is never pre-allocated, so it never
ends in zeros. The map is made at the first look-up and counts as an open file of the pool.

Threads. Who adds, writes out or cuts holds the log's lock; look-ups take none and may run at any moment of that. So how
many entries lie in the file and which ones wait is one value, replaced as a whole, and a look-up asks for it once.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable
from typing import TypeVar

from kbroker.segment.files import FilePool, Folder, PooledFile
from kbroker.segment.search import count_up_to

Found = TypeVar("Found")

_LOT = 64
"""Entries that wait in memory before they are written."""


class IndexFile(PooledFile):
    """The entries of one index, in the file and waiting."""

    __slots__ = ("_entry", "_fields", "_is_rebuilt", "_mapped", "_parts", "count")

    def __init__(self, pool: FilePool, folder: Folder, name: str, entry: struct.Struct) -> None:
        super().__init__(pool, folder, name, create=True)
        self._entry = entry
        first = entry.size - 4
        self._fields = ((0, first == 8), (first, False))
        """Where each field begins, and whether it is an int64."""
        written = self.file_size() // entry.size
        self._parts: tuple[int, bytes | bytearray] = (written, b"")
        """Number of entries in the file, and those that wait: a bytearray that only grows while it stands here."""
        self._mapped = 0
        """How many entries the current map covers."""
        self.count = written
        """Entries altogether, for those that add."""
        self._is_rebuilt = False
        """Whether the file may hold more than is told here: what an earlier life has written."""

    def _append(self, entry: bytes) -> None:
        written, waiting = self._parts
        if isinstance(waiting, bytearray):
            waiting += entry
        else:
            self._parts = (written, bytearray(entry))
        self.count += 1
        if len(waiting) >= _LOT * self._entry.size:
            self.write_out()

    def write_out(self) -> None:
        """Write the entries that wait (the file is made even when there are none)."""
        written, waiting = self._parts
        if waiting:
            position = written * self._entry.size
            if not self._is_rebuilt or self.read(len(waiting), position) != waiting:
                self.write(waiting, position)
            self._parts = (written + len(waiting) // self._entry.size, b"")
        elif self.descriptor < 0 and not self._is_rebuilt:
            self._make()

    def _make(self) -> None:
        self.pool.pin(self)
        self.pool.unpin(self)

    def begin_anew(self) -> None:
        """Forget all entries. What the file holds stays where the entries that follow are the same: to cut thousands of
        files and write them again takes a disk seconds. `end_rebuild` drops the rest.
        """
        self.count = 0
        self._parts = (0, b"")
        self._is_rebuilt = True
        with self.pool.lock:  # as in `cut`: the file may become shorter
            if self.map is not None:
                self.map.close()
                self.map = None

    def end_rebuild(self) -> None:
        """All entries have been written out: what lies behind them goes. Where there are none the file is not opened,
        but for making it.
        """
        self._is_rebuilt = False
        size = self._parts[0] * self._entry.size
        found = self.file_size()
        if found > size:
            self.truncate(size)
        elif not found and not os.path.exists(self.path):
            self._make()

    @property
    def is_at_hand(self) -> bool:
        """Whether a look-up finds the map made."""
        return self.map is not None or not self._parts[0]

    @property
    def has_pending(self) -> bool:
        """Whether entries wait in memory."""
        return bool(self._parts[1])

    def forget_pending(self) -> None:
        """Drop the entries that wait."""
        self.count = self._parts[0]
        self._parts = (self.count, b"")

    def close(self) -> None:
        """Write what waits and close."""
        if self.has_pending:
            self.write_out()
        super().close()

    def entry(self, number: int) -> tuple[int, int]:
        """The entry at a place, 0 being the first."""
        written, waiting = self._parts
        if number >= written:
            return self._unpack(waiting, number - written)
        return self._look(lambda entries, _: self._unpack(entries, number))

    def _look(self, look: Callable[[mmap.mmap | bytes, int], Found]) -> Found:
        """Look into the map, of so many entries, with the pool's lock held: it may not be closed under its reader."""
        pool = self.pool
        has_map = self.map is not None and self._mapped >= self._parts[0]
        if not has_map:
            pool.pin(self)  # before the lock is taken: the disk may take its time to open a file
        try:
            with pool.lock:
                return look(*self._entries())
        finally:
            if not has_map:
                pool.unpin(self)

    def _entries(self) -> tuple[mmap.mmap | bytes, int]:
        """The map, made anew when the file has outgrown it; the lock is held."""
        if self.map is not None and self._mapped >= self._parts[0]:
            return self.map, self._parts[0]
        self.pool.pin(self)  # lets go of the lock where another thread opens the file: only then
        try:
            written = self._parts[0]  # what may be mapped: the log may have been cut
            if self.map is not None:
                self.map.close()
                self.map = None
            if not written:
                return b"", 0
            self.map = mmap.mmap(self.descriptor, written * self._entry.size, prot=mmap.PROT_READ)
            self._mapped = written
        finally:
            self.pool.unpin(self)
        return self.map, written

    def _around(self, limit: int, field: int = 0) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """The last entry whose field is <= limit and the one behind it, as of one moment; None where there is none."""
        written, waiting = self._parts
        following = None
        if waiting:
            number = self._search(waiting, len(waiting) // self._entry.size, limit, field)
            if (number + 1) * self._entry.size <= len(waiting):
                following = self._unpack(waiting, number)
            if number:
                return self._unpack(waiting, number - 1), following
        if not written:
            return None, following

        def look(entries: mmap.mmap | bytes, count: int) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
            count = min(written, count)  # the log may be cut at this moment
            number = self._search(entries, count, limit, field)
            behind = self._unpack(entries, number) if number < count else following
            return self._unpack(entries, number - 1) if number else None, behind

        return self._look(look)

    def _count_up_to(self, limit: int, field: int = 0) -> int:
        """Number of leading entries whose field is <= limit, for those that cut."""
        written, waiting = self._parts
        if waiting and self._unpack(waiting, 0)[field] <= limit:
            return written + self._search(waiting, len(waiting) // self._entry.size, limit, field)
        if not written:
            return 0
        return self._look(lambda entries, _: self._search(entries, written, limit, field))

    def _search(self, entries: bytes | bytearray | mmap.mmap, count: int, limit: int, field: int) -> int:
        """How many of the first `count` entries have a field <= limit."""
        start, is_long = self._fields[field]
        return count_up_to(memoryview(entries), count, limit, self._entry.size, start, is_long)

    def _unpack(self, entries: bytes | bytearray | mmap.mmap, number: int) -> tuple[int, int]:
        first, second = self._entry.unpack_from(entries, number * self._entry.size)
        return first, second

    def cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        if count >= self.count:
            return
        written, waiting = self._parts
        if count < written:
            with self.pool.lock:  # a map must not outlive the bytes below it: touching it would kill the process
                self._parts = (count, b"")
                if self.map is not None:
                    self.map.close()
                    self.map = None
            self.truncate(count * self._entry.size)
        else:
            self._parts = (written, bytearray(waiting[: (count - written) * self._entry.size]))
        self.count = count
