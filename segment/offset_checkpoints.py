"""What the offset checkpoints of each directory say of its logs, and what they must not say any longer.

recovery-point-offset-checkpoint   in segments that end below it a recovery need not look. Always below the high
                                   watermark: so a follower that is cut back to what is committed need not write it
                                   anew, and nor need a log that rolls, for the segment that is closed reaches over it
replication-offset-checkpoint      the high watermark
log-start-offset-checkpoint        of logs that start inside their first segment; not beyond the high watermark that is
                                   on disk: by that a start tells it that is damaged (recovery.py)
cleaner-offset-checkpoint          of logs that were compacted

They are written now and then; but before a log is cut below what one of them says, and before a log is made that has
the name of a former one, that one is lowered: a crash would find more promised than there is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kbroker.protocol.grouping import Key
from kbroker.segment import checkpoints
from kbroker.segment.log import Log
from kbroker.segment.log_table import LogTable


class OffsetCheckpoints:
    """Those of all live directories. A directory where writing fails goes offline."""

    def __init__(self, table: LogTable) -> None:
        self._table = table
        self._locks = {path: threading.Lock() for path in table.dirs}
        """Held while files of a directory are written."""

    def write_high_watermarks(self, log_dir: str | None = None) -> None:
        """Write replication-offset-checkpoint, where it changed; None: of each directory."""
        self._write(checkpoints.HIGH_WATERMARKS, lambda each: each.offset_to_checkpoint, log_dir)

    def write_recovery_points(self, log_dir: str | None = None) -> None:
        """Write recovery-point-offset-checkpoint, where it changed."""
        self._write(checkpoints.RECOVERY_POINTS, _recovery_point_to_keep, log_dir)

    def write_first_dirty_offsets(self, log_dir: str | None = None) -> None:
        """Write cleaner-offset-checkpoint, where it changed."""
        self._write(checkpoints.FIRST_DIRTY_OFFSETS, lambda each: each.first_dirty_offset, log_dir)

    def write_log_start_offsets(self, log_dir: str | None = None) -> None:
        """Write log-start-offset-checkpoint, where it changed; the high watermarks first: no start lies beyond one."""
        before = {each: each.offset_to_checkpoint for each in self._table.all_logs()}
        self.write_high_watermarks(log_dir)

        def start_to_keep(each: Log) -> int | None:
            start, high_watermark = each.log_start_offset, before.get(each)
            if high_watermark is not None:
                start = min(start, high_watermark)  # records may have been deleted meanwhile
            return start if start > each.segments[0].base_offset else None

        self._write(checkpoints.LOG_START_OFFSETS, start_to_keep, log_dir)

    def write_all(self) -> None:
        """Write all four, where they changed."""
        self.write_recovery_points()
        self.write_log_start_offsets()
        self.write_first_dirty_offsets()

    def _write(self, name: str, value_of: Callable[[Log], int | None], log_dir: str | None) -> None:
        for path in self._table.live_dirs if log_dir is None else [log_dir]:
            with self._locks[path]:
                table: dict[Key, int] = {}
                for each in self._table.all_logs():
                    value = value_of(each)  # first: by a move into this directory the log comes with its own
                    if value is not None and each.log_dir == path:
                        table[each.topic, each.partition] = value
                directory = self._table.dirs[path]
                if directory.failure is not None:  # told before its logs go: what is left of them says nothing
                    continue
                try:
                    directory.write_offsets(name, table)
                except OSError as error:
                    self._table.mark_offline(path, error)

    def lower(self, cut: Log, offset: int) -> None:
        """Promise no more of a log than what is below the offset; it holds less from now on. Raises OSError."""
        limits = {checkpoints.RECOVERY_POINTS: max(offset - 1, 0), checkpoints.LOG_START_OFFSETS: offset}
        if not cut.is_short:  # of one that has less than it had that is remembered
            limits[checkpoints.HIGH_WATERMARKS] = offset
        key = (cut.topic, cut.partition)
        directory = self._table.dirs[cut.log_dir]
        with self._locks[directory.path]:
            for name, limit in limits.items():
                written = directory.written_offsets(name)
                if written.get(key, 0) > limit:
                    directory.write_offsets(name, {**written, key: limit})

    def forget(self, log_dir: str, key: Key) -> None:
        """Drop what a former log of that name has left. Raises OSError."""
        directory = self._table.dirs[log_dir]
        with self._locks[log_dir]:
            for name in checkpoints.OFFSETS:
                written = directory.written_offsets(name)
                if key in written:
                    directory.write_offsets(name, {each: at for each, at in written.items() if each != key})


def _recovery_point_to_keep(each: Log) -> int:
    committed = each.high_watermark  # first: a roll lowers the recovery point, and may come between the two
    return max(min(each.recovery_point, committed - 1), 0)
