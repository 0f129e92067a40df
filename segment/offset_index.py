"""The offset index of a segment (`.index`): where in the .log to begin looking for an offset.

    entry = relative offset int32 (offset - base) | position int32              8 bytes, big-endian

Offsets strictly increase. An entry is (last offset of an appended chunk, position of the chunk's first byte); there
is one for about every `index.interval.bytes` of log, none for the first chunk.
"""

from __future__ import annotations

import struct

from kbroker.segment.files import FilePool, Folder
from kbroker.segment.index_file import IndexFile
from kbroker.segment.names import INDEX, file_name

ENTRY = struct.Struct(">ii")
MAX_LOG_SIZE = 1 << 31
MAX_RELATIVE_OFFSET = (1 << 31) - 1
"""How far a segment's last offset may lie from its base offset."""


class OffsetIndex(IndexFile):
    """Offset -> position, sparse."""

    __slots__ = ("base_offset", "max_count")

    def __init__(self, pool: FilePool, folder: Folder, base_offset: int, max_bytes: int, suffix: str = INDEX) -> None:
        super().__init__(pool, folder, file_name(base_offset, suffix), ENTRY)
        self.base_offset = base_offset
        self.max_count = max_bytes // ENTRY.size

    @property
    def is_full(self) -> bool:
        """Whether the segment has to roll before another entry."""
        return self.count >= self.max_count

    @property
    def last_offset(self) -> int:
        """Offset of the last entry; the base offset when there is none."""
        return self.base_offset + self.entry(self.count - 1)[0] if self.count else self.base_offset

    def append(self, offset: int, position: int) -> None:
        """Add an entry beyond the last one."""
        self._append(ENTRY.pack(offset - self.base_offset, position))

    def lookup(self, offset: int, log_size: int = MAX_LOG_SIZE) -> tuple[int, int]:
        """The greatest entry at or below offset: (offset, position); (base offset, 0) when there is none, or none that
        can be: below the base offset, or outside of the log.
        """
        entry, _ = self._around(offset - self.base_offset)
        if entry is None or entry[0] < 0 or not 0 <= entry[1] < log_size:
            return self.base_offset, 0
        return self.base_offset + entry[0], entry[1]

    def position_at_or_after(self, position: int, log_size: int) -> int | None:
        """Position of the first entry at or behind another one; None when there is none that lies in the log."""
        _, entry = self._around(position - 1, field=1)
        return None if entry is None or not position <= entry[1] < log_size else entry[1]

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and above offset."""
        if self.count:
            self.cut(self._count_up_to(offset - 1 - self.base_offset))

    def damage(self, log_size: int) -> str | None:
        """What is wrong with the file as a whole, None when it can be trusted to guide a look-up."""
        if not self.count:
            return None
        relative, position = self.entry(self.count - 1)
        if relative <= 0 and self.count > 1:
            return "it ends in zeros (left by an unclean stop)"
        if relative < 0 or not 0 <= position < max(log_size, 1):
            return f"its last entry ({relative}, {position}) points outside the log of {log_size} bytes"
        return None
