"""Find and open every log of every directory when a broker starts.

What lies in the page cache is opened soonest by one thread: each call to the system lets go of the interpreter, and
several threads spend more time on taking it from each other than on logs. More of them begin once the first one has had
to wait for the disk, or had much to scan (which needs no interpreter).
"""

from __future__ import annotations

import logging
import os
import resource
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from kbroker.protocol.grouping import Key
from kbroker.protocol.primitives import uuid_to_text
from kbroker.segment import checkpoints, names
from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_dir import LogDir, LogDirError
from kbroker.segment.log_move import is_part_of
from kbroker.segment.log_table import LogTable
from kbroker.segment.names import FolderName
from kbroker.segment.recovery import KnownOffsets, LogSetup, open_log

log = logging.getLogger(__name__)

_ALONE_S = 0.1
"""So long a directory's first thread may wait, or work on large logs, before others begin."""
_MUCH_WORK_S = 0.01
_USED_BY = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


class LogLoading:
    """One start. `setup` makes what logs of a directory share, `bury` removes a log's folder."""

    def __init__(
        self,
        table: LogTable,
        setup: Callable[[str], LogSetup],
        bury: Callable[[Log, int], None],
        config_of: Callable[[str], LogConfig],
        threads_per_dir: int,
    ) -> None:
        self._table = table
        self._setup = setup
        self._bury = bury
        self._config_of = config_of
        self._threads_per_dir = threads_per_dir
        self._adding = threading.Lock()
        """Held while a log is compared with another of its partition."""

    def run(self) -> None:
        """Open all logs; a directory whose disk fails goes offline. Raises LogDirError."""
        directories = [self._table.dirs[path] for path in self._table.live_dirs]
        with ThreadPoolExecutor(len(directories), "log-loading") as pool:
            for loading in [pool.submit(self._load_dir, directory) for directory in directories]:
                loading.result()

    def _load_dir(self, directory: LogDir) -> None:
        try:
            clean = directory.take_clean_marker()
            tables = [
                directory.read_offsets(name)
                for name in (
                    checkpoints.RECOVERY_POINTS,
                    checkpoints.LOG_START_OFFSETS,
                    checkpoints.HIGH_WATERMARKS,
                    checkpoints.FIRST_DIRTY_OFFSETS,
                )
            ]
            folders = iter(sorted(entry.name for entry in os.scandir(directory.path) if entry.is_dir()))
            failures = [self._load_folders(directory, _until_slow(folders), clean, tables)]
            with ThreadPoolExecutor(self._threads_per_dir, "log-recovery") as pool:
                work = directory, folders, clean, tables
                loads = [pool.submit(self._load_folders, *work) for _ in range(self._threads_per_dir)]
                failures += [load.result() for load in loads]
            for failure in filter(None, failures):
                raise failure
            directory.loaded = True
        except OSError as error:
            self._table.mark_offline(directory.path, error)

    def _load_folders(
        self, directory: LogDir, folders: Iterable[str], clean: bool, tables: Sequence[Mapping[Key, int]]
    ) -> OSError | None:
        """Those that no other thread has taken: were each handed over by itself, two threads would wake each other.

        Behind one that fails the rest is opened all the same: what goes offline with the directory has to be known.
        Returns the first failure.
        """
        failure = None
        for folder in folders:
            try:
                self._load_folder(directory, folder, clean, tables)
            except OSError as error:
                failure = failure or error
        return failure

    def _load_folder(self, directory: LogDir, folder: str, clean: bool, tables: Sequence[Mapping[Key, int]]) -> None:
        parsed = names.parse_folder_name(folder)
        path = f"{directory.path}/{folder}"
        if parsed is None:
            log.warning("%s: not a partition's folder, left alone", path)
        elif parsed.mark == "delete":
            self._setup(directory.path).trash.bury_folder(path, 0)
        elif parsed.mark == "stray":
            log.warning("%s: a stray partition, left alone", path)
        else:
            self._load_log(directory, path, parsed, clean, tables)

    def _load_log(
        self, directory: LogDir, path: str, parsed: FolderName, clean: bool, tables: Sequence[Mapping[Key, int]]
    ) -> None:
        key = (parsed.topic, parsed.partition)
        points, starts, watermarks, dirty = tables
        known = KnownOffsets(
            clean, points.get(key, 0), starts.get(key, 0), watermarks.get(key), dirty.get(key), directory.has_lost_power
        )
        opened = open_log(self._setup(directory.path), path, *key, self._config_of(parsed.topic), known)
        with self._adding:
            self._add(key, opened, bool(parsed.mark))

    def _add(self, key: Key, opened: Log, is_future: bool) -> None:
        """Add a log; of two of the same partition the one goes that has nothing of its own.

        A crash between the two renames at the end of a move leaves two, of which one may have lost its end with the
        power. Of two copies on their way, which a directory that was away may bring back, either can be given up.
        """
        present = self._table.add(key, opened, is_future)
        if present is opened:
            return
        if is_future or is_part_of(opened, present):
            kept, gone = present, opened
        elif is_part_of(present, opened):
            self._table.remove(key)
            kept, gone = self._table.add(key, opened), present
        else:
            places = " and ".join(_what_is_where(each) for each in (opened, present))
            raise LogDirError(f"{places} hold the same partition; remove the one that is not wanted")
        log.warning("%s goes: %s has the same, or it is another copy on its way", gone.directory, kept.directory)
        self._bury(gone, 0)


def _what_is_where(found: Log) -> str:
    topic_id, last_offset = uuid_to_text(found.topic_id), found.log_end_offset - 1
    return f"{found.directory} (topic id {topic_id}, offsets {found.log_start_offset} to {last_offset})"


def _until_slow(folders: Iterator[str]) -> Iterator[str]:
    """Take folders until this thread has waited, or worked on large logs, for a while."""
    slow_s, (waits, worked_s) = 0.0, _used()
    while slow_s < _ALONE_S and (folder := next(folders, None)) is not None:
        begun, waits_before, worked_before_s = time.monotonic(), waits, worked_s
        yield folder
        waits, worked_s = _used()
        if waits > waits_before or worked_s - worked_before_s > _MUCH_WORK_S:
            slow_s += time.monotonic() - begun


def _used() -> tuple[int, float]:
    """How often this thread has waited, and how long it has worked: who is kept from working by others does neither."""
    usage = resource.getrusage(_USED_BY)
    return usage.ru_nvcsw, usage.ru_utime
