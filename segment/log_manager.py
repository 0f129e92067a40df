"""All logs of all log directories: find and open them at the start, make and delete them, look after them.

A directory that fails goes offline with its logs, and the rest serves on. Nothing here starts a thread that outlives a
call: whoever owns the manager calls `run_due` from a worker thread when it says so. Methods may be called from any
thread; `on_offline_dir` is called from whichever thread met the failure, possibly with a log's lock held: it must
only pass it on.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import ErrorCode, KafkaError
from segment import checkpoints, names
from segment.files import FilePool, Files
from segment.log import Flush, Log
from segment.log_config import MAX_LONG, LogConfig
from segment.log_dir import LogDir, LogDirError
from segment.log_state import LogState
from segment.recovery import KnownOffsets, LogSetup, create_log, open_log
from segment.trash import Trash

__all__ = ["LogDirDescription", "LogDirError", "LogManager", "LogManagerSettings"]

log = logging.getLogger(__name__)

Key = tuple[str, int]

_WRITE_PENDING_INTERVAL_MS = 1_000
_WRITE_PENDING_MS_PER_LOG = 1
"""With thousands of logs they are looked at more seldom, so that an idle broker stays idle."""
_FEW_LOGS = 16


@dataclass(frozen=True, slots=True)
class LogManagerSettings:
    """The broker's keys that concern all logs (names of configs.md in snake_case)."""

    num_recovery_threads_per_data_dir: int = 1
    log_retention_check_interval_ms: int = 300_000
    log_flush_scheduler_interval_ms: int = MAX_LONG
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    log_initial_task_delay_ms: int = 30_000
    max_open_files: int = 0
    """Descriptors kept open for segments; 0: half of the process's limit."""


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


class _Task:
    """Something to do at intervals."""

    __slots__ = ("due_ms", "interval_ms", "run")

    def __init__(self, interval_ms: int, run: Callable[[int], None]) -> None:
        self.interval_ms = interval_ms
        self.run = run
        self.due_ms = -1
        """-1: not planned yet."""


class LogManager:
    """Owns every log of the broker."""

    def __init__(
        self,
        log_dirs: Sequence[str | Path],
        default_config: LogConfig | None = None,
        settings: LogManagerSettings | None = None,
        on_offline_dir: Callable[[str, Exception], None] | None = None,
        files: Files | None = None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Nothing is touched on disk before open(). `clock` gives milliseconds."""
        self.default_config = default_config or LogConfig()
        self.settings = settings or LogManagerSettings()
        self.on_offline_dir = on_offline_dir
        self._files = files or Files()
        self._pool = FilePool(self._files, self.settings.max_open_files)
        self._trash = Trash(self._files)
        self._clock = clock
        self._dirs = {path: LogDir(path, self._files) for path in (os.path.abspath(path) for path in log_dirs)}
        self._logs: dict[Key, Log] = {}
        self._counts = dict.fromkeys(self._dirs, 0)
        """Logs per directory."""
        self._offline_logs: dict[Key, str] = {}
        self._future_logs: dict[Key, Log] = {}
        self._lock = threading.RLock()
        """Guards which logs and directories there are; not held while a log is opened or flushed."""
        self._last_flush: dict[Key, int] = {}
        self._tasks = self._plan()

    # ------------------------------------------------------------------ start

    def stored_broker_id(self) -> int | None:
        """broker.id of meta.properties, None when there is none. Raises LogDirError when directories disagree."""
        found = self._stored("broker.id")
        return None if found is None else int(found)

    def stored_cluster_id(self) -> str | None:
        """cluster.id of meta.properties."""
        return self._stored("cluster.id")

    def _stored(self, name: str) -> str | None:
        found: dict[str, str] = {}
        for path, directory in self._dirs.items():
            try:
                value = directory.read_identity().get(name)
            except OSError:
                continue  # open() says what is wrong with it
            if value is not None:
                found[value] = path
        if len(found) > 1:
            listed = ", ".join(f"{value} in {path}" for value, path in found.items())
            raise LogDirError(f"the log directories disagree about {name}: {listed}")
        return next(iter(found), None)

    def open(self, broker_id: int, cluster_id: str) -> None:
        """Make, lock and check the directories, write meta.properties.

        Raises LogDirError when a directory belongs to somebody else, or none can be used; one whose disk fails goes
        offline.
        """
        for directory in self._dirs.values():
            try:
                directory.open()
                directory.claim(broker_id, cluster_id)
            except OSError as error:
                self.mark_offline(directory.path, error)
            except LogDirError:
                self._unlock()
                raise
        if not self.live_dirs:
            self._unlock()
            raise self._none_left()

    def _none_left(self) -> LogDirError:
        reasons = "; ".join(f"{path}: {reason}" for path, reason in self.offline_dirs.items())
        return LogDirError(f"no log directory can be used ({reasons}): repair one, or set others in log.dirs")

    def load(self, topic_configs: Mapping[str, LogConfig] | Callable[[str], LogConfig] | None = None) -> None:
        """Open (and recover) every log, in parallel threads per directory; blocking."""
        started = self._clock()
        loaders = [
            threading.Thread(target=self._load_dir, args=(directory, self._config_lookup(topic_configs)))
            for directory in self._dirs.values()
            if directory.failure is None
        ]
        for loader in loaders:
            loader.start()
        for loader in loaders:
            loader.join()
        if not self.live_dirs:
            raise self._none_left()
        self._trash.run_due(MAX_LONG)  # what an earlier life had marked for deletion
        log.info("loaded %d log(s) in %d ms", len(self._logs), self._clock() - started)

    def _config_lookup(
        self, configs: Mapping[str, LogConfig] | Callable[[str], LogConfig] | None
    ) -> Callable[[str], LogConfig]:
        if configs is None:
            return lambda topic: self.default_config
        if callable(configs):
            return configs
        table = configs
        return lambda topic: table.get(topic, self.default_config)

    def _load_dir(self, directory: LogDir, config_of: Callable[[str], LogConfig]) -> None:
        try:
            clean = directory.take_clean_marker()
            tables = [
                directory.read_offsets(name)
                for name in (checkpoints.RECOVERY_POINTS, checkpoints.LOG_START_OFFSETS, checkpoints.HIGH_WATERMARKS)
            ]
            folders = [entry.name for entry in os.scandir(directory.path) if entry.is_dir()]
            with ThreadPoolExecutor(self.settings.num_recovery_threads_per_data_dir, "log-recovery") as pool:
                loads = [pool.submit(self._load_log, directory, name, clean, tables, config_of) for name in folders]
                for load in loads:
                    load.result()
            directory.loaded = True
        except OSError as error:
            self.mark_offline(directory.path, error)

    def _load_log(
        self,
        directory: LogDir,
        folder: str,
        clean: bool,
        tables: Sequence[Mapping[Key, int]],
        config_of: Callable[[str], LogConfig],
    ) -> None:
        parsed = names.parse_folder_name(folder)
        path = f"{directory.path}/{folder}"
        if parsed is None:
            log.warning("%s: not a partition's folder, left alone", path)
            return
        if parsed.mark == "delete":
            self._trash.bury_folder(path, 0)
            return
        if parsed.mark == "stray":
            log.warning("%s: a stray partition, left alone", path)
            return
        key = (parsed.topic, parsed.partition)
        points, starts, watermarks = tables
        known = KnownOffsets(clean, points.get(key, 0), starts.get(key, 0), watermarks.get(key))
        opened = open_log(self._setup(), path, *key, config_of(parsed.topic), known)
        with self._lock:
            table = self._future_logs if parsed.mark else self._logs
            if key in table:
                other = table[key].directory
                raise LogDirError(f"{path} and {other} hold the same partition; remove the one that is not wanted")
            table[key] = opened
            self._counts[directory.path] += 1

    def _setup(self) -> LogSetup:
        return LogSetup(
            self._pool, self._trash, self._clock(), self.settings.producer_id_expiration_ms, self._on_log_failure
        )

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

    def create(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig | None = None, log_dir: str | None = None
    ) -> Log:
        """Return the log, made when missing in the live directory with the fewest logs.

        Raises KafkaError KAFKA_STORAGE_ERROR when that directory is, or just went, offline.
        """
        key = (topic, partition)
        with self._lock:
            existing = self._logs.get(key)
            if existing is not None:
                existing.set_topic_id(topic_id)
                return existing
            live = self.live_dirs
            if key in self._offline_logs or not live or (log_dir is not None and log_dir not in live):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {topic}-{partition} is offline")
            chosen = log_dir or min(live, key=self._counts.__getitem__)
            folder = f"{chosen}/{names.folder_name(topic, partition)}"
            try:
                created = create_log(self._setup(), folder, topic, partition, config or self.default_config, topic_id)
            except OSError as error:
                self.mark_offline(chosen, error)
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"cannot create {folder}: {error.strerror or error}"
                ) from error
            self._logs[key] = created
            self._counts[chosen] += 1
            return created

    def delete(self, topic: str, partition: int) -> None:
        """Take the log away: its folder is renamed `-delete` at once and removed after file.delete.delay.ms."""
        with self._lock:
            gone = self._logs.pop((topic, partition), None)
            if gone is None:
                return
            self._counts[gone.log_dir] -= 1
        path = f"{gone.log_dir}/{names.marked_folder_name(topic, partition, 'delete')}"
        gone.rename_folder(path)
        gone.discard()
        self._trash.bury_folder(path, self._clock() + gone.config.file_delete_delay_ms)
        log.info("%s-%d: deleted, its files go in %d ms", topic, partition, gone.config.file_delete_delay_ms)

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Give every log of a topic its new settings."""
        for (name, _), each in list(self._logs.items()):
            if name == topic:
                each.apply_config(config)

    # ------------------------------------------------------------------ directories

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
            gone = [key for key, each in self._logs.items() if each.log_dir == log_dir]
            for key in gone:
                lost = self._logs.pop(key)
                lost.mark_failed(f"its directory is offline: {reason}")
                self._offline_logs[key] = log_dir
        log.error("log directory %s is offline with %d log(s): %s", log_dir, len(gone), reason)
        if self.on_offline_dir is not None:
            self.on_offline_dir(log_dir, error)
        return gone

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
        tables: dict[str, dict[Key, int]] = {path: {} for path in self.live_dirs}
        for key, each in list(self._logs.items()):
            value = value_of(each)
            if value is not None and each.log_dir in tables:
                tables[each.log_dir][key] = value
        for path, table in tables.items():
            try:
                self._dirs[path].write_offsets(name, table)
            except OSError as error:
                self.mark_offline(path, error)

    def checkpoint_high_watermarks(self) -> None:
        """Write replication-offset-checkpoint of each directory, where it changed."""
        self._checkpoint(checkpoints.HIGH_WATERMARKS, lambda each: each.high_watermark)

    def checkpoint_recovery_points(self) -> None:
        """Write recovery-point-offset-checkpoint, where it changed."""
        self._checkpoint(checkpoints.RECOVERY_POINTS, lambda each: each.recovery_point)

    def checkpoint_log_start_offsets(self) -> None:
        """Write log-start-offset-checkpoint (logs that start inside their first segment), where it changed."""
        self._checkpoint(checkpoints.LOG_START_OFFSETS, _start_to_keep)

    # ------------------------------------------------------------------ regular work

    def _plan(self) -> list[_Task]:
        settings = self.settings
        self._writing_pending = _Task(_WRITE_PENDING_INTERVAL_MS, self._write_pending)
        return [
            self._writing_pending,
            _Task(
                settings.replica_high_watermark_checkpoint_interval_ms, lambda now: self.checkpoint_high_watermarks()
            ),
            _Task(settings.log_flush_offset_checkpoint_interval_ms, lambda now: self.checkpoint_recovery_points()),
            _Task(
                settings.log_flush_start_offset_checkpoint_interval_ms,
                lambda now: self.checkpoint_log_start_offsets(),
            ),
            _Task(settings.log_retention_check_interval_ms, self.retention),
            _Task(settings.log_flush_scheduler_interval_ms, self.flush_due),
            _Task(settings.producer_id_expiration_check_interval_ms, self._expire_producers),
        ]

    def run_due(self, now_ms: int) -> int:
        """Do all regular work that is due; returns when to call again (ms). For a worker thread, one call at a time."""
        self._trash.run_due(now_ms)
        for task in self._tasks:
            if task.due_ms < 0:
                delay = min(task.interval_ms, self.settings.log_initial_task_delay_ms)
                task.due_ms = now_ms + delay
            elif task.due_ms <= now_ms:
                task.run(now_ms)
                task.due_ms = now_ms + task.interval_ms
        due = min(task.due_ms for task in self._tasks)
        trash_due = self._trash.next_due_ms
        return due if trash_due is None else min(due, trash_due)

    def _each(self, logs: Iterable[Log], what: Callable[[Log], object]) -> None:
        """Do something with each log; one that fails has told so, and the others are not to suffer."""
        for each in logs:
            try:
                what(each)
            except KafkaError as error:
                log.warning("%s", error.message)

    def _write_pending(self, now_ms: int) -> None:
        logs = list(self._logs.values())
        self._each([each for each in logs if each.has_pending], Log.write_pending)
        interval_ms = len(logs) * _WRITE_PENDING_MS_PER_LOG
        self._writing_pending.interval_ms = max(_WRITE_PENDING_INTERVAL_MS, interval_ms)

    def retention(self, now_ms: int) -> None:
        """Remove the segments of all logs that may go."""
        self._each(list(self._logs.values()), lambda each: each.retention(now_ms))

    def flush_due(self, now_ms: int) -> None:
        """Flush the logs whose flush.ms has passed."""
        due = []
        for key, each in list(self._logs.items()):
            if each.unflushed_messages and now_ms - self._last_flush.get(key, 0) >= each.config.flush_ms:
                self._last_flush[key] = now_ms
                due.append(each)
        self._each(due, Log.flush)

    def _expire_producers(self, now_ms: int) -> None:
        self._each(list(self._logs.values()), lambda each: each.remove_expired_producers(now_ms))

    # ------------------------------------------------------------------ stop

    def shutdown(self) -> None:
        """Flush and close every log, write the checkpoints and .kafka_cleanshutdown, release the locks."""
        self._flush_all()
        self._each([*self._logs.values(), *self._future_logs.values()], Log.close)
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        self.checkpoint_high_watermarks()
        for directory in self._dirs.values():
            try:
                if directory.failure is None and directory.loaded:
                    directory.write_clean_marker()
            except OSError as error:
                self.mark_offline(directory.path, error)
        self._unlock()

    def _flush_all(self) -> None:
        """Flush the logs that need it: a few one by one, many with one sync of each directory's file system."""
        dirty = [each for each in self._logs.values() if each.unflushed_messages]
        if len(dirty) <= _FEW_LOGS:
            self._each(dirty, Log.flush)
            return
        begun: dict[str, list[tuple[Log, Flush]]] = {}
        for each in dirty:
            try:
                flush = each.begin_flush()
            except KafkaError as error:
                log.warning("%s", error.message)
                continue
            if flush is not None:
                begun.setdefault(each.log_dir, []).append((each, flush))
        for path, flushes in begun.items():
            try:
                self._files.sync_filesystem(path)
            except OSError as error:
                self.mark_offline(path, error)
                continue
            for each, flush in flushes:
                each.end_flush(flush)

    def abandon(self) -> None:
        """Close all files without writing anything, as a crash would leave them (tests)."""
        for each in self._logs.values():
            each.discard()
        self._unlock()

    def _unlock(self) -> None:
        for directory in self._dirs.values():
            directory.unlock()


def _start_to_keep(each: Log) -> int | None:
    return each.log_start_offset if each.log_start_offset > each.segments[0].base_offset else None
