"""Find an offset by timestamp: the segment by its largest timestamp, the batch by the time index, then the record."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.records.batch import BatchHeader
from protocol.records.record import decode_batch
from segment.log_segment import LogSegment

if TYPE_CHECKING:
    from segment.log import Log

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4


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
    _, offset = segment.time_index.lookup(timestamp_ms - 1)
    position = segment.find(max(offset, start_offset, segment.base_offset))
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
    for record in decode_batch(batch, 0, len(batch)):
        if record.timestamp >= timestamp_ms and record.offset >= start_offset:
            return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None
