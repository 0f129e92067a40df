"""What a log consists of, what can be said of it at a glance, and what becomes of it when its disk fails."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.segment import names
from kbroker.segment.files import FilePool, Folder
from kbroker.segment.leader_epochs import LeaderEpochs
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.producer_snapshots import ProducerSnapshots
from kbroker.segment.producer_state import ProducerState
from kbroker.segment.trash import Trash

log = logging.getLogger(__name__)

PRODUCER_EXPIRATION_MS = 86_400_000


class LogState:
    """A log's parts; `Log` is what one does with them."""

    __slots__ = (
        "_failure",
        "_folder",
        "_jitter_ms",
        "_lock",
        "_on_failure",
        "_pool",
        "_trash",
        "_truncations",
        "_unsynced",
        "_unsynced_names",
        "config",
        "first_dirty_offset",
        "high_watermark",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "producer_expiration_ms",
        "producer_state",
        "promised_offset",
        "recovery_point",
        "segments",
        "snapshots",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        pool: FilePool,
        folder: Folder,
        topic: str,
        partition: int,
        config: LogConfig,
        segments: Sequence[LogSegment],
        trash: Trash | None = None,
        on_failure: Callable[[LogState, OSError], None] | None = None,
    ) -> None:
        """A log that ends where its last segment begins; recovery.py sets the rest."""
        self._pool = pool
        self._folder = folder
        self.topic = topic
        self.partition = partition
        self.config = config
        self.segments: tuple[LogSegment, ...] = tuple(segments)
        """Ascending, never empty; the last is the active one."""
        self.topic_id = ZERO_UUID
        self.log_start_offset = self.segments[0].base_offset
        self.log_end_offset = self.segments[-1].base_offset
        self.high_watermark = self.log_start_offset
        """Exclusive. log_start_offset <= high_watermark <= log_end_offset."""
        self.recovery_point = self.log_start_offset
        """Everything below is on disk."""
        self.promised_offset = 0
        """Exclusive. What checkpoints say a log holds that came back with less; 0 once it was filled, or leads."""
        self.first_dirty_offset: int | None = None
        """Where the last compaction ended, None when there was none."""
        self.leader_epochs = LeaderEpochs()
        self.producer_state = ProducerState()
        self.producer_expiration_ms = PRODUCER_EXPIRATION_MS
        self.snapshots = ProducerSnapshots(pool.files, folder)
        self._trash = trash if trash is not None else Trash(pool.files)
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._failure: str | None = None
        """Why the log can no longer be used."""
        self._truncations = 0
        """How often the end moved back: a flush that overlaps such a moment proves nothing."""
        self._unsynced: list[str] = []
        """Small files that the next flush has to sync."""
        self._unsynced_names = 2
        """Names the next flush has to sync: 0 none, 1 those of the files in the folder, 2 the folder itself too."""
        self._jitter_ms = roll_jitter_ms(config)

    def __repr__(self) -> str:
        return f"Log({self.name}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def name(self) -> str:
        """`orders-3`."""
        return names.folder_name(self.topic, self.partition)

    @property
    def directory(self) -> Path:
        """The partition's folder."""
        return Path(self._folder.path)

    @property
    def log_dir(self) -> str:
        """The log directory (an entry of log.dirs) it lives in."""
        return self._folder.path.rpartition("/")[0]

    @property
    def active_segment(self) -> LogSegment:
        """The one that grows."""
        return self.segments[-1]

    @property
    def size(self) -> int:
        """Bytes in all .log files."""
        return sum(segment.size for segment in self.segments)

    @property
    def last_stable_offset(self) -> int:
        """min(high watermark, first offset of the earliest undecided transaction), but not below the log's start."""
        unstable = self.producer_state.transactions.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log_start_offset), self.high_watermark)

    @property
    def is_short(self) -> bool:
        """Whether the log came back with less than it had, and has not been filled since."""
        return self.promised_offset > 0

    @property
    def offset_to_checkpoint(self) -> int:
        """The high watermark; that of a short log stays what it was, so that the next start finds it short, too."""
        return self.promised_offset if self.is_short else self.high_watermark

    @property
    def latest_epoch(self) -> int:
        """Latest known leader epoch, -1 when there is none."""
        return self.leader_epochs.latest_epoch

    @property
    def truncations(self) -> int:
        """Changes when the log's end moves back or the log into another directory: what was read may not hold."""
        return self._truncations

    @property
    def unflushed_messages(self) -> int:
        """Records that are not known to be on disk (compare with flush.messages)."""
        return self.log_end_offset - self.recovery_point

    @property
    def failure(self) -> str | None:
        """Why the log cannot be used any more, None while it can."""
        return self._failure

    # ------------------------------------------------------------------ failure

    @contextmanager
    def changing(self, doing: str) -> Iterator[None]:
        """Hold the lock of a log that can be used; an operating system's error fails the log."""
        with self._lock:
            if self._failure is not None:
                raise self._unusable()
            try:
                yield
            except OSError as error:
                self.fail(error, doing)

    def exchange(self, other: LogState) -> None:
        """Change places on disk with a copy that ends where this log does; its lock is held by the caller."""
        for name in _ON_DISK:
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, theirs)
            setattr(other, name, mine)
        self.first_dirty_offset = self._first_dirty_of_copy(other)
        self.producer_state.last_snapshot_offset = other.producer_state.last_snapshot_offset
        self.leader_epochs.dirty = True  # the copy's file has no epoch without a batch
        self._truncations += 1  # a flush that overlaps this proves nothing

    def _first_dirty_of_copy(self, other: LogState) -> int | None:
        """What was copied before a compaction is dirty still; the copy's segments begin at offsets of their own."""
        mine, theirs = self.first_dirty_offset, other.first_dirty_offset
        if mine is None or theirs is None:
            return None
        starts = [each.base_offset for each in self.segments]
        return max((start for start in starts if start <= min(mine, theirs)), default=starts[0])

    def mark_failed(self, reason: str) -> None:
        """Refuse everything from now on: the directory has failed elsewhere."""
        self._failure = self._failure or reason

    def _unusable(self) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name}: the log cannot be used: {self._failure}")

    def fail(self, error: OSError, doing: str) -> NoReturn:
        """Tell that the directory has failed; from now on the log refuses everything."""
        self._failure = f"{doing} failed: {error.strerror or error}"
        log.error("%s: %s in %s", self.name, self._failure, self._folder.path)
        if self._on_failure is not None:
            self._on_failure(self, error)
        raise self._unusable() from error


_ON_DISK = (
    "_folder",
    "_unsynced",
    "_unsynced_names",
    "recovery_point",
    "segments",
    "snapshots",
)
"""What of a log goes with its files."""


def roll_jitter_ms(config: LogConfig) -> int:
    """Spreads the rolls of many partitions over segment.jitter.ms."""
    limit = min(config.segment_jitter_ms, config.segment_ms)
    return random.randrange(limit) if limit > 0 else 0
