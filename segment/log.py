"""One partition's log: the list of segments; append, read, roll, truncate.

Threads. Every method may be called from any thread. What changes the log takes its lock, and nobody holds that while
waiting for the disk to sync, so the appender (the broker's loop) is never held up by a flush. A slow disk may make its
holder wait: offsets, epochs and settings change without it. Reads take no lock (log_reading.py). For worker threads:
flush, retention, close. Opening is in recovery.py, its files in log_disk.py, answering by time in offset_lookup.py.

An operating system's error means that the log directory has failed: the owner is told (log_health.py), and from then on
every method raises KAFKA_STORAGE_ERROR. What was half written lies beyond the known size and is cut at the next start.
"""

from __future__ import annotations

import logging
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, NoReturn

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.protocol.records.batch import BatchHeader, stamp
from kbroker.protocol.records.compression import MAX_PAYLOAD_SIZE
from kbroker.segment import checkpoints, names
from kbroker.segment.fetched import Lot, check_fetched, cut_into_lots
from kbroker.segment.file_records import FileRecords
from kbroker.segment.files import Buffer, FileRemoved
from kbroker.segment.leader_epochs import LeaderEpochs
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_disk import Flush, LogDisk
from kbroker.segment.log_health import CLOSED, LogHealth, LogOwner
from kbroker.segment.log_producers import LogProducers
from kbroker.segment.log_reading import look_up, read_slice, wait_for_change
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.offset_lookup import TimestampOffset, find_aborted, find_timestamp
from kbroker.segment.producer_state import NOT_ASKED_FOR, Verification, marker_of
from kbroker.segment.retention import deletable_count
from kbroker.segment.transaction_index import AbortedTransaction
from kbroker.segment.validator import AppendOrigin, Batch, RecordErrors, ValidBatch, validate

__all__ = ["AppendOrigin", "AppendResult", "Log", "RecordErrors", "TimestampOffset"]

log = logging.getLogger(__name__)


class AppendResult(NamedTuple):
    """What one append did."""

    base_offset: int
    last_offset: int
    """Smaller than base_offset when nothing was appended (a follower got nothing whole)."""
    log_append_time_ms: int
    """-1 for CreateTime, but for a duplicate the batch's timestamp."""
    log_start_offset: int
    duplicate: bool = False
    """An idempotent batch that was here already: the offsets are the original ones, nothing was written."""


class Log:
    """The log of one partition on this broker."""

    __slots__ = (
        "_health",
        "_lock",
        "_owner",
        "_starting",
        "_truncations",
        "config",
        "disk",
        "first_dirty_offset",
        "high_watermark",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "name",
        "partition",
        "producers",
        "promised_offset",
        "topic",
        "topic_id",
    )

    def __init__(
        self, disk: LogDisk, topic: str, partition: int, config: LogConfig, owner: LogOwner | None = None
    ) -> None:
        """A log that ends where its last segment begins; recovery.py sets the rest."""
        self.topic = topic
        self.partition = partition
        self.name = names.folder_name(topic, partition)
        """`orders-3`."""
        self.config = config
        self.topic_id = ZERO_UUID
        self.log_start_offset = disk.segments[0].base_offset
        self.log_end_offset = disk.segments[-1].base_offset
        self.high_watermark = self.log_start_offset
        """Exclusive. log_start_offset <= high_watermark <= log_end_offset."""
        self.promised_offset = 0
        """Exclusive. What a log had that came back with less, or was cut so; 0 once filled, or nobody has it."""
        self.first_dirty_offset: int | None = None
        """Where the last compaction ended, None when there was none."""
        self.leader_epochs = LeaderEpochs()
        self.producers = LogProducers()
        self.disk = disk
        self._owner = owner
        self._health = LogHealth(self, owner)
        self._lock = self._health.lock
        self._starting = threading.Lock()
        """Held while the log's start moves. The event loop does that: nobody waits for the disk with it."""
        self._truncations = 0
        disk.apply_config(config)

    def __repr__(self) -> str:
        return f"Log({self.name}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def directory(self) -> Path:
        """The partition's folder."""
        return Path(self.disk.folder.path)

    @property
    def log_dir(self) -> str:
        """The log directory (an entry of log.dirs) it lives in."""
        return self.disk.log_dir

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """Ascending, never empty; the last is the active one."""
        return self.disk.segments

    @property
    def active_segment(self) -> LogSegment:
        """The one that grows."""
        return self.disk.segments[-1]

    @property
    def size(self) -> int:
        """Bytes in all .log files."""
        return sum(segment.size for segment in self.segments)

    @property
    def last_stable_offset(self) -> int:
        """min(high watermark, first offset of the earliest undecided transaction), but not below the log's start."""
        unstable = self.producers.state.transactions.first_unstable_offset
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
    def needs_flush(self) -> bool:
        """Whether a flush has anything to do, be it a small file."""
        return self.log_end_offset > self.disk.recovery_point or self.disk.has_unsynced

    @property
    def recovery_point(self) -> int:
        """A recovery need not look at what lies below; more may be on disk (LogDisk.flushed_to)."""
        return self.disk.recovery_point

    @property
    def failure(self) -> str | None:
        """Why the log cannot be used any more, None while it can."""
        return self._health.failure

    # ------------------------------------------------------------------ appending

    def append_as_leader(
        self, batch: Batch, leader_epoch: int, now_ms: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendResult:
        """Check one batch, give it offsets in place and append it.

        Raises KafkaError, whose code answers the partition; RecordErrors names the refused records.
        """
        return self.append_valid(self.validate(batch, now_ms, origin), leader_epoch, now_ms, origin)

    def validate(
        self, batch: Batch, now_ms: int, origin: AppendOrigin = AppendOrigin.CLIENT, room: int = MAX_PAYLOAD_SIZE
    ) -> ValidBatch:
        """Check one batch and bring it into the topic's form. The log is not touched: for a worker thread."""
        return validate(batch, self.config, now_ms, origin == 0, room)

    def append_valid(
        self,
        valid: ValidBatch,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verified: Verification | None = NOT_ASKED_FOR,
    ) -> AppendResult:
        """Give a checked batch its offsets and append it; raises KafkaError 6 when a later leader epoch is known.

        `verified`: what `verify` gave for a batch of a transaction, if it was asked; OF_A_RAISED_EPOCH for a marker.
        """
        with self._lock:
            self.check_usable()
            try:
                return self._append_valid(valid, leader_epoch, now_ms, origin == 0, verified)
            except OSError as error:
                self.fail(error, "append")

    def _append_valid(
        self, valid: ValidBatch, leader_epoch: int, now_ms: int, from_client: bool, verified: Verification | None
    ) -> AppendResult:
        batch, header, max_timestamp, append_time = valid
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        size = len(batch)
        has_producer = header.producer_id >= 0
        marker = None
        if has_producer:
            marker = marker_of(header, batch)
            repeated = self.producers.check(header, marker, from_client, self.segments, verified)
            if repeated is not None:
                return AppendResult(*repeated.place, self.log_start_offset, duplicate=True)
        if size > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes exceed segment.bytes = {self.config.segment_bytes}"
            )
        if leader_epoch != self.leader_epochs.latest_epoch:
            self.leader_epochs.begin(leader_epoch, base_offset)
        stamp(batch, 0, base_offset, leader_epoch)
        segment = self.disk.segments[-1]
        if segment.should_roll(self.config, size, max_timestamp, last_offset, now_ms, self.disk.jitter_ms):
            segment = self._roll(base_offset, now_ms)
        segment.append(batch, base_offset, last_offset, max_timestamp, last_offset)
        self.log_end_offset = last_offset + 1
        if has_producer:
            self.producers.note(header, base_offset, max_timestamp, marker, segment)
        return AppendResult(base_offset, last_offset, append_time, self.log_start_offset)

    def append_as_follower(self, records: Buffer, now_ms: int = 0) -> AppendResult:
        """Append the leader's batches as they are; a batch cut short at the end is left out.

        Raises KafkaError CORRUPT_MESSAGE (CRC, lengths) and OFFSET_OUT_OF_RANGE (offsets that do not continue the log).
        """
        view = memoryview(records)
        headers = check_fetched(view, self.name)
        with self._lock:
            self.check_usable()
            if not headers:
                return AppendResult(self.log_end_offset, self.log_end_offset - 1, -1, self.log_start_offset)
            first, last = headers[0][1], headers[-1][1]
            try:
                if first.base_offset < self.log_end_offset:
                    self._restart_empty_log(first, last)
                for lot in cut_into_lots(headers, self.config.segment_bytes):
                    self._append_fetched(view, lot, now_ms)
            except OSError as error:
                self.fail(error, "append")
            if self.promised_offset and self.log_end_offset >= self.promised_offset:
                log.info("%s: filled again up to %d", self.name, self.log_end_offset)
                self.promised_offset = 0
            return AppendResult(first.base_offset, last.last_offset, -1, self.log_start_offset)

    def _restart_empty_log(self, first: BatchHeader, last: BatchHeader) -> None:
        """The first batch may span the start of an empty log: the leader's log start lies inside of it."""
        if self.log_end_offset != self.log_start_offset or last.last_offset < self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: fetched offset {first.base_offset} lies below the log end offset {self.log_end_offset}",
            )
        self._restart_at(first.base_offset)

    def _append_fetched(self, view: memoryview, lot: Lot, now_ms: int) -> None:
        start, first = lot[0]
        position, last = lot[-1]
        data = view[start : position + last.size]
        newest = max(header.max_timestamp for _, header in lot)
        markers = {place: marker_of(header, view, place) for place, header in lot if header.is_control}
        segment = self.disk.segments[-1]
        if segment.should_roll(self.config, len(data), newest, last.last_offset, now_ms, self.disk.jitter_ms):
            segment = self._roll(first.base_offset, now_ms)
        segment.append_many(data, lot)
        self.log_end_offset = last.last_offset + 1
        for place, header in lot:
            if header.partition_leader_epoch > self.leader_epochs.latest_epoch:
                self.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                self.producers.note(header, header.base_offset, header.max_timestamp, markers.get(place), segment)

    def _roll(self, base_offset: int, now_ms: int) -> LogSegment:
        """Close the active segment and start the next one at base_offset."""
        self.disk.write_epochs(self.leader_epochs)
        config = self.config
        segment = self.disk.roll(base_offset, config, self.producers.state, now_ms)
        if self.config is not config:  # a change that came meanwhile saw no such segment
            self.disk.apply_config(self.config)
        log.debug("%s: rolled at %d", self.name, base_offset)
        if self._owner is not None:
            self._owner.log_rolled(self)
        return segment

    # ------------------------------------------------------------------ reading

    def read(
        self, offset: int, max_bytes: int, limit: int | None = None, min_one_batch: bool = True, patient: bool = True
    ) -> FileRecords:
        """Return the slice of one segment from the batch that holds `offset`, below `limit` (exclusive; None: the end).

        At least one whole batch if min_one_batch, else size 0 when the first is larger than max_bytes; a batch cut
        short at the end is legal. Raises KafkaError OFFSET_OUT_OF_RANGE, and CORRUPT_MESSAGE when the first batch is
        damaged; unless patient NotInMemory, where that would wait for the disk.
        """
        self.check_usable()
        while True:
            try:
                return read_slice(self, offset, max_bytes, limit, min_one_batch, patient)
            except FileRemoved:
                wait_for_change(self)
            except OSError as error:
                self.fail(error, "read")

    def aborted_transactions(self, records: FileRecords, upper: int | None = None) -> list[AbortedTransaction]:
        """Aborted transactions that overlap what `read` returned (for read_committed); upper: exclusive, if known."""
        found = look_up(self, lambda: find_aborted(self.segments, records, upper, self.log_end_offset))
        if records.offset < self.log_start_offset:  # what is known of them went with their segments
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.name}: offset {records.offset} was just removed")
        return found

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """First record at or after the time (or what ListOffsets' special values -1 to -4 stand for)."""
        return look_up(self, lambda: find_timestamp(self, timestamp_ms))

    def offset_for_leader_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch <= the one asked for; (-1, -1) when undefined."""
        return self.leader_epochs.end_offset(epoch, self.log_end_offset)

    # ------------------------------------------------------------------ offsets that move

    def assign_leader_epoch(self, epoch: int, start_offset: int | None = None) -> None:
        """Note that `epoch` starts here (on becoming leader; default: at the log's end); a no-op when known."""
        if self.is_short:  # nobody will fill it now
            lost = f"{self.log_end_offset} to {self.promised_offset - 1}"
            log.error("%s: begins to lead without what it had: offsets %s are lost, or cut off", self.name, lost)
            self.promised_offset = 0
        self.leader_epochs.assign(epoch, self.log_end_offset if start_offset is None else start_offset)

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark (clamped to [log start, end]); return what it is now."""
        if offset < self.log_start_offset:
            offset = self.log_start_offset
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        self.high_watermark = offset  # without the lock: the event loop does this, and does not wait for the disk
        transactions = self.producers.state.transactions
        if transactions.has_decided:
            transactions.replicated(offset)
        return offset

    def update_log_start_offset(self, offset: int) -> bool:
        """Move the log start up (a follower: to its leader's); True when it moved. Segments go with the retention."""
        with self._starting:
            if offset <= self.log_start_offset or offset > self.log_end_offset:
                return False
            self.log_start_offset = offset
            if self.high_watermark < offset:  # else it may be moving at this moment: nobody sets it back
                self.update_high_watermark(offset)
            self.leader_epochs.truncate_from_start(offset)
            return True

    def delete_records(self, offset: int) -> int:
        """DeleteRecords: move the log start to offset (-1: the high watermark); the log start as it is then."""
        if not self.config.is_deleted:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"{self.name}: records cannot be deleted with cleanup.policy=compact"
            )
        target = self.high_watermark if offset == -1 else offset
        if target < 0 or target > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: offset {offset} lies beyond the high watermark {self.high_watermark}",
            )
        self.update_log_start_offset(target)
        return self.log_start_offset

    def truncate_to(self, offset: int, now_ms: int = 0) -> bool:
        """Drop everything at and above `offset`; True when something was cut."""
        with self.changing("truncate"):
            if offset >= self.log_end_offset:
                self.leader_epochs.truncate_from_end(offset)
                return False
            log.info("%s: truncating from %d to %d", self.name, self.log_end_offset, offset)
            if offset < self.segments[0].base_offset:
                self._restart_at(offset)
                return True
            self._promise_no_more_than(offset)
            self.disk.truncate(offset, self.config, now_ms)
            self._end_at(offset, now_ms)
            return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and start an empty log at `offset`."""
        with self.changing("truncate"):
            self._restart_at(offset)

    def _promise_no_more_than(self, offset: int) -> None:
        """Before the end moves back: what comes there is not on disk, nor replicated, whatever checkpoints say."""
        is_lower = offset < max(self.disk.recovery_point, self.high_watermark)
        self.disk.promise_no_more_than(offset)
        self.high_watermark = min(self.high_watermark, offset)
        if is_lower and self._owner is not None:
            self._owner.log_cut(self, offset)

    def _restart_at(self, offset: int) -> None:
        self._promise_no_more_than(offset)
        self.disk.restart(offset, self.config)
        self.disk.apply_config(self.config)  # a change that came meanwhile saw no such segment
        with self._starting:
            self.leader_epochs.clear()
            self.log_start_offset = self.high_watermark = offset
        self._end_at(offset, 0)

    def _end_at(self, offset: int, now_ms: int) -> None:
        """Everything that follows from the log's end having moved back to offset."""
        self._truncations += 1
        self.log_end_offset = offset
        with self._starting:
            self.log_start_offset = min(self.log_start_offset, offset)
        if self.first_dirty_offset is not None:
            self.first_dirty_offset = min(self.first_dirty_offset, self.disk.segments[-1].base_offset)
        self.leader_epochs.truncate_from_end(offset)
        self.producers.rebuild(self.disk.snapshots, self.segments, self.log_start_offset, offset, now_ms)
        self.producers.state.transactions.replicated(self.high_watermark)

    def retention(self, now_ms: int) -> int:
        """Remove the segments that may go; return how many. The lock is not held while their files are renamed."""
        with self.changing("retention"):
            segments = self.segments
            count = deletable_count(
                segments, self.log_start_offset, self.log_end_offset, self.high_watermark, self.config, now_ms
            )
            if not count:
                return 0
            if count == len(segments):
                self._roll(self.log_end_offset, now_ms)
            disk = self.disk
            start = max(self.log_start_offset, disk.segments[count].base_offset)
            log.info("%s: retention removes %d segment(s), the log starts at %d now", self.name, count, start)
            self.update_log_start_offset(start)
            disk.segments = disk.segments[count:]
        self._write_snapshots()  # before those go that tell of producers of what is removed
        try:
            disk.bury(segments[:count], self.config)
        except OSError as error:
            self.fail(error, "retention")
        return count

    # ------------------------------------------------------------------ durability

    def flush(self, up_to: int | None = None) -> None:
        """fsync everything below `up_to` (default: the end) and move the recovery point. For worker threads."""
        while (begun := self.begin_flush(up_to)) is not None:
            try:
                begun.disk.sync(begun)
            except OSError as error:
                with self._lock:
                    is_overtaken = begun.truncations != self._truncations or begun.disk.folder.was_moved(begun.folder)
                    if not (is_overtaken and isinstance(error, FileNotFoundError)):
                        self.fail(error, "flush")
                continue
            if self.end_flush(begun):
                return

    def flush_rolled(self) -> None:
        """Flush what lies below the active segment, and the producer snapshots. For a thread in the background."""
        self._write_snapshots()
        self.flush(self.active_segment.base_offset)

    def begin_flush(self, up_to: int | None = None) -> Flush | None:
        """Write out what waits in memory and say what has to reach the disk; None when everything is there.

        Between this and end_flush the caller syncs: these files, or the whole file system at once.
        """
        with self.changing("flush"):
            self.disk.write_epochs(self.leader_epochs)
            target = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
            return self.disk.begin_flush(target, self._truncations)

    def end_flush(self, begun: Flush) -> bool:
        """Everything below the flush's target is on disk now; False when the log was truncated or moved meanwhile."""
        with self._lock:
            if begun.truncations != self._truncations:
                return False
            begun.disk.end_flush(begun)
            return True

    def write_pending(self) -> None:
        """Let index entries, small files and snapshots that wait in memory reach their files (no sync)."""
        with self.changing("write"):
            self.disk.segments[-1].write_out()
            self.disk.write_epochs(self.leader_epochs)
        self._write_snapshots()

    def _write_snapshots(self) -> None:
        try:
            self.disk.snapshots.write_waiting()
        except OSError as error:
            self.fail(error, "write a producer snapshot")

    def set_topic_id(self, topic_id: bytes) -> None:
        """Give the log its topic's id (partition.metadata); one that has another id keeps it and raises."""
        if topic_id in (ZERO_UUID, self.topic_id):
            return
        if self.topic_id != ZERO_UUID:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{self.name} belongs to another topic of that name")
        with self.changing("write partition.metadata"):
            self.topic_id = topic_id
            self.disk.replace_file(names.PARTITION_METADATA, checkpoints.topic_id_text(topic_id))

    def remove_expired_producers(self, steady_ms: int) -> None:
        """Forget producers that were silent for producer.id.expiration.ms of a clock that nobody sets."""
        state = self.producers.state
        if state.producers or state.verifications:
            with self._lock:
                self.producers.remove_expired(steady_ms)

    def apply_config(self, config: LogConfig) -> None:
        """Use new topic settings from now on."""
        self.config = config
        self.disk.apply_config(config)

    def finish(self) -> None:
        """Write what a clean stop leaves: the producers' state, the last index entries. A flush brings it to disk."""
        with self.changing("close"):
            self.disk.write_epochs(self.leader_epochs)
            self.disk.finish(self.producers.state, self.log_end_offset)

    def close(self) -> None:
        """Finish and close the files. Raises KafkaError when the disk fails."""
        try:
            if self._health.failure is None:
                self.finish()
        finally:
            self.discard()

    def discard(self) -> None:
        """Close the files and write nothing: the log was deleted, or a test plays a crash."""
        self._health.end(CLOSED)
        for segment in self.segments:
            segment.discard()

    @property
    def has_pending(self) -> bool:
        """Whether write_pending has something to write."""
        disk = self.disk
        return self.leader_epochs.dirty or disk.segments[-1].has_pending or disk.snapshots.has_waiting

    def rename_folder(self, path: str, sync: bool = False) -> None:
        """Move the folder, with files that may be open; with `sync` its new name survives a power loss."""
        with self.changing("rename"):
            self.disk.rename_folder(path, sync)

    def exchange(self, other: Log) -> None:
        """Change places on disk with a copy that ends where this log does; its lock is held by the caller."""
        other.disk.rolled_bytes += self.disk.appended_bytes - other.disk.appended_bytes
        self.disk, other.disk = other.disk, self.disk
        self.producers.state.last_snapshot_offset = other.producers.state.last_snapshot_offset
        self.leader_epochs.dirty = True  # the copy's file has no epoch without a batch
        self._truncations += 1  # a flush that overlaps this proves nothing

    # ------------------------------------------------------------------ failure

    def check_usable(self) -> None:
        """Raise KAFKA_STORAGE_ERROR when the log cannot be used any more."""
        if self._health.failure is not None:
            raise self._health.unusable()

    def changing(self, doing: str) -> AbstractContextManager[None]:
        """Hold the lock of a log that can be used; an operating system's error fails the log."""
        return self._health.changing(doing)

    def fail(self, error: OSError, doing: str) -> NoReturn:
        """Tell that the directory has failed; from now on the log refuses everything."""
        self._health.fail(error, doing)

    def mark_failed(self, reason: str) -> None:
        """Refuse everything from now on: the directory has failed elsewhere."""
        self._health.end(reason)
