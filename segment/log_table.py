"""Which logs a broker has, in which of its directories, and which it lost with a directory that failed.

Methods may be called from any thread. The lock guards the tables alone: nobody opens, changes or flushes a log while
holding it, for a log that fails comes here with its own lock held. `on_offline_dir` is called from whichever thread
met the failure, possibly with a log's lock held: it must only pass it on.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbroker.protocol.grouping import Key
from kbroker.segment.files import Files
from kbroker.segment.log import Log
from kbroker.segment.log_dir import LogDir

log = logging.getLogger(__name__)


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
    """The logs and the directories."""

    def __init__(
        self, log_dirs: Sequence[str | Path], files: Files, on_offline_dir: Callable[[str, Exception], None] | None
    ) -> None:
        self.on_offline_dir = on_offline_dir
        self.dirs = {path: LogDir(path, files) for path in (os.path.abspath(path) for path in log_dirs)}
        """By absolute path; never changed."""
        self.logs: dict[Key, Log] = {}
        """(topic, partition) -> log, of live directories only."""
        self.future_logs: dict[Key, Log] = {}
        """Copies on their way into another directory (log_move.py)."""
        self.lock = threading.RLock()
        self._offline_logs: dict[Key, str] = {}
        self._counts = dict.fromkeys(self.dirs, 0)
        """Logs and copies per directory."""

    # ------------------------------------------------------------------ logs

    def get(self, topic: str, partition: int) -> Log | None:
        """The log, if this broker has it in a live directory."""
        return self.logs.get((topic, partition))

    def is_offline(self, topic: str, partition: int) -> bool:
        """Whether the log lies in a directory that went offline."""
        return (topic, partition) in self._offline_logs

    @property
    def offline_count(self) -> int:
        """How many logs lie in directories that went offline."""
        return len(self._offline_logs)

    def future(self, topic: str, partition: int) -> Log | None:
        """The copy of a log that is on its way into another directory."""
        return self.future_logs.get((topic, partition))

    def all_logs(self) -> list[Log]:
        """Every log, and every copy that is on its way."""
        return [*self.logs.values(), *self.future_logs.values()]

    def add(self, key: Key, added: Log, is_future: bool = False) -> Log:
        """Add a log, or a copy; the one that is there already, if there is one."""
        with self.lock:
            table = self.future_logs if is_future else self.logs
            present = table.setdefault(key, added)
            if present is added:
                self._counts[added.log_dir] += 1
            return present

    def remove(self, key: Key, is_future: bool = False) -> Log | None:
        """Take a log, or a copy, away."""
        with self.lock:
            gone = (self.future_logs if is_future else self.logs).pop(key, None)
            if gone is not None:
                self._counts[gone.log_dir] -= 1
            return gone

    def moved(self, key: Key, source: str) -> None:
        """A copy has taken the place of its log, which was in `source`."""
        with self.lock:
            self.future_logs.pop(key, None)
            self._counts[source] -= 1

    # ------------------------------------------------------------------ directories

    @property
    def live_dirs(self) -> list[str]:
        """Directories in use."""
        return [path for path, directory in self.dirs.items() if directory.failure is None]

    @property
    def offline_dirs(self) -> dict[str, str]:
        """Directory -> why it is offline."""
        return {path: directory.failure for path, directory in self.dirs.items() if directory.failure is not None}

    def by_load(self) -> list[str]:
        """Directories in use, that with the fewest logs first."""
        return sorted(self.live_dirs, key=self._counts.__getitem__)

    def mark_offline(self, log_dir: str, error: Exception) -> list[Key]:
        """Take a failing directory out of service; the partitions that went with it. Calls on_offline_dir once."""
        with self.lock:
            directory = self.dirs[log_dir]
            if directory.failure is not None:
                return []
            reason = _reason(log_dir, error)
            directory.failure = reason
            gone = self._lose_logs(log_dir, reason)
        log.error("log directory %s is offline with %d log(s): %s", log_dir, len(gone), reason)
        if self.on_offline_dir is not None:
            self.on_offline_dir(log_dir, error)
        return gone

    def _lose_logs(self, log_dir: str, reason: str) -> list[Key]:
        """Take the logs of a directory that went offline out of service."""
        problem = f"its directory is offline: {reason}"
        with self.lock:
            gone = [key for key, each in self.logs.items() if each.log_dir == log_dir]
            for key in gone:
                self.logs.pop(key).mark_failed(problem)
                self._offline_logs[key] = log_dir
            for key in [key for key, each in self.future_logs.items() if each.log_dir == log_dir]:
                self.future_logs.pop(key).mark_failed(problem)
            return gone

    def check_not_offline(self, log_dir: str) -> None:
        """A log was moved into a directory: it is lost all the same if that went offline meanwhile."""
        reason = self.offline_dirs.get(log_dir)
        if reason is not None and self._lose_logs(log_dir, reason) and self.on_offline_dir is not None:
            self.on_offline_dir(log_dir, OSError(reason))

    def describe(self) -> list[LogDirDescription]:
        """Size of each directory's disk and logs."""
        descriptions = []
        for path, directory in self.dirs.items():
            if directory.failure is not None:
                descriptions.append(LogDirDescription(path, directory.failure, -1, -1, []))
                continue
            usage = os.statvfs(path)
            sizes = [
                (topic, partition, each.size, future)
                for future, table in ((False, self.logs), (True, self.future_logs))
                for (topic, partition), each in list(table.items())
                if each.log_dir == path
            ]
            total, usable = usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize
            descriptions.append(LogDirDescription(path, None, total, usable, sizes))
        return descriptions


def _reason(log_dir: str, error: Exception) -> str:
    """What the system says, and of which of the directory's files, where it tells that: one of another user, say."""
    reason = getattr(error, "strerror", None) or str(error)
    file = getattr(error, "filename", None)
    if isinstance(file, str) and file.startswith(f"{log_dir}/"):
        return f"{reason}: {file.removeprefix(f'{log_dir}/')}"
    return reason
