"""Compacts the logs of a LogManager: threads that take the dirtiest log, compact it, and look again.

A log that cannot be compacted (it is damaged) is left alone from then on, and the others go on; where the disk fails,
its directory goes offline. Followers compact like leaders, each for itself.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from kbroker.protocol.errors import KafkaError
from kbroker.segment.cleaning import Cleaning, CleaningAborted, CleaningLimits, CleaningStats
from kbroker.segment.cleaning_plan import LogToClean, choose, examine
from kbroker.segment.log import Log
from kbroker.segment.log_manager import LogManager
from kbroker.segment.threads import become_nicer
from kbroker.segment.throttle import Throttle

log = logging.getLogger(__name__)

_MOST_MAP_BYTES = (1 << 31) - 1
"""Of one thread, as Kafka has it."""
_MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class LogCleanerSettings:
    """The broker's keys that concern compaction (their names in snake_case)."""

    log_cleaner_enable: bool = True
    log_cleaner_threads: int = 1
    log_cleaner_io_max_bytes_per_second: float = float("inf")
    log_cleaner_dedupe_buffer_size: int = 134_217_728
    log_cleaner_io_buffer_size: int = 524_288
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_backoff_ms: int = 15_000

    def limits(self) -> CleaningLimits:
        """One thread's share."""
        threads = max(self.log_cleaner_threads, 1)
        return CleaningLimits(
            min(self.log_cleaner_dedupe_buffer_size // threads, _MOST_MAP_BYTES),
            self.log_cleaner_io_buffer_load_factor,
            self.log_cleaner_io_buffer_size // threads // 2,
        )


class LogCleaner:
    """Compacts logs from `start` to `stop`.

    `clean_dirtiest` is one turn of a thread. Any thread may call anything.
    """

    def __init__(
        self,
        logs: LogManager,
        settings: LogCleanerSettings | None = None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Nothing happens before start(). `clock` gives milliseconds."""
        self.settings = settings or LogCleanerSettings()
        self.dirtiest_ratio = 0.0
        """Dirty ratio of the dirtiest log when a thread last looked."""
        self._last_run_ms = clock()
        """When that was."""
        self._logs = logs
        self._clock = clock
        self._throttle = Throttle(self.settings.log_cleaner_io_max_bytes_per_second)
        self._lock = threading.Lock()
        """Guards what follows."""
        self._in_progress: set[Log] = set()
        self._uncleanable: set[Log] = set()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Start the threads."""
        if not self.settings.log_cleaner_enable:
            log.info("logs are not compacted (log.cleaner.enable=false)")
            return
        for number in range(self.settings.log_cleaner_threads):
            thread = threading.Thread(target=self._run, args=(self._stopping,), name=f"log-cleaner-{number}")
            self._threads.append(thread)
            thread.start()

    def reconfigure(self, settings: LogCleanerSettings) -> None:
        """Go on with other settings: running compactions are given up and begun anew. Does not wait."""
        if settings == self.settings:
            return
        self._stopping.set()
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self.settings = settings
        self._throttle = Throttle(settings.log_cleaner_io_max_bytes_per_second)
        self._stopping = threading.Event()
        self.start()

    def stop(self) -> None:
        """Give up what is under way and end the threads; blocks until they have."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _run(self, stopping: threading.Event) -> None:
        become_nicer()
        while not stopping.is_set():
            try:
                found = self.clean_dirtiest(stopping)
            except Exception:
                log.exception("looking for a log to compact failed; it goes on")
                found = False
            if not found:
                stopping.wait(self.settings.log_cleaner_backoff_ms / 1000)

    # ------------------------------------------------------------------ one turn

    @property
    def uncleanable(self) -> list[str]:
        """Names of the logs that are left alone because compacting them failed."""
        with self._lock:
            return sorted(each.name for each in self._uncleanable)

    def uncleanable_in(self, log_dir: str) -> int:
        """How many of them a directory holds."""
        with self._lock:
            return sum(each.log_dir == log_dir for each in self._uncleanable)

    @property
    def since_last_run_ms(self) -> int:
        """How long ago a thread last looked for what is dirty; grows where none does any more."""
        return self._clock() - self._last_run_ms

    def clean_dirtiest(self, stopping: threading.Event | None = None) -> bool:
        """Compact the log that needs it most, if any does; whether there was one."""
        plan = self._take()
        if plan is None:
            return False
        try:
            self._clean(plan, stopping or self._stopping)
        finally:
            with self._lock:
                self._in_progress.discard(plan.log)
        return True

    def _take(self) -> LogToClean | None:
        """Choose a log; nobody else takes it until it is given back."""
        now = self._clock()
        with self._lock:
            self._last_run_ms = now
            logs = [each for each in list(self._logs.logs.values()) if each.config.is_compacted]
            self._uncleanable.intersection_update(logs)
            plans = []
            for each in logs:
                if each in self._in_progress or each in self._uncleanable:
                    continue
                if self._logs.future(each.topic, each.partition) is not None:
                    continue  # a copy may have a record whose tombstone it would never see
                try:
                    plans.append(examine(each, now))
                except (KafkaError, OSError, ValueError) as error:
                    self._give_up(each, error)
            self.dirtiest_ratio = max((plan.dirty_ratio for plan in plans), default=0.0)
            chosen = choose(plans)
            for plan in plans:
                if plan.is_reset:
                    log.info("%s: compaction starts over at %d", plan.log.name, plan.first_dirty_offset)
                    plan.log.first_dirty_offset = plan.first_dirty_offset
            if chosen is not None:
                self._in_progress.add(chosen.log)
            return chosen

    def _clean(self, plan: LogToClean, stopping: threading.Event) -> None:
        def pause(size: int) -> None:
            self._throttle.take(size, stopping)
            if stopping.is_set():
                raise CleaningAborted

        try:
            self._secure(plan)
            stats = Cleaning(plan, self.settings.limits(), self._clock(), pause).run()
        except CleaningAborted:
            log.info("%s: its compaction was given up", plan.log.name)
        except OSError as error:
            self._disk_failed(plan.log, error)
        except Exception as error:
            with self._lock:
                self._give_up(plan.log, error)
        else:
            self._logs.checkpoints.write_first_dirty_offsets()
            self._report(plan.log, stats)

    def _secure(self, plan: LogToClean) -> None:
        """Let what may be compacted reach the disk, and then note that.

        Were the power to fail between the first exchange of files and the note of how far the compaction came, what it
        had left out would look like what did not reach the disk (behind_damage.py). A start lowers recovery points to
        the high watermark, so that is noted, too.
        """
        try:
            plan.log.flush(plan.first_uncleanable_offset)
        except KafkaError as error:  # it has told so, or was deleted
            raise CleaningAborted from error
        self._logs.checkpoints.write_high_watermarks(plan.log.log_dir)
        self._logs.checkpoints.write_recovery_points(plan.log.log_dir)

    def _give_up(self, failed: Log, error: Exception) -> None:
        """Leave a log alone from now on. The lock is held."""
        self._uncleanable.add(failed)
        known = isinstance(error, KafkaError | OSError | ValueError)
        log.error(
            "%s cannot be compacted and will not be tried again before the next start: %s",
            failed.name,
            error,
            exc_info=None if known else error,
        )

    def _disk_failed(self, failed: Log, error: OSError) -> None:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            log.warning("%s: no room on the disk to compact it: %s", failed.name, error)
            self._stopping.wait(self.settings.log_cleaner_backoff_ms / 1000)
            return
        log.error("%s: compacting it failed: %s", failed.name, error)
        self._logs.mark_offline(failed.log_dir, error)

    def _report(self, cleaned: Log, stats: CleaningStats) -> None:
        removed = 1 - stats.bytes_kept / stats.bytes_read if stats.bytes_read else 0.0
        log.info(
            "%s: compacted [%d, %d): read %.1f MB (%d records), kept %.1f MB (%d records, %.0f%% smaller)"
            " in %.2f s (%.2f s for the keys, map %.0f%% full)",
            cleaned.name,
            stats.first_dirty_offset,
            stats.end_offset,
            stats.bytes_read / _MEGABYTE,
            stats.records_read,
            stats.bytes_kept / _MEGABYTE,
            stats.records_kept,
            100 * removed,
            stats.seconds,
            stats.map_seconds,
            100 * stats.map_utilization,
        )
        if stats.null_keys:
            log.warning("%s: %d records without a key were removed", cleaned.name, stats.null_keys)
