"""One partition's log: the list of segments; append, read, roll, truncate. (Skeleton: signatures are final, bodies follow.)

Threads: every method may be called from any thread. Mutations take the log's own lock, which nobody holds while waiting
for the disk to sync; reads take no lock. A partition has one appender (the broker's loop); flush, retention and
delete_records may run beside it in worker threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from segment.leader_epochs import LeaderEpochs
from segment.log_config import LogConfig
from segment.log_segment import FileRecords
from segment.producer_state import AbortedTransaction, ProducerState


class AppendOrigin(IntEnum):
    """Who sends a batch; decides which checks apply."""

    CLIENT = 0
    COORDINATOR = 1
    REPLICATION = 2


class AppendResult(NamedTuple):
    """What one append did."""

    base_offset: int
    last_offset: int
    """-1 when nothing was appended (empty follower append)."""
    log_append_time_ms: int
    """-1 for CreateTime."""
    log_start_offset: int
    duplicate: bool
    """An idempotent batch that was here already: offsets are the original ones, nothing was written."""
    rolled: bool
    max_timestamp_ms: int


class TimestampOffset(NamedTuple):
    """Answer of an offset look-up by timestamp."""

    timestamp_ms: int
    offset: int
    leader_epoch: int
    """-1 when not known."""


class Log:
    """The log of one partition on this broker."""

    __slots__ = ()

    topic: str
    partition: int
    config: LogConfig
    topic_id: bytes
    """16 bytes; ZERO_UUID when the log has none."""
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    """Exclusive. log_start_offset <= high_watermark <= log_end_offset."""
    recovery_point: int
    """Everything below is on disk."""
    leader_epochs: LeaderEpochs
    producer_state: ProducerState

    @property
    def directory(self) -> Path:
        """The partition's folder."""
        raise NotImplementedError

    @property
    def log_dir(self) -> str:
        """The log directory (an entry of log.dirs) it lives in."""
        raise NotImplementedError

    @property
    def last_stable_offset(self) -> int:
        """min(high watermark, first offset of the earliest undecided transaction)."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Bytes in all .log files."""
        raise NotImplementedError

    def append_as_leader(
        self,
        batch: bytearray | memoryview,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        request_version: int = 11,
    ) -> AppendResult:
        """Validate one batch (a Produce request's records of one partition), give it offsets in place, append it.

        Raises KafkaError (its code is the partition's answer), RecordErrors for refused records; DiskError → dir offline.
        """
        raise NotImplementedError

    def append_as_follower(self, records: bytes | bytearray | memoryview) -> AppendResult:
        """Append batches fetched from the leader as they are; a partial batch at the end is ignored."""
        raise NotImplementedError

    def read(
        self, offset: int, max_bytes: int, limit: int | None = None, min_one_batch: bool = True
    ) -> FileRecords:
        """Return the slice of one segment from the batch holding `offset`, below `limit` (exclusive; None: LEO).

        `size` 0 when there is nothing. Raises KafkaError OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE.
        """
        raise NotImplementedError

    def aborted_transactions(self, records: FileRecords, upper: int | None = None) -> list[AbortedTransaction]:
        """Aborted transactions which overlap what `read` returned (for read_committed fetches)."""
        raise NotImplementedError

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """First record at or after the time. ListOffsets' special values: -1 latest, -2/-4 earliest, -3 max timestamp."""
        raise NotImplementedError

    def offset_for_leader_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as in OffsetForLeaderEpoch; (-1, -1) when undefined."""
        raise NotImplementedError

    def assign_leader_epoch(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` starts here (on becoming leader); a no-op when known."""
        raise NotImplementedError

    @property
    def latest_epoch(self) -> int:
        """Epoch of the last record, -1 when there is none."""
        raise NotImplementedError

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark (clamped to [log start, LEO]); return what it is now."""
        raise NotImplementedError

    def update_log_start_offset(self, offset: int) -> bool:
        """Followers: move log start up to the leader's; True when it moved."""
        raise NotImplementedError

    def delete_records(self, offset: int) -> int:
        """DeleteRecords: log start := offset (-1: high watermark); return the new log start. Raises KafkaError."""
        raise NotImplementedError

    def truncate_to(self, offset: int) -> bool:
        """Drop everything at and above `offset`; True when something was cut."""
        raise NotImplementedError

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and start an empty log at `offset`."""
        raise NotImplementedError

    def flush(self, up_to: int | None = None) -> None:
        """fsync everything below `up_to` (default LEO) and move the recovery point. Worker threads."""
        raise NotImplementedError

    def retention(self, now_ms: int) -> int:
        """Remove the segments that may go; return how many. Worker threads."""
        raise NotImplementedError

    def apply_config(self, config: LogConfig) -> None:
        """Use new topic settings from now on."""
        raise NotImplementedError

    def legacy_segment_offsets(self, max_offsets: int, timestamp_ms: int) -> Sequence[int]:
        """ListOffsets v0: segment base offsets, newest first."""
        raise NotImplementedError

    def close(self) -> None:
        """Flush nothing; write what a clean shutdown leaves (snapshot, last time index entry); close the files."""
        raise NotImplementedError
