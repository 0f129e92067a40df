"""One compaction of one log: map the keys of its dirty part, then rewrite its segments, group by group.

Reads closed segments without a lock and writes new files beside them; only the exchange takes the log's lock. Nobody
waits for a compaction, not even who truncates or deletes the log: it notices, at the next chunk or at the exchange, and
gives up.
"""

from __future__ import annotations

import array
import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD
from kbroker.protocol.records.batch_chunk import BatchChunk
from kbroker.protocol.records.control import ControlType, read_marker
from kbroker.protocol.records.offset_map import BYTES_PER_ENTRY, OffsetMap
from kbroker.protocol.records.record_filter import RecordFilter
from kbroker.segment.cleaned_segment import CleanedSegment
from kbroker.segment.cleaned_transactions import CleanedTransactions
from kbroker.segment.cleaning_plan import LogToClean, group_segments, segments_between
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.lost_aborts import enter_lost_aborts
from kbroker.segment.offset_lookup import collect_aborted
from kbroker.segment.producer_state import marker_of

log = logging.getLogger(__name__)

_SMALLEST_CHUNK = 4096


class CleaningAborted(Exception):
    """The compaction is given up: the cleaner stops, or the log was truncated, moved, deleted, or has failed."""


@dataclass(frozen=True, slots=True)
class CleaningLimits:
    """What one compaction may take."""

    map_bytes: int
    """For the keys."""
    load_factor: float
    """How full the map may get."""
    chunk_bytes: int
    """Read at once; a larger batch is read alone."""


@dataclass(slots=True)
class CleaningStats:
    """What one compaction did."""

    first_dirty_offset: int
    end_offset: int = -1
    """Where the next one begins."""
    bytes_read: int = 0
    bytes_kept: int = 0
    records_read: int = 0
    records_kept: int = 0
    null_keys: int = 0
    map_utilization: float = 0.0
    map_seconds: float = 0.0
    seconds: float = 0.0


class Cleaning:
    """A compaction under way.

    `pause(size)` is called before so many bytes are read or written: to throttle, or to raise CleaningAborted.
    """

    def __init__(self, plan: LogToClean, limits: CleaningLimits, now_ms: int, pause: Callable[[int], None]) -> None:
        self.plan = plan
        self.log = plan.log
        self.now_ms = now_ms
        self.stats = CleaningStats(plan.first_dirty_offset)
        self._limits = limits
        self._pause = pause
        self._truncations = plan.log.truncations
        segments = plan.log.segments
        self._first_base_offset = segments[0].base_offset
        self._ends = {each.base_offset: following.base_offset for each, following in pairwise(segments)}
        """Base offset of a segment -> that of the next."""
        self._chunk = BatchChunk()
        self._map = OffsetMap(self._map_bytes(), limits.load_factor)

    def _map_bytes(self) -> int:
        """Twice what the dirty offsets can need at most, so that short searches are the rule; within the limit."""
        offsets = self.plan.first_uncleanable_offset - self.plan.first_dirty_offset
        needed = int((2 * offsets + 16) / self._limits.load_factor) * BYTES_PER_ENTRY
        return min(needed, self._limits.map_bytes)

    def run(self) -> CleaningStats:
        """Do it. Raises CleaningAborted, OSError, and KafkaError where the log is damaged."""
        try:
            return self._run()
        except Exception as error:
            if self._is_stale:  # what was read may have been cut or removed under our hands
                raise CleaningAborted from error
            raise

    @property
    def _is_stale(self) -> bool:
        """Whether the log has failed, lost segments at either end, or is not to be compacted any more."""
        segments = self.log.segments
        return (
            self.log.failure is not None
            or not self.log.config.is_compacted
            or self.log.truncations != self._truncations
            or segments[0].base_offset != self._first_base_offset
        )

    def _run(self) -> CleaningStats:
        begun = time.monotonic()
        self._map_keys()
        end = self.stats.end_offset = self._map.latest_offset + 1
        self.stats.map_seconds = time.monotonic() - begun
        self.stats.map_utilization = self._map.utilization
        config = self.log.config
        filtering = RecordFilter(self._map, self.now_ms, config.delete_retention_ms, config.index_interval_bytes)
        transactions = CleanedTransactions()
        segments = segments_between(self.log, 0, end)
        groups = group_segments(
            segments, config.segment_bytes, config.segment_index_bytes, self.plan.first_uncleanable_offset
        )
        for group in groups:
            self._clean_group(group, filtering, transactions)
        self.stats.records_read, self.stats.records_kept = filtering.records_read, filtering.records_kept
        self.stats.null_keys = filtering.null_keys
        with self.log.changing("note what is compacted"):
            if self.log.truncations != self._truncations:
                raise CleaningAborted
            self.log.first_dirty_offset = end
        self.stats.seconds = time.monotonic() - begun
        return self.stats

    def _check(self, size: int) -> None:
        self._pause(size)
        if self._is_stale:
            raise CleaningAborted

    def _chunks(self, segment: LogSegment, position: int) -> Iterator[BatchChunk]:
        """The segment's batches from a position on, always in the same BatchChunk."""
        floor = segment.base_offset
        while position < segment.size:
            size = min(max(self._limits.chunk_bytes, _SMALLEST_CHUNK), segment.size - position)
            self._check(size)
            data = segment.file.read(size, position)
            if not self._chunk.read(data, floor):
                size = int.from_bytes(data[8:12], "big") + LOG_OVERHEAD
                data = segment.file.read(min(size, segment.size - position), position)
                if not self._chunk.read(data, floor):
                    raise segment.corrupt(position, "the last batch is cut short")
            if self._chunk.next_offset > self._ends[segment.base_offset]:
                raise segment.corrupt(position, f"offset {self._chunk.next_offset - 1} belongs into the next segment")
            yield self._chunk
            position += self._chunk.end
            floor = self._chunk.next_offset

    # ------------------------------------------------------------------ keys

    def _map_keys(self) -> None:
        """Fill the map from the dirty segments, until it is full; it then says how far it came."""
        start, end = self.plan.first_dirty_offset, self.plan.first_uncleanable_offset
        self._map.latest_offset = start - 1
        transactions = CleanedTransactions()
        transactions.add(collect_aborted(self.log.segments, start, end))
        self._decide_behind(self._fill_map(start, end, transactions), transactions)
        self._check_aborts(transactions)

    def _fill_map(self, start: int, end: int, transactions: CleanedTransactions) -> int:
        """Up to where it has looked."""
        for segment in segments_between(self.log, start, end):
            position = segment.find(start) if start > segment.base_offset else 0
            for chunk in self._chunks(segment, position):
                for each in chunk.special:
                    header = chunk.header(each)
                    if header.is_control:
                        transactions.on_marker(header, _control_type(chunk, each))
                    chunk.decide(each, discard=header.is_control or transactions.on_data(header))
                if not chunk.add_keys_to(self._map, start):
                    return int(chunk.next_offset)
            self._map.latest_offset = self._ends[segment.base_offset] - 1
        return int(self._map.latest_offset) + 1

    def _decide_behind(self, offset: int, transactions: CleanedTransactions) -> None:
        """Look for the markers of the transactions that go on behind what is mapped; all are decided.

        Damage there is none of what is to be cleaned: the look ends with it.
        """
        with suppress(KafkaError):
            for segment in segments_between(self.log, offset, self.log.log_end_offset):
                position = segment.find(offset) if offset > segment.base_offset else 0
                for place, header in segment.headers(position):
                    if not transactions.has_undecided:
                        return
                    self._check(header.size if header.is_control else HEADER_SIZE)
                    if header.is_control:
                        marker = marker_of(header, segment.read_batch(place, header))
                        transactions.on_marker(header, None if marker is None else marker.control_type)

    def _check_aborts(self, transactions: CleanedTransactions) -> None:
        """Remove nothing by what a transaction index says that has lost entries: the next round finds them there."""
        if not transactions.lost:
            return
        segments = self.log.segments
        bases = [each.base_offset for each in segments]
        holders = [segments[number] for number in sorted({bisect_right(bases, each) - 1 for each in transactions.lost})]
        entered = sum(enter_lost_aborts(self.log, each) for each in holders)
        indexes = [index for each in holders if (index := each.transaction_index()) is not None]
        known = {entry.last_offset for index in indexes for entry in index.entries}
        if not entered and not known.issuperset(transactions.lost):  # nor was the scrubber quicker
            why = f"no transaction ends with the ABORT marker at offset {transactions.lost[0]}"
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.log.name}: {why}")
        raise CleaningAborted

    # ------------------------------------------------------------------ segments

    def _clean_group(
        self, group: Sequence[LogSegment], filtering: RecordFilter, transactions: CleanedTransactions
    ) -> None:
        """Rewrite a group of segments into one and let it take their place."""
        for segment in group:  # a reader that still has one of these must not open its successor's files
            _ = segment.index, segment.time_index, segment.transaction_index()
        modified_ns = group[-1].file.change_time_ns()
        max_index_bytes = self.log.config.segment_index_bytes
        cleaned = CleanedSegment(group[0].pool, group[0].folder, group[0].base_offset, max_index_bytes)
        try:
            with self.log.changing("compact"):
                newest = self.log.producers.newest_batches()
            last_offsets = array.array("q", sorted(offset for offset, _ in newest.values() if offset >= 0))
            filtering.begin(last_offsets.tobytes())
            for segment in group:
                start = segment.base_offset
                transactions.add(collect_aborted(self.log.segments, start, self._ends[start]))
                for chunk in self._chunks(segment, 0):
                    self._decide(chunk, transactions, newest, cleaned)
                    with filtering.filter(chunk) as kept:
                        self._check(len(kept))
                        if kept:
                            cleaned.append(kept, filtering.marks)
                    self.stats.bytes_read += chunk.end
            self._check_aborts(transactions)
            cleaned.finish(filtering.max_timestamp, filtering.max_timestamp_offset, modified_ns)
        except BaseException:
            cleaned.discard()
            raise
        self.stats.bytes_kept += cleaned.size
        if not self._swap_in(group, cleaned):
            cleaned.discard()
            raise CleaningAborted

    def _swap_in(self, group: Sequence[LogSegment], cleaned: CleanedSegment) -> bool:
        """Put it in the group's place, unless the log was truncated, moved or shortened meanwhile, or keeps all now."""
        log = self.log
        with log.changing("swap compacted segments in"):
            if log.truncations != self._truncations or not log.config.is_compacted:
                return False
            if not log.disk.replace(group, cleaned, log.config):
                return False
        try:
            cleaned.pool.files.sync_folder(cleaned.folder.path)
        except OSError as error:
            log.fail(error, "swap compacted segments in")
        return True

    def _decide(
        self,
        chunk: BatchChunk,
        transactions: CleanedTransactions,
        newest: dict[int, tuple[int, int]],
        cleaned: CleanedSegment,
    ) -> None:
        """Say what becomes of the markers and of the data of transactions.

        The header of the very last batch stays: where nothing follows, a new replica learns by it where the log ends.
        """
        last = chunk.count - 1 if chunk.next_offset == self.plan.first_uncleanable_offset else -1
        if last >= 0:
            chunk.decide(last, discard=False, keep_empty=True)
        for each in chunk.special:
            header = chunk.header(each)
            if not header.is_control:
                chunk.decide(each, discard=transactions.on_data(header), keep_empty=each == last)
                continue
            may_go, aborted = transactions.on_marker(header, _control_type(chunk, each))
            if aborted is not None:
                cleaned.add_aborted(aborted)
            is_over = header.has_delete_horizon and header.base_timestamp <= self.now_ms
            # A producer of which nothing but a marker is known: the marker holds its epoch, which fences older ones.
            is_newest = newest.get(header.producer_id) == (-1, header.producer_epoch)
            chunk.decide(each, may_go and is_over, is_newest or each == last, ends_empty_transaction=may_go)


def _control_type(chunk: BatchChunk, number: int) -> ControlType | None:
    """What a marker says; None when compaction has emptied it."""
    return read_marker(chunk.batch(number))[0] if chunk.header(number).count else None
