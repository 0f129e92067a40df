"""One partition's log: the list of segments; append, read, roll, truncate.

Threads. Every method may be called from any thread. What changes the log takes its lock, and nobody holds that while
waiting for the disk to sync, so the appender (the broker's loop) is never held up by a flush. Reads take no lock: they
see the list of segments as it was, for it is replaced, never changed. Meant for worker threads, because they wait for
the disk: flush, retention, close. Opening a log is in recovery.py, answering by timestamp in offset_lookup.py.

An operating system's error means that the log directory has failed: it is told to `on_failure`, and from then on every
method raises KAFKA_STORAGE_ERROR. What was half written lies beyond the known size and is cut at the next start.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.protocol.records.batch import BatchHeader, stamp
from kbroker.protocol.records.compression import MAX_PAYLOAD_SIZE
from kbroker.segment import checkpoints, names
from kbroker.segment.cleaned_segment import CleanedSegment
from kbroker.segment.fetched import Lot, check_fetched, cut_into_lots
from kbroker.segment.file_records import FileRecords
from kbroker.segment.files import Buffer
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.log_state import LogState, roll_jitter_ms
from kbroker.segment.names import SWAP
from kbroker.segment.offset_lookup import TimestampOffset, find_aborted, find_segment_offsets, find_timestamp
from kbroker.segment.producer_snapshots import recall
from kbroker.segment.producer_state import CachedBatch, Marker, marker_of
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
    rolled: bool = False


class Flush(NamedTuple):
    """A flush under way."""

    target: int
    segments: list[LogSegment]
    active: LogSegment
    small_files: list[str]
    names: int
    """As LogState's _unsynced_names."""
    truncations: int


class Log(LogState):
    """The log of one partition on this broker."""

    __slots__ = ()

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
        self, valid: ValidBatch, leader_epoch: int, now_ms: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendResult:
        """Give a checked batch its offsets and append it; raises KafkaError 6 when a later leader epoch is known."""
        with self._lock:
            if self._failure is not None:
                raise self._unusable()
            try:
                return self._append_valid(valid, leader_epoch, now_ms, origin == 0)
            except OSError as error:
                self.fail(error, "append")

    def _append_valid(self, valid: ValidBatch, leader_epoch: int, now_ms: int, from_client: bool) -> AppendResult:
        batch, header, max_timestamp, append_time = valid
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        size = len(batch)
        has_producer = header.producer_id >= 0
        marker = None
        if has_producer:
            marker = marker_of(header, batch)
            if marker is not None:
                self.producer_state.check_marker(header, marker.coordinator_epoch)
            repeated = self._check_producer(header, from_client)
            if repeated is not None:
                return self._duplicate(repeated)
        if size > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes exceed segment.bytes = {self.config.segment_bytes}"
            )
        if leader_epoch != self.leader_epochs.latest_epoch:
            self.leader_epochs.begin(leader_epoch, base_offset)
        stamp(batch, 0, base_offset, leader_epoch)
        segment = self.segments[-1]
        rolled = segment.should_roll(self.config, size, max_timestamp, last_offset, now_ms, self._jitter_ms)
        if rolled:
            segment = self._roll(base_offset, now_ms)
        segment.append(batch, base_offset, last_offset, max_timestamp, last_offset)
        self.log_end_offset = last_offset + 1
        if has_producer:
            self._note_producer(header, base_offset, max_timestamp, marker)
        return AppendResult(base_offset, last_offset, append_time, self.log_start_offset, False, rolled)

    def _check_producer(self, header: BatchHeader, from_client: bool) -> CachedBatch | None:
        try:
            return self.producer_state.check(header, from_client)
        except KafkaError as error:
            entry = self.producer_state.producers[header.producer_id]
            if error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or not entry.is_from_snapshot:
                raise
            recall(self.producer_state, self.segments)
            return self.producer_state.check(header, from_client)

    def _duplicate(self, batch: CachedBatch) -> AppendResult:
        return AppendResult(
            batch.first_offset,
            batch.last_offset,
            batch.timestamp,  # as in Kafka, with CreateTime too
            self.log_start_offset,
            duplicate=True,
        )

    def _note_producer(self, header: BatchHeader, base_offset: int, max_timestamp: int, marker: Marker | None) -> None:
        aborted = self.producer_state.append(header, base_offset, max_timestamp, marker)
        if aborted is not None:
            index = self.segments[-1].transaction_index(create=True)
            assert index is not None
            index.append(aborted)

    def append_as_follower(self, records: Buffer, now_ms: int = 0) -> AppendResult:
        """Append the leader's batches as they are; a batch cut short at the end is left out.

        Raises KafkaError CORRUPT_MESSAGE (CRC, lengths) and OFFSET_OUT_OF_RANGE (offsets that do not continue the log).
        """
        view = memoryview(records)
        headers = check_fetched(view, self.name)
        with self._lock:
            if self._failure is not None:
                raise self._unusable()
            if not headers:
                return AppendResult(self.log_end_offset, self.log_end_offset - 1, -1, self.log_start_offset)
            first, last = headers[0][1], headers[-1][1]
            try:
                if first.base_offset < self.log_end_offset:
                    self._restart_empty_log(first, last)
                rolled = False
                for lot in cut_into_lots(headers, self.config.segment_bytes):
                    rolled |= self._append_fetched(view, lot, now_ms)
            except OSError as error:
                self.fail(error, "append")
            if self.promised_offset and self.log_end_offset >= self.promised_offset:
                log.info("%s: filled again up to %d", self.name, self.log_end_offset)
                self.promised_offset = 0
            return AppendResult(first.base_offset, last.last_offset, -1, self.log_start_offset, False, rolled)

    def _restart_empty_log(self, first: BatchHeader, last: BatchHeader) -> None:
        """The first batch may span the start of an empty log: the leader's log start lies inside of it."""
        if self.log_end_offset != self.log_start_offset or last.last_offset < self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: fetched offset {first.base_offset} lies below the log end offset {self.log_end_offset}",
            )
        self._restart_at(first.base_offset)

    def _append_fetched(self, view: memoryview, lot: Lot, now_ms: int) -> bool:
        start, first = lot[0]
        position, last = lot[-1]
        data = view[start : position + last.size]
        newest = max(header.max_timestamp for _, header in lot)
        markers = {place: marker_of(header, view, place) for place, header in lot if header.is_control}
        segment = self.segments[-1]
        rolled = segment.should_roll(self.config, len(data), newest, last.last_offset, now_ms, self._jitter_ms)
        if rolled:
            segment = self._roll(first.base_offset, now_ms)
        segment.append_many(data, lot)
        self.log_end_offset = last.last_offset + 1
        for place, header in lot:
            if header.partition_leader_epoch > self.leader_epochs.latest_epoch:
                self.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                self._note_producer(header, header.base_offset, header.max_timestamp, markers.get(place))
        return rolled

    def _roll(self, base_offset: int, now_ms: int) -> LogSegment:
        """Close the active segment and start the next one at base_offset."""
        self.segments[-1].finish()
        snapshot = self.snapshots.take(self.producer_state, base_offset)
        if snapshot is not None:
            self._unsynced.append(snapshot)
        self._write_small_files()
        segment = LogSegment(self._pool, self._folder, base_offset, self.config, now_ms)
        segment.create()
        self._unsynced_names |= 1
        self.segments = (*self.segments, segment)
        self._jitter_ms = roll_jitter_ms(self.config)
        log.debug("%s: rolled at %d", self.name, base_offset)
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
        segments, active_size, end_offset = self._extent()
        if not self.log_start_offset <= offset <= end_offset:
            message = f"{self.name}: offset {offset} is not in [{self.log_start_offset}, {end_offset}]"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if self._failure is not None:
            raise self._unusable()
        if limit is None or limit > end_offset:
            limit = end_offset
        number = len(segments) - 1
        if offset < segments[number].base_offset:
            number = max(bisect_right(segments, offset, key=_base_offset) - 1, 0)
        try:
            while offset < limit and number < len(segments):
                segment = segments[number]
                number += 1
                end = segment.size if number < len(segments) else active_size
                following = segments[number].base_offset if number < len(segments) else end_offset
                if limit < following:
                    end = segment.find(limit, patient) if limit > segment.base_offset else 0
                records = segment.slice(offset, end, max_bytes, min_one_batch, patient)
                if records is not None:
                    return records
        except OSError as error:
            self.fail(error, "read")
        active = segments[-1]
        return FileRecords(active.file, active.size, 0, active.base_offset, offset)

    def _extent(self) -> tuple[tuple[LogSegment, ...], int, int]:
        """The segments, how far the active one is filled, and the end offset, as of one moment.

        Another thread may append: the bytes come first, the end offset last. So all of that size lies below that end.
        """
        while True:
            segments = self.segments
            size = segments[-1].size
            end_offset = self.log_end_offset
            if segments is self.segments:
                return segments, size, end_offset

    def aborted_transactions(self, records: FileRecords, upper: int | None = None) -> list[AbortedTransaction]:
        """Aborted transactions that overlap what `read` returned (for read_committed); upper: exclusive, if known."""
        return find_aborted(self.segments, records, upper, self.log_end_offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """First record at or after the time (or what ListOffsets' special values -1 to -4 stand for)."""
        return find_timestamp(self, timestamp_ms)

    def offset_for_leader_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch <= the one asked for; (-1, -1) when undefined."""
        return self.leader_epochs.end_offset(epoch, self.log_end_offset)

    def legacy_segment_offsets(self, max_offsets: int, timestamp_ms: int) -> list[int]:
        """ListOffsets v0: base offsets, newest first, of segments changed at or before a time (-1, -2: as usual)."""
        return find_segment_offsets(self, max_offsets, timestamp_ms)

    # ------------------------------------------------------------------ offsets that move

    def assign_leader_epoch(self, epoch: int, start_offset: int | None = None) -> None:
        """Note that `epoch` starts here (on becoming leader; default: at the log's end); a no-op when known."""
        with self._lock:
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
        if self.producer_state.transactions.has_decided:
            with self._lock:
                self._set_high_watermark(offset)
        else:
            self.high_watermark = offset
        return offset

    def _set_high_watermark(self, offset: int) -> None:
        """The lock is held."""
        self.high_watermark = offset
        self.producer_state.transactions.replicated(offset)

    def update_log_start_offset(self, offset: int) -> bool:
        """Move the log start up (a follower: to its leader's); True when it moved. Segments go with the retention."""
        with self._lock:
            if offset <= self.log_start_offset or offset > self.log_end_offset:
                return False
            self._set_log_start_offset(offset)
            return True

    def _set_log_start_offset(self, offset: int) -> None:
        """The lock is held."""
        self.log_start_offset = offset
        self._set_high_watermark(max(self.high_watermark, offset))
        self.leader_epochs.truncate_from_start(offset)

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
            kept = tuple(segment for segment in self.segments if segment.base_offset <= offset)
            self._drop(self.segments[len(kept) :], kept, now_ms)
            kept[-1].truncate_to(offset, now_ms)
            self._end_at(offset, now_ms)
            return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and start an empty log at `offset`."""
        with self.changing("truncate"):
            self._restart_at(offset)

    def _restart_at(self, offset: int) -> None:
        old = self.segments
        fresh = LogSegment(self._pool, self._folder, offset, self.config, old[-1].created_ms)
        for segment in old:
            self._trash.discard(segment.files())
        fresh.create()
        self._unsynced_names |= 1
        self.segments = (fresh,)
        self.snapshots.remove_all()
        self.leader_epochs.clear()
        self.log_start_offset = offset
        self._end_at(offset, 0)

    def _end_at(self, offset: int, now_ms: int) -> None:
        """Everything that follows from the log's end having moved back to offset."""
        self._truncations += 1
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.recovery_point = min(self.recovery_point, offset)
        if self.first_dirty_offset is not None:
            self.first_dirty_offset = min(self.first_dirty_offset, self.segments[-1].base_offset)
        self.leader_epochs.truncate_from_end(offset)
        self.snapshots.rebuild(
            self.producer_state, self.segments, self.log_start_offset, offset, now_ms, self.producer_expiration_ms
        )
        self.producer_state.transactions.replicated(self.high_watermark)

    def _drop(self, dropped: Sequence[LogSegment], kept: tuple[LogSegment, ...], now_ms: int) -> None:
        """Take segments out of the log; their files go file.delete.delay.ms later: slices may still be on their way."""
        self.segments = kept
        for segment in dropped:
            self._trash.bury(segment.files(), now_ms + self.config.file_delete_delay_ms)
            self.snapshots.remove(segment.base_offset)

    def retention(self, now_ms: int) -> int:
        """Remove the segments that may go; return how many."""
        with self.changing("retention"):
            segments = self.segments
            count = deletable_count(
                segments, self.log_start_offset, self.log_end_offset, self.high_watermark, self.config, now_ms
            )
            if not count:
                return 0
            if count == len(segments):
                self._roll(self.log_end_offset, now_ms)
            self._drop(segments[:count], self.segments[count:], now_ms)
            start = max(self.log_start_offset, self.segments[0].base_offset)
            log.info("%s: retention removed %d segment(s), the log starts at %d now", self.name, count, start)
            self._set_log_start_offset(start)
            return count

    # ------------------------------------------------------------------ compaction

    def newest_batches(self) -> dict[int, tuple[int, int]]:
        """Producer id -> last offset of its newest data batch (-1: only a marker is known), and its epoch."""
        with self._lock:
            producers = list(self.producer_state.producers.values())
            return {
                entry.producer_id: (entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
                for entry in producers
            }

    def replace_segments(
        self, replaced: Sequence[LogSegment], cleaned: CleanedSegment, truncations: int, now_ms: int
    ) -> bool:
        """Put a compacted segment in the place of those it was made of.

        False, and nothing done, when they are not the log's any more, or it was truncated or moved since.
        """
        with self.changing("swap compacted segments in"):
            segments = self.segments
            first = segments.index(replaced[0]) if replaced[0] in segments else len(segments)
            behind = first + len(replaced)
            if truncations != self._truncations or segments[first:behind] != tuple(replaced):
                return False
            cleaned.rename(SWAP)
            for segment in replaced:
                self._trash.bury(segment.files(), now_ms + self.config.file_delete_delay_ms)
            cleaned.rename("")
            fresh = cleaned.to_segment(self.config, replaced[0].created_ms)
            self.segments = (*segments[:first], fresh, *segments[behind:])
            for segment in replaced[1:]:
                self.snapshots.remove(segment.base_offset)
        try:
            self._pool.files.sync_folder(self._folder.path)
        except OSError as error:
            with self._lock:
                self.fail(error, "swap compacted segments in")
        return True

    def note_cleaned(self, end_offset: int, truncations: int) -> bool:
        """Note that everything below an offset is compacted, unless the log was truncated or moved meanwhile."""
        with self._lock:
            if truncations != self._truncations:
                return False
            self.first_dirty_offset = end_offset
            return True

    # ------------------------------------------------------------------ durability

    def flush(self, up_to: int | None = None) -> None:
        """fsync everything below `up_to` (default: the end) and move the recovery point. For worker threads."""
        while (begun := self.begin_flush(up_to)) is not None:
            self._sync(begun)
            if self.end_flush(begun):
                return

    def _sync(self, begun: Flush) -> None:
        try:
            for segment in begun.segments:
                segment.sync(with_indexes=segment is not begun.active)
            for name in begun.small_files:
                self._pool.files.sync_path(f"{self._folder.path}/{name}")
            if begun.names or begun.small_files:
                self._pool.files.sync_folder(self._folder.path)
            if begun.names > 1:
                self._pool.files.sync_folder(self.log_dir)
        except OSError as error:
            with self._lock:
                if begun.truncations == self._truncations:  # else the files may be gone by right
                    self.fail(error, "flush")

    def begin_flush(self, up_to: int | None = None) -> Flush | None:
        """Write out what waits in memory and say what has to reach the disk; None when everything is there.

        Between this and end_flush the caller syncs: these files, or the whole file system at once.
        """
        with self.changing("flush"):
            target = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
            if target <= self.recovery_point:
                return None
            segments = self.segments
            first = max(bisect_right(segments, self.recovery_point, key=_base_offset) - 1, 0)
            dirty = [segment for segment in segments[first:] if segment.base_offset < target]
            for segment in dirty:
                if segment is not segments[-1]:
                    segment.write_out()
            self._write_small_files()
            small_files, self._unsynced = self._unsynced, []
            names_made, self._unsynced_names = self._unsynced_names, 0
            return Flush(target, dirty, segments[-1], small_files, names_made, self._truncations)

    def end_flush(self, begun: Flush) -> bool:
        """Everything below the flush's target is on disk now; False when the log was truncated or moved meanwhile."""
        with self._lock:
            if begun.truncations != self._truncations:
                return False
            self.recovery_point = max(self.recovery_point, begun.target)
            return True

    def write_pending(self) -> None:
        """Let index entries and small files that wait in memory reach their files (no sync)."""
        with self.changing("write"):
            self.segments[-1].write_out()
            self._write_small_files()

    def _write_small_files(self) -> None:
        if self.leader_epochs.dirty:
            self.leader_epochs.dirty = False
            self._replace_file(names.LEADER_EPOCHS, checkpoints.leader_epochs_text(self.leader_epochs.entries))

    def set_topic_id(self, topic_id: bytes) -> None:
        """Give the log its topic's id (partition.metadata); one that has another id keeps it and raises."""
        if topic_id in (ZERO_UUID, self.topic_id):
            return
        if self.topic_id != ZERO_UUID:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{self.name} belongs to another topic of that name")
        with self.changing("write partition.metadata"):
            self.topic_id = topic_id
            self._replace_file(names.PARTITION_METADATA, checkpoints.topic_id_text(topic_id))

    def _replace_file(self, name: str, data: bytes) -> None:
        self._pool.files.replace_file(f"{self._folder.path}/{name}", data, sync=False)
        self._unsynced.append(name)

    def remove_expired_producers(self, steady_ms: int) -> None:
        """Forget producers that were silent for producer.id.expiration.ms of a clock that nobody sets."""
        if self.producer_state.producers:
            with self._lock:
                self.producer_state.remove_expired(steady_ms, self.producer_expiration_ms)

    def apply_config(self, config: LogConfig) -> None:
        """Use new topic settings from now on."""
        with self._lock:
            self.config = config
            self._jitter_ms = roll_jitter_ms(config)
            for segment in self.segments:
                segment.apply_config(config)

    def close(self) -> None:
        """Write what a clean shutdown leaves (producer snapshot, last time index entry) and close the files."""
        with self._lock:
            try:
                if self._failure is None:
                    self.segments[-1].finish()
                    self.snapshots.take(self.producer_state, self.log_end_offset)
                    self._write_small_files()
            finally:
                self._failure = self._failure or "it is closed"
                for segment in self.segments:
                    segment.close()

    def discard(self) -> None:
        """Close the files and write nothing: the log was deleted, or a test plays a crash."""
        self.mark_failed("it is closed")
        for segment in self.segments:
            segment.discard()

    @property
    def has_pending(self) -> bool:
        """Whether write_pending has something to write."""
        return self.leader_epochs.dirty or self.segments[-1].has_pending

    def rename_folder(self, path: str) -> None:
        """Move the folder, with files that may be open."""
        with self.changing("rename"):
            self._pool.move_folder(self._folder, path)


def _base_offset(segment: LogSegment) -> int:
    return segment.base_offset
