"""All logs of all log directories: find and open them at the start, make and delete them, look after them.

A directory that fails goes offline with its logs, and the rest serves on. Nothing here starts a thread that outlives a
call: whoever owns the manager calls `run_due` from a worker thread when it says so. Methods may be called from any
thread. Which logs there are, and in which directories, is log_table.py.
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

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.segment import checkpoints, names
from kbroker.segment.files import FilePool, Files
from kbroker.segment.log import Flush, Log
from kbroker.segment.log_config import MAX_LONG, LogConfig
from kbroker.segment.log_dir import LogDir, LogDirError
from kbroker.segment.log_move import copy_portion, finish_copy, is_same_log
from kbroker.segment.log_table import Key, LogDirDescription, LogTable
from kbroker.segment.recovery import KnownOffsets, LogSetup, create_log, open_log
from kbroker.segment.trash import Trash

__all__ = ["LogDirDescription", "LogDirError", "LogManager", "LogManagerSettings"]

log = logging.getLogger(__name__)

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


class _Task:
    """Something to do at intervals."""

    __slots__ = ("due_ms", "interval_ms", "run")

    def __init__(self, interval_ms: int, run: Callable[[int], None]) -> None:
        self.interval_ms = interval_ms
        self.run = run
        self.due_ms = -1
        """-1: not planned yet."""


class LogManager(LogTable):
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
        super().__init__(log_dirs, files or Files(), on_offline_dir)
        self.default_config = default_config or LogConfig()
        self.settings = settings or LogManagerSettings()
        self._pool = FilePool(self._files, self.settings.max_open_files)
        self._trash = Trash(self._files)
        self._clock = clock
        self._preferred_dirs: dict[Key, str] = {}
        """Where logs are to be made that do not exist yet."""
        self._move_lock = threading.Lock()
        """Held while a copy takes a log's place, and while a log or a copy is taken away."""
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
        """Open (and recover) every log, in parallel threads per directory; blocking. Raises LogDirError."""
        started = self._clock()
        directories = [directory for directory in self._dirs.values() if directory.failure is None]
        with ThreadPoolExecutor(len(directories), "log-loading") as pool:
            config_of = self._config_lookup(topic_configs)
            for loading in [pool.submit(self._load_dir, directory, config_of) for directory in directories]:
                loading.result()
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
                for name in (
                    checkpoints.RECOVERY_POINTS,
                    checkpoints.LOG_START_OFFSETS,
                    checkpoints.HIGH_WATERMARKS,
                    checkpoints.FIRST_DIRTY_OFFSETS,
                )
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
        points, starts, watermarks, dirty = tables
        known = KnownOffsets(clean, points.get(key, 0), starts.get(key, 0), watermarks.get(key), dirty.get(key))
        opened = open_log(self._setup(), path, *key, config_of(parsed.topic), known)
        with self._lock:
            table = self._future_logs if parsed.mark else self._logs
            if key in table:
                self._settle_duplicate(table[key], opened, bool(parsed.mark))
                return
            table[key] = opened
            self._counts[directory.path] += 1

    def _settle_duplicate(self, known: Log, other: Log, is_future: bool) -> None:
        """A crash between the two renames at the end of a move leaves two logs that are the same: either will do.

        Of two copies on their way, which a directory that was away may bring back, either can be given up.
        """
        if not is_future and not is_same_log(known, other):
            places = f"{other.directory} and {known.directory}"
            raise LogDirError(f"{places} hold the same partition; remove the one that is not wanted")
        log.warning("%s goes: %s is the same, or another copy on its way", other.directory, known.directory)
        self._bury(other, 0)

    def _setup(self) -> LogSetup:
        return LogSetup(
            self._pool, self._trash, self._clock(), self.settings.producer_id_expiration_ms, self._on_log_failure
        )

    # ------------------------------------------------------------------ logs

    def create(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig | None = None, log_dir: str | None = None
    ) -> Log:
        """Return the log, made when missing: in `log_dir`, where `prefer` says, or in the live directory with fewest.

        Raises KafkaError KAFKA_STORAGE_ERROR when that directory is, or just went, offline; of the directories that
        nobody has asked for the next one is tried.
        """
        key = (topic, partition)
        with self._lock:
            existing = self._logs.get(key)
            if existing is not None:
                existing.set_topic_id(topic_id)
                return existing
            wanted = log_dir or self._preferred_dirs.get(key)
            live = sorted(self.live_dirs, key=self._counts.__getitem__)
            candidates = live if wanted is None else [path for path in live if path == wanted]
            if key in self._offline_logs or not candidates:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {topic}-{partition} is offline")
            created = self._create_in(candidates, names.folder_name(topic, partition), key, config, topic_id)
            self._logs[key] = created
            self._preferred_dirs.pop(key, None)
            return created

    def _create_in(
        self, candidates: Sequence[str], folder: str, key: Key, config: LogConfig | None, topic_id: bytes
    ) -> Log:
        """Make a log in the first of the directories that does not fail."""
        problem = ""
        for path in candidates:
            try:
                setup = self._setup()
                created = create_log(setup, f"{path}/{folder}", *key, config or self.default_config, topic_id)
            except OSError as error:
                problem = f"cannot create {path}/{folder}: {error.strerror or error}"
                self.mark_offline(path, error)
                continue
            self._counts[path] += 1
            return created
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, problem)

    def delete(self, topic: str, partition: int) -> None:
        """Take the log away: its folder is renamed `-delete` at once and removed after file.delete.delay.ms."""
        self.drop_future(topic, partition)
        with self._move_lock:
            with self._lock:
                gone = self._logs.pop((topic, partition), None)
                if gone is None:
                    return
                self._counts[gone.log_dir] -= 1
            self._bury(gone, gone.config.file_delete_delay_ms)
        log.info("%s-%d: deleted, its files go in %d ms", topic, partition, gone.config.file_delete_delay_ms)

    def _bury(self, gone: Log, delay_ms: int) -> None:
        """Mark the folder of a log that nobody uses any more, and remove it later."""
        gone.rename_folder(f"{gone.log_dir}/{names.marked_folder_name(gone.topic, gone.partition, 'delete')}")
        self._discard(gone, delay_ms)

    def _discard(self, gone: Log, delay_ms: int) -> None:
        """Close a log whose folder is marked for deletion, and remove that later."""
        gone.discard()
        self._trash.bury_folder(str(gone.directory), self._clock() + delay_ms)

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Give every log of a topic its new settings."""
        for each in self._all_logs():
            if each.topic == topic:
                each.apply_config(config)

    # ------------------------------------------------------------------ moves

    def prefer(self, topic: str, partition: int, log_dir: str) -> None:
        """Remember where a log is to be made that does not exist yet."""
        self._preferred_dirs[topic, partition] = log_dir

    def create_future(self, topic: str, partition: int, log_dir: str) -> Log | None:
        """Begin a copy of the log in another directory; the one there is; None when the log is there already.

        A copy on its way elsewhere is given up. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        key = (topic, partition)
        with self._lock:
            present = self._future_logs.get(key)
            if present is not None and present.log_dir == log_dir:
                return present
        self.drop_future(topic, partition)
        with self._lock:
            current = self._logs.get(key)
            if current is None or self.offline_dirs:  # the log, or an older copy, may lie in what is offline
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition}: a log directory is offline")
            if current.log_dir == log_dir:
                return None
            folder = names.marked_folder_name(topic, partition, "future")
            created = self._create_in([log_dir], folder, key, current.config, current.topic_id)
            created.first_dirty_offset = current.first_dirty_offset
            self._future_logs[key] = created
            return created

    def drop_future(self, topic: str, partition: int) -> None:
        """Give up a copy, if there is one."""
        with self._move_lock:
            with self._lock:
                gone = self._future_logs.pop((topic, partition), None)
                if gone is None:
                    return
                self._counts[gone.log_dir] -= 1
            self._bury(gone, gone.config.file_delete_delay_ms)

    def finish_move(self, topic: str, partition: int, future: Log, max_bytes: int) -> bool:
        """Let the copy take the log's place; False when it lacks more than `max_bytes`. Raises KafkaError."""
        key = (topic, partition)
        current = self._logs.get(key)
        if current is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition}: there is nothing to move")
        future.flush()
        copy_portion(current, future, max_bytes)
        with self._move_lock:
            if self._logs.get(key) is not current or self._future_logs.get(key) is not future:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition}: the move was given up")
            source, destination = current.log_dir, future.log_dir
            if not finish_copy(current, future):
                return False
            with self._lock:
                self._future_logs.pop(key, None)
                self._counts[source] -= 1
            self._discard(future, future.config.file_delete_delay_ms)
        current.flush()
        self.checkpoint_recovery_points()  # what they say of the log in its former directory must not outlive it
        self.checkpoint_log_start_offsets()
        self.checkpoint_first_dirty_offsets()
        self.check_not_offline(destination)
        return True

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
            elif task.due_ms <= now_ms or task.due_ms > now_ms + task.interval_ms:  # the latter: a clock set back
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
        logs = self._all_logs()
        self._each([each for each in logs if each.has_pending], Log.write_pending)
        interval_ms = len(logs) * _WRITE_PENDING_MS_PER_LOG
        self.checkpoint_first_dirty_offsets()  # soon after a truncation: what is new is not to count as compacted
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

    def _expire_producers(self, _now_ms: int) -> None:
        steady_ms = time.monotonic_ns() // 1_000_000
        self._each(self._all_logs(), lambda each: each.remove_expired_producers(steady_ms))

    # ------------------------------------------------------------------ stop

    def shutdown(self) -> None:
        """Flush and close every log, write the checkpoints and .kafka_cleanshutdown, release the locks."""
        self._flush_all()
        self._each(self._all_logs(), Log.close)
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        self.checkpoint_first_dirty_offsets()
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
        dirty = [each for each in self._all_logs() if each.unflushed_messages]
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
        for each in self._all_logs():
            each.discard()
        self._unlock()

    def _unlock(self) -> None:
        for directory in self._dirs.values():
            directory.unlock()
