"""All logs of all log directories: find and open them at the start, make and delete them, look after them.

A directory that fails goes offline with its logs, and the rest serves on. Whoever owns the manager calls `run_due` from
a worker thread when it says so; only what a roll has closed is flushed by threads of its own. Methods may be called
from any thread.

    log_table.py            which logs there are, in which directories; what becomes of them when one fails
    log_loading.py          the start
    offset_checkpoints.py   what directories say of their logs
    background_flush.py     closed segments reach the disk
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.grouping import Key
from kbroker.segment import names
from kbroker.segment.background_flush import BackgroundFlush
from kbroker.segment.files import LEAST_CAPACITY, FilePool, Files, default_capacity
from kbroker.segment.flush_times import FlushTimes
from kbroker.segment.log import Log
from kbroker.segment.log_config import MAX_LONG, LogConfig
from kbroker.segment.log_dir import LogDir, LogDirError
from kbroker.segment.log_disk import Flush
from kbroker.segment.log_loading import LogLoading
from kbroker.segment.log_move import finish_copy
from kbroker.segment.log_table import LogDirDescription, LogTable
from kbroker.segment.offset_checkpoints import OffsetCheckpoints
from kbroker.segment.recovery import LogSetup, create_log
from kbroker.segment.trash import Trash

__all__ = ["LogDirDescription", "LogDirError", "LogManager", "LogManagerSettings"]

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

_WRITE_PENDING_INTERVAL_MS = 1_000
_WRITE_PENDING_MS_PER_LOG = 1
"""With thousands of logs they are looked at more seldom, so that an idle broker stays idle."""
_FEW_LOGS = 16
_LEAST_LOADING_THREADS = 4
"""They wait for the disk most of the time: where nothing is in the page cache, one alone takes twice as long."""


@dataclass(frozen=True, slots=True)
class LogManagerSettings:
    """The broker's keys that concern all logs (their names in snake_case)."""

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

    def __init__(self, interval_ms: int, run: Callable[[int], int | None]) -> None:
        """`run` may say how long it is until the next time."""
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
        steady_clock: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        """Nothing is touched on disk before open(). Clocks give milliseconds: that on the wall, and one never set."""
        self.default_config = default_config or LogConfig()
        self.settings = settings or LogManagerSettings()
        self._files = files or Files()
        self.table = LogTable(log_dirs, self._files, on_offline_dir)
        self.checkpoints = OffsetCheckpoints(self.table)
        self.background = BackgroundFlush()
        self.flush_times = FlushTimes()
        capacity = (self.settings.max_open_files or default_capacity()) // len(self.table.dirs)
        least = max(LEAST_CAPACITY // len(self.table.dirs), 4)
        self._pools = {
            path: FilePool(self._files, max(capacity, least), least, directory.pace, self.flush_times)
            for path, directory in self.table.dirs.items()
        }
        """One for each directory, so that a disk that hangs does not hold up the others."""
        self._trash = {path: Trash(self._files, steady_clock) for path in self.table.dirs}
        self._clock = clock
        self._creating = threading.Lock()
        """Held while a log is made. Taken before any log's lock."""
        self._preferred_dirs: dict[Key, str] = {}
        """Where logs are to be made that do not exist yet."""
        self._move_lock = threading.Lock()
        """Held while a copy takes a log's place, and while a log or a copy is taken away."""
        self._last_flush: dict[Key, int] = {}
        self._tasks = {path: self._plan(path) for path in self.table.dirs}

    # ------------------------------------------------------------------ what there is (log_table.py)

    @property
    def logs(self) -> Mapping[Key, Log]:
        """(topic, partition) -> log, of live directories only."""
        return self.table.logs

    def get(self, topic: str, partition: int) -> Log | None:
        """The log, if this broker has it in a live directory."""
        return self.table.get(topic, partition)

    def future(self, topic: str, partition: int) -> Log | None:
        """The copy of a log that is on its way into another directory."""
        return self.table.future(topic, partition)

    def is_offline(self, topic: str, partition: int) -> bool:
        """Whether the log lies in a directory that went offline."""
        return self.table.is_offline(topic, partition)

    @property
    def directories(self) -> list[str]:
        """All of log.dirs, as absolute paths."""
        return list(self.table.dirs)

    @property
    def live_dirs(self) -> list[str]:
        """Directories in use."""
        return self.table.live_dirs

    @property
    def offline_dirs(self) -> dict[str, str]:
        """Directory -> why it is offline."""
        return self.table.offline_dirs

    @property
    def offline_count(self) -> int:
        """How many logs lie in directories that went offline."""
        return self.table.offline_count

    def mark_offline(self, log_dir: str, error: Exception) -> list[Key]:
        """Take a failing directory out of service; the partitions that went with it."""
        return self.table.mark_offline(log_dir, error)

    def describe(self) -> list[LogDirDescription]:
        """Size of each directory's disk and logs."""
        return self.table.describe()

    # ------------------------------------------------------------------ what logs tell (log_health.py)

    def log_failed(self, failed: Log, error: OSError) -> None:
        """Its directory has failed."""
        self.table.mark_offline(failed.log_dir, error)

    def log_rolled(self, rolled: Log) -> None:
        """What is closed is to reach the disk."""
        self.background.add(rolled)

    def log_cut(self, cut: Log, offset: int) -> None:
        """Its end moves back below what a checkpoint may say."""
        self.checkpoints.lower(cut, offset)

    # ------------------------------------------------------------------ start

    def stored_broker_id(self) -> int | None:
        """broker.id of meta.properties, None when there is none. Raises LogDirError when directories disagree."""
        found = self._stored("broker.id")
        if found is not None and not (found.isascii() and found.isdigit()):
            raise LogDirError(f"meta.properties says broker.id={found}, which is no number: correct it")
        return None if found is None else int(found)

    def stored_cluster_id(self) -> str | None:
        """cluster.id of meta.properties."""
        return self._stored("cluster.id")

    def _stored(self, name: str) -> str | None:
        found: dict[str, str] = {}
        for path, directory in self.table.dirs.items():
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
        for directory in self.table.dirs.values():
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

    def has_whole(self, topic: str, partition: int) -> bool:
        """Whether a log has all that it had, as far as can be told: it may lack what no disk was told to keep.

        What is in a directory that is offline is not here. That a log is flushed before each acknowledgement is
        believed of its past, too: docs/guarantees.md says when it may be set.
        """
        found = self.get(topic, partition)
        if found is None or found.is_short:
            return False
        directory = self.table.dirs.get(found.log_dir)
        return directory is None or not directory.has_lost_power or found.config.flush_messages == 1

    def note_boot(self) -> None:
        """From now on it matters only whether the machine is started anew after this."""
        self._in_each_dir(LogDir.note_boot)

    def note_session(self, session: int, path: str) -> None:
        """Let the next process know by which session this one is registered, where that can be written."""
        try:
            self.table.dirs[path].note_session(session)
        except OSError as error:
            log.warning("%s: the session that this broker is registered by cannot be noted: %s", path, error)

    def former_sessions(self) -> set[int]:
        """By which sessions processes were registered that had these directories before, and are dead for sure."""
        return {session for session in self._in_each_dir(LogDir.former_session) if session is not None}

    def _in_each_dir(self, do: Callable[[LogDir], Answer]) -> list[Answer]:
        answers = []
        for path in self.live_dirs:
            try:
                answers.append(do(self.table.dirs[path]))
            except OSError as error:
                self.mark_offline(path, error)
        return answers

    def _none_left(self) -> LogDirError:
        reasons = "; ".join(f"{path}: {reason}" for path, reason in self.offline_dirs.items())
        return LogDirError(f"no log directory can be used ({reasons}): repair one, or set others in log.dirs")

    def load(self, topic_configs: Mapping[str, LogConfig] | Callable[[str], LogConfig] | None = None) -> None:
        """Open (and recover) every log, in parallel threads per directory; blocking. Raises LogDirError."""
        started = self._clock()
        threads = max(self.settings.num_recovery_threads_per_data_dir, _LEAST_LOADING_THREADS)
        LogLoading(self.table, self._setup, self._bury, self._config_lookup(topic_configs), threads).run()
        if not self.live_dirs:
            raise self._none_left()
        if not all(self.table.dirs[path].was_clean for path in self.live_dirs):
            self.checkpoints.write_high_watermarks()  # first: of a log that came back short nothing must be forgotten
            self.checkpoints.write_recovery_points()  # what was cut, and is appended anew, is not on disk
        for trash in self._trash.values():  # what an earlier life had marked for deletion
            trash.run_due()
        log.info("loaded %d log(s) in %d ms", len(self.logs), self._clock() - started)

    def _config_lookup(
        self, configs: Mapping[str, LogConfig] | Callable[[str], LogConfig] | None
    ) -> Callable[[str], LogConfig]:
        if configs is None:
            return lambda topic: self.default_config
        if callable(configs):
            return configs
        table = configs
        return lambda topic: table.get(topic, self.default_config)

    def set_producer_expiration(self, expiration_ms: int) -> None:
        """Remember idle producers for so long from now on, in the logs there are and in new ones."""
        self.settings = replace(self.settings, producer_id_expiration_ms=expiration_ms)
        for log in list(self.logs.values()):
            log.producers.expiration_ms = expiration_ms

    def _setup(self, log_dir: str) -> LogSetup:
        pool, expiration_ms = self._pools[log_dir], self.settings.producer_id_expiration_ms
        return LogSetup(pool, self._trash[log_dir], self._clock(), expiration_ms, self)

    # ------------------------------------------------------------------ logs

    def create(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig | None = None, log_dir: str | None = None
    ) -> Log:
        """Return the log, made when missing: in `log_dir`, where `prefer` says, or in the live directory with fewest;
        in one that is slow at this moment only where there is no other, as others wait for what is made before them.

        Raises KafkaError KAFKA_STORAGE_ERROR when that directory is, or just went, offline; of the directories that
        nobody has asked for the next one is tried.
        """
        key = (topic, partition)
        with self._creating:
            existing = self.logs.get(key)
            if existing is None:
                wanted = log_dir or self._preferred_dirs.get(key)
                candidates = [path for path in self.table.by_load() if wanted in (None, path)]
                candidates.sort(key=lambda path: self.table.dirs[path].pace.is_slow)
                if self.is_offline(*key) or not candidates:
                    raise KafkaError(
                        ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {topic}-{partition} is offline"
                    )
                created = self._create_in(candidates, names.folder_name(topic, partition), key, config, topic_id)
                self.table.add(key, created)
                self.table.check_not_offline(created.log_dir)
                created.check_usable()
                self._preferred_dirs.pop(key, None)
                return created
        existing.set_topic_id(topic_id)
        return existing

    def _create_in(
        self, candidates: Sequence[str], folder: str, key: Key, config: LogConfig | None, topic_id: bytes
    ) -> Log:
        """Make a log in the first of the directories that does not fail."""
        problem = ""
        for path in candidates:
            try:
                self.checkpoints.forget(path, key)
                return create_log(self._setup(path), f"{path}/{folder}", *key, config or self.default_config, topic_id)
            except OSError as error:
                problem = f"cannot create {path}/{folder}: {error.strerror or error}"
                self.mark_offline(path, error)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, problem)

    def delete(self, keys: Iterable[Key]) -> dict[Key, KafkaError]:
        """Take logs away: folders are renamed `-delete` at once and removed after file.delete.delay.ms; what failed.

        The names are on disk when this returns: one that came back would be taken for the log of the next topic that
        has it. Of many logs call it once.
        """
        failed: dict[Key, KafkaError] = {}
        gone: dict[str, list[Key]] = {}
        for key in keys:
            try:
                log_dir = self._delete(key)
            except KafkaError as error:
                failed[key] = error
            else:
                gone.setdefault(log_dir, []).append(key)
        for log_dir in filter(None, gone):
            try:
                self._files.sync_folder(log_dir)
            except OSError as error:
                self.mark_offline(log_dir, error)
                problem = f"the log directory {log_dir} failed while logs were deleted: {error.strerror or error}"
                failed |= dict.fromkeys(gone[log_dir], KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, problem))
        return failed

    def _delete(self, key: Key) -> str:
        """In which directory the log was that is gone; empty if there is none."""
        self.drop_future(*key)
        with self._move_lock:
            gone = self.table.remove(key)
            if gone is None:
                return ""
            self._last_flush.pop(key, None)
            self._bury(gone, gone.config.file_delete_delay_ms)
        log.info("%s: deleted, its files go in %d ms", gone.name, gone.config.file_delete_delay_ms)
        return gone.log_dir

    def _bury(self, gone: Log, delay_ms: int) -> None:
        """Mark the folder of a log that nobody uses any more, and remove it later."""
        gone.rename_folder(f"{gone.log_dir}/{names.marked_folder_name(gone.topic, gone.partition, 'delete')}")
        self._discard(gone, delay_ms)

    def _discard(self, gone: Log, delay_ms: int) -> None:
        """Close a log whose folder is marked for deletion, and remove that later."""
        gone.discard()
        self._trash[gone.log_dir].bury_folder(str(gone.directory), delay_ms)

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Give every log of a topic its new settings."""
        for each in self.table.all_logs():
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
        present = self.future(topic, partition)
        if present is not None and present.log_dir == log_dir:
            return present
        self.drop_future(topic, partition)
        with self._creating:
            current = self.logs.get(key)
            if current is None or self.offline_dirs:  # the log, or an older copy, may lie in what is offline
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition}: a log directory is offline")
            if current.log_dir == log_dir:
                return None
            folder = names.marked_folder_name(topic, partition, "future")
            created = self._create_in([log_dir], folder, key, current.config, current.topic_id)
            created.first_dirty_offset = current.first_dirty_offset
            self.table.add(key, created, is_future=True)
            self.table.check_not_offline(log_dir)
            return created

    def drop_future(self, topic: str, partition: int) -> None:
        """Give up a copy, if there is one."""
        with self._move_lock:
            gone = self.table.remove((topic, partition), is_future=True)
            if gone is None:
                return
            self._bury(gone, gone.config.file_delete_delay_ms)

    def finish_move(self, topic: str, partition: int, future: Log) -> bool:
        """Let the copy take the log's place (then `settle_move`); False when it lacks too much. Raises KafkaError."""
        key = (topic, partition)
        with self._move_lock:
            current = self.logs.get(key)
            if current is None or self.future(topic, partition) is not future:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition}: the move was given up")
            source = current.log_dir
            if not finish_copy(current, future):
                return False
            self.table.moved(key, source)
            self._discard(future, future.config.file_delete_delay_ms)
        return True

    def settle_move(self, moved: Log) -> None:
        """What a move leaves to be done, and no append need wait for. Raises KafkaError."""
        try:
            moved.flush()
            self.checkpoints.write_all()  # what they say of the log in its former directory must not outlive it
        finally:
            self.table.check_not_offline(moved.log_dir)

    # ------------------------------------------------------------------ regular work

    def _plan(self, path: str) -> list[_Task]:
        settings, files = self.settings, self.checkpoints
        starts_ms = settings.log_flush_start_offset_checkpoint_interval_ms
        return [
            _Task(_WRITE_PENDING_INTERVAL_MS, lambda _: self._write_pending(path)),
            _Task(settings.replica_high_watermark_checkpoint_interval_ms, lambda _: files.write_high_watermarks(path)),
            _Task(settings.log_flush_offset_checkpoint_interval_ms, lambda _: files.write_recovery_points(path)),
            _Task(starts_ms, lambda _: files.write_log_start_offsets(path)),
            _Task(settings.log_retention_check_interval_ms, lambda _: self.retention(self._clock(), path)),
            _Task(settings.log_flush_scheduler_interval_ms, lambda steady_ms: self.flush_due(steady_ms, path)),
            _Task(
                settings.producer_id_expiration_check_interval_ms,
                lambda steady_ms: self._expire_producers(steady_ms, path),
            ),
        ]

    def run_due(self, steady_ms: int, log_dir: str | None = None) -> int:
        """Do all regular work that is due in a directory; returns when to call again (ms). For a worker thread of that
        directory, one call at a time: the others do not wait for its disk. None: all, one after the other.

        Both by a clock that nobody sets; the ages of records go by the one on the wall.
        """
        if log_dir is None:
            return min(self.run_due(steady_ms, path) for path in self._tasks)
        if log_dir not in self.live_dirs:
            return MAX_LONG
        trash, tasks = self._trash[log_dir], self._tasks[log_dir]
        trash.run_due()
        for task in tasks:
            if task.due_ms < 0:
                task.due_ms = steady_ms + min(task.interval_ms, self.settings.log_initial_task_delay_ms)
            elif task.due_ms <= steady_ms:
                task.due_ms = steady_ms + task.interval_ms  # before: one that raises lets the others have a turn
                task.interval_ms = task.run(steady_ms) or task.interval_ms
                task.due_ms = steady_ms + task.interval_ms
        due = min(task.due_ms for task in tasks)
        wait_ms = trash.wait_ms
        return due if wait_ms is None else min(due, steady_ms + wait_ms)

    def _each(self, logs: Iterable[Log], what: Callable[[Log], object]) -> list[Log]:
        """Do something with each log; the others are not to suffer from those, returned, where it fails."""
        failed = []
        for each in logs:
            try:
                what(each)
            except KafkaError as error:  # it has told so
                log.warning("%s", error.message)
                failed.append(each)
            except Exception:
                log.exception("%s: regular work failed", each.name)
                failed.append(each)
        return failed

    def _write_pending(self, log_dir: str) -> int:
        """How long it is until the next time (ms)."""
        logs = [each for each in self.table.all_logs() if each.log_dir == log_dir]
        self._each([each for each in logs if each.has_pending], Log.write_pending)
        self.checkpoints.write_first_dirty_offsets(log_dir)  # what came after a truncation is not to count as compacted
        return max(_WRITE_PENDING_INTERVAL_MS, len(logs) * _WRITE_PENDING_MS_PER_LOG)

    def retention(self, now_ms: int, log_dir: str | None = None) -> None:
        """Remove the segments that may go, of the logs of a directory; None: of all."""
        logs = [each for each in list(self.logs.values()) if log_dir in (None, each.log_dir)]
        self._each(logs, lambda each: each.retention(now_ms))

    def flush_due(self, steady_ms: int, log_dir: str | None = None) -> None:
        """Flush the logs of a directory whose flush.ms has passed; None: of all."""
        due = []
        for key, each in list(self.logs.items()):
            if (
                log_dir in (None, each.log_dir)
                and each.log_end_offset > each.recovery_point
                and steady_ms - self._last_flush.get(key, 0) >= each.config.flush_ms
            ):
                self._last_flush[key] = steady_ms
                due.append(each)
        self._each(due, Log.flush)

    def _expire_producers(self, steady_ms: int, log_dir: str) -> None:
        logs = [each for each in self.table.all_logs() if each.log_dir == log_dir]
        self._each(logs, lambda each: each.remove_expired_producers(steady_ms))

    # ------------------------------------------------------------------ stop

    def shutdown(self) -> None:
        """Flush and close every log, write the checkpoints and .kafka_cleanshutdown, release the locks.

        A directory where any of it fails counts as left by a crash; the others do not suffer.
        """
        self.background.close()
        try:
            logs = self.table.all_logs()
            unfinished = {each.log_dir for each in self._each(logs, Log.finish)}
            self._flush_all([each for each in logs if each.failure is None and each.needs_flush])
            self._each(logs, Log.close)
            self.checkpoints.write_all()
            for directory in self.table.dirs.values():
                try:
                    if directory.failure is None and directory.loaded and directory.path not in unfinished:
                        directory.write_clean_marker()
                except OSError as error:
                    self.mark_offline(directory.path, error)
        finally:
            self._unlock()

    def _flush_all(self, dirty: Sequence[Log]) -> None:
        """Flush the logs: a few one by one, many with one sync of each directory's file system."""
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
        self.background.close()
        for each in self.table.all_logs():
            each.discard()
        self._unlock()

    def _unlock(self) -> None:
        for directory in self.table.dirs.values():
            directory.unlock()
