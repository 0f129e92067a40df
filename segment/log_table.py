"""Which logs a broker has, in which of its directories; what becomes of them when one fails; their checkpoints.

Methods may be called from any thread. `on_offline_dir` is called from whichever thread met the failure, possibly with
a log's lock held: it must only pass it on.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbroker.segment import checkpoints
from kbroker.segment.files import Files
from kbroker.segment.log import Log
from kbroker.segment.log_dir import LogDir
from kbroker.segment.log_state import LogState

log = logging.getLogger(__name__)

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One directory as DescribeLogDirs shows it."""

    path: str
    error: str | None
    """Why it is offline."""
    total_bytes: int
    usable_bytes: int
    logs: list[tuple[str, int, int, bool]]
    """(topic, partition, size, is_future)"""


class LogTable:
    """The logs and the directories; `LogManager` is what one does with them."""

    def __init__(
        self, log_dirs: Sequence[str | Path], files: Files, on_offline_dir: Callable[[str, Exception], None] | None
    ) -> None:
        self.on_offline_dir = on_offline_dir
        self._files = files
        self._dirs = {path: LogDir(path, files) for path in (os.path.abspath(path) for path in log_dirs)}
        self._logs: dict[Key, Log] = {}
        self._future_logs: dict[Key, Log] = {}
        """Copies on their way into another directory (log_move.py)."""
        self._offline_logs: dict[Key, str] = {}
        self._counts = dict.fromkeys(self._dirs, 0)
        """Logs and copies per directory."""
        self._lock = threading.RLock()
        """Guards which logs and directories there are; not held while a log is opened or flushed."""
        self._checkpoint_lock = threading.Lock()
        """Held while checkpoint files are written."""

    # ------------------------------------------------------------------ logs

    @property
    def logs(self) -> Mapping[Key, Log]:
        """(topic, partition) -> log, of live directories only."""
        return self._logs

    def get(self, topic: str, partition: int) -> Log | None:
        """The log, if this broker has it in a live directory."""
        return self._logs.get((topic, partition))

    def is_offline(self, topic: str, partition: int) -> bool:
        """Whether the log lies in a directory that went offline."""
        return (topic, partition) in self._offline_logs

    def future(self, topic: str, partition: int) -> Log | None:
        """The copy of a log that is on its way into another directory."""
        return self._future_logs.get((topic, partition))

    def _all_logs(self) -> list[Log]:
        """Every log, and every copy that is on its way."""
        return [*self._logs.values(), *self._future_logs.values()]

    # ------------------------------------------------------------------ directories

    @property
    def directories(self) -> list[str]:
        """All of log.dirs, as absolute paths."""
        return list(self._dirs)

    @property
    def live_dirs(self) -> list[str]:
        """Directories in use."""
        return [path for path, directory in self._dirs.items() if directory.failure is None]

    @property
    def offline_dirs(self) -> dict[str, str]:
        """Directory -> why it is offline."""
        return {path: directory.failure for path, directory in self._dirs.items() if directory.failure is not None}

    def _on_log_failure(self, failed: LogState, error: OSError) -> None:
        self.mark_offline(failed.log_dir, error)

    def mark_offline(self, log_dir: str, error: Exception) -> list[Key]:
        """Take a failing directory out of service; the partitions that went with it. Calls on_offline_dir once."""
        with self._lock:
            directory = self._dirs[log_dir]
            if directory.failure is not None:
                return []
            reason = getattr(error, "strerror", None) or str(error)
            directory.failure = reason
            gone = self._lose_logs(log_dir, reason)
        log.error("log directory %s is offline with %d log(s): %s", log_dir, len(gone), reason)
        if self.on_offline_dir is not None:
            self.on_offline_dir(log_dir, error)
        return gone

    def _lose_logs(self, log_dir: str, reason: str) -> list[Key]:
        """Take the logs of a directory that went offline out of service."""
        problem = f"its directory is offline: {reason}"
        with self._lock:
            gone = [key for key, each in self._logs.items() if each.log_dir == log_dir]
            for key in gone:
                self._logs.pop(key).mark_failed(problem)
                self._offline_logs[key] = log_dir
            for key in [key for key, each in self._future_logs.items() if each.log_dir == log_dir]:
                self._future_logs.pop(key).mark_failed(problem)
            return gone

    def check_not_offline(self, log_dir: str) -> None:
        """A log was moved into a directory: it is lost all the same if that went offline meanwhile."""
        reason = self.offline_dirs.get(log_dir)
        if reason is not None and self._lose_logs(log_dir, reason) and self.on_offline_dir is not None:
            self.on_offline_dir(log_dir, OSError(reason))

    def describe(self) -> list[LogDirDescription]:
        """Size of each directory's disk and logs."""
        descriptions = []
        for path, directory in self._dirs.items():
            if directory.failure is not None:
                descriptions.append(LogDirDescription(path, directory.failure, -1, -1, []))
                continue
            usage = os.statvfs(path)
            sizes = [
                (topic, partition, each.size, future)
                for future, table in ((False, self._logs), (True, self._future_logs))
                for (topic, partition), each in list(table.items())
                if each.log_dir == path
            ]
            total, usable = usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize
            descriptions.append(LogDirDescription(path, None, total, usable, sizes))
        return descriptions

    # ------------------------------------------------------------------ checkpoints

    def _checkpoint(self, name: str, value_of: Callable[[Log], int | None]) -> None:
        """Write one checkpoint of each live directory; a directory where that fails goes offline."""
        with self._checkpoint_lock:
            tables: dict[str, dict[Key, int]] = {path: {} for path in self.live_dirs}
            for each in self._all_logs():
                value = value_of(each)
                table = tables.get(each.log_dir)
                if value is not None and table is not None:
                    table[each.topic, each.partition] = value
            for path, table in tables.items():
                try:
                    self._dirs[path].write_offsets(name, table)
                except OSError as error:
                    self.mark_offline(path, error)

    def checkpoint_high_watermarks(self) -> None:
        """Write replication-offset-checkpoint of each directory, where it changed."""
        self._checkpoint(checkpoints.HIGH_WATERMARKS, lambda each: each.offset_to_checkpoint)

    def checkpoint_recovery_points(self) -> None:
        """Write recovery-point-offset-checkpoint, where it changed."""
        self._checkpoint(checkpoints.RECOVERY_POINTS, lambda each: each.recovery_point)

    def checkpoint_first_dirty_offsets(self) -> None:
        """Write cleaner-offset-checkpoint (logs that were compacted), where it changed."""
        self._checkpoint(checkpoints.FIRST_DIRTY_OFFSETS, lambda each: each.first_dirty_offset)

    def checkpoint_log_start_offsets(self) -> None:
        """Write log-start-offset-checkpoint (logs that start inside their first segment), where it changed."""
        self._checkpoint(checkpoints.LOG_START_OFFSETS, _start_to_keep)


def _start_to_keep(each: Log) -> int | None:
    return each.log_start_offset if each.log_start_offset > each.segments[0].base_offset else None
