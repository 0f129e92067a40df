"""The time index of a segment (`.timeindex`): from which offset on to look for a timestamp.

    entry = timestamp int64 | relative offset int32                             12 bytes, big-endian

No record up to an entry's offset has a larger timestamp than the entry's. Timestamps strictly increase, offsets never
go back. The offset is the last one of the batch that had the largest timestamp so far (Kafka 3.9).
"""

from __future__ import annotations

import struct

from kbroker.segment.files import FilePool, Folder
from kbroker.segment.index_file import IndexFile
from kbroker.segment.names import TIME_INDEX, file_name

ENTRY = struct.Struct(">qi")


class TimeIndex(IndexFile):
    """Timestamp -> offset, sparse."""

    __slots__ = ("_last_timestamp", "base_offset", "max_count")

    def __init__(
        self, pool: FilePool, folder: Folder, base_offset: int, max_bytes: int, suffix: str = TIME_INDEX
    ) -> None:
        super().__init__(pool, folder, file_name(base_offset, suffix), ENTRY)
        self.base_offset = base_offset
        self.max_count = max_bytes // ENTRY.size
        self._last_timestamp: int | None = None
        """None: not asked for yet."""

    @property
    def is_full(self) -> bool:
        """Whether only the slot is left that a roll needs."""
        return self.count >= self.max_count - 1

    @property
    def last_entry(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) when there is none."""
        if not self.count:
            return -1, self.base_offset
        timestamp, relative = self.entry(self.count - 1)
        return timestamp, self.base_offset + relative

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if the timestamp is greater than the last one's."""
        last = self._last_timestamp
        if timestamp > (self.last_entry[0] if last is None else last):
            self._append(ENTRY.pack(timestamp, offset - self.base_offset))
            self._last_timestamp = timestamp

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The greatest entry at or below timestamp: (timestamp, offset); (-1, base offset) when there is none."""
        entry, _ = self._around(timestamp)
        return (-1, self.base_offset) if entry is None else (entry[0], self.base_offset + entry[1])

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and above offset."""
        if self.count:
            self.cut(self._count_up_to(offset - 1 - self.base_offset, field=1))

    def cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        super().cut(count)
        self._last_timestamp = None

    def begin_anew(self) -> None:
        """See IndexFile."""
        super().begin_anew()
        self._last_timestamp = -1
