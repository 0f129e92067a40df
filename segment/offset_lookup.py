"""Look-ups across segments: offsets by timestamp, aborted transactions of a slice.

By timestamp: the segment by its largest timestamp, the batch by the time index, then the record. That may mean to read
and unpack a batch, or several: for worker threads. What unpacks to much is unpacked by one thread at a time.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.messages.offsets import EARLIEST, EARLIEST_LOCAL, LATEST, MAX_TIMESTAMP
from kbroker.protocol.records.batch import BatchHeader
from kbroker.protocol.records.errors import UnpacksToMore
from kbroker.protocol.records.message_set import messages
from kbroker.protocol.records.record import find_time
from kbroker.segment.file_records import FileRecords
from kbroker.segment.files import NotInMemory
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.time_lookup import find_start
from kbroker.segment.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from kbroker.segment.log import Log

_SMALL_PAYLOAD = 4 << 20
_unpacking_much = threading.Lock()


class TimestampOffset(NamedTuple):
    """Answer of a look-up by timestamp."""

    timestamp_ms: int
    """-1 for the log's start and end."""
    offset: int
    leader_epoch: int
    """-1 when not known."""


def find_timestamp(log: Log, timestamp_ms: int) -> TimestampOffset | None:
    """First record at or after the time, or what one of ListOffsets' special values stands for."""
    if timestamp_ms == LATEST:
        return TimestampOffset(-1, log.log_end_offset, log.leader_epochs.latest_epoch)
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return TimestampOffset(-1, start, log.leader_epochs.epoch_for_offset(start))
    if timestamp_ms == MAX_TIMESTAMP:
        return _find_largest(log)
    for segment in log.segments:
        if segment.max_timestamp >= timestamp_ms:
            found = _first_at_or_after(segment, timestamp_ms, log.log_start_offset)
            if found is not None:
                return found
    return None


def _find_largest(log: Log) -> TimestampOffset | None:
    """The first record that has the log's largest timestamp."""
    segment = max(log.segments, key=lambda each: each.max_timestamp)
    timestamp = segment.max_timestamp
    if timestamp < 0:
        return None
    return _first_at_or_after(segment, timestamp, max(log.log_start_offset, segment.base_offset))


def _first_at_or_after(segment: LogSegment, timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
    position = find_start(segment, timestamp_ms, max(start_offset, segment.base_offset))
    for place, header in segment.headers(position):
        if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset and header.count > 0:
            found = _record_at_or_after(segment, place, header, timestamp_ms, start_offset)
            if found is not None:
                return found
    return None


def _record_at_or_after(
    segment: LogSegment, position: int, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> TimestampOffset | None:
    batch = segment.read_batch(position, header)
    if header.magic < 2:
        for message in messages(batch, 0, len(batch)):
            if message.timestamp >= timestamp_ms and message.offset >= start_offset:
                return TimestampOffset(message.timestamp, message.offset, -1)
        return None
    try:
        found = find_time(batch, timestamp_ms, start_offset, bytearray(), _SMALL_PAYLOAD)
    except UnpacksToMore:
        with _unpacking_much:
            found = find_time(batch, timestamp_ms, start_offset, bytearray())
    return None if found is None else TimestampOffset(*found, header.partition_leader_epoch)


def find_aborted(
    segments: Sequence[LogSegment], records: FileRecords, upper: int | None, log_end_offset: int
) -> list[AbortedTransaction]:
    """Aborted transactions that overlap a slice.

    Its offsets end before the batch at the next index entry (which may be damaged: only the batch is believed), where
    that is not in memory with the segment, and at `upper` if given.
    """
    number = max(bisect_right(segments, records.segment_base_offset, key=lambda segment: segment.base_offset) - 1, 0)
    end = None
    if segments[number].file is records.file:  # compaction may have replaced the slice's segment
        segment = segments[number]
        position = segment.index.position_at_or_after(records.position + records.size, segment.size)
        with suppress(KafkaError, NotInMemory):
            end = None if position is None else segment.header_at(position, patient=False).base_offset
    highest = segments[number + 1].base_offset if number + 1 < len(segments) else log_end_offset
    if end is None or not records.offset < end <= highest:  # no checksum covers a batch's base offset
        end = highest
    return collect_aborted(segments, records.offset, end if upper is None else min(end, upper))


def collect_aborted(segments: Sequence[LogSegment], start: int, end: int) -> list[AbortedTransaction]:
    """Aborted transactions that overlap [start, end). `segments`: all of the log, for markers may lie far behind."""
    found: list[AbortedTransaction] = []
    first = max(bisect_right(segments, start, key=lambda segment: segment.base_offset) - 1, 0)
    for segment in segments[first:]:
        index = segment.transaction_index()
        if index is not None and index.collect(start, end, found):
            break
    return found
