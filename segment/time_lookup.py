"""What a segment's time index says, held against the batches that it tells of.

No checksum covers the index, and after a clean stop nobody makes it anew. One that is empty, cut short, or ends in
zeros would hide records from searches by time, and have retention take a segment for older than it is. So an entry
counts if the batch that it names has its timestamp; else the batches are asked, one after the other.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from kbroker.protocol.errors import KafkaError
from kbroker.segment.time_index import ENTRY

if TYPE_CHECKING:
    from kbroker.segment.log_segment import LogSegment

log = logging.getLogger(__name__)


def find_start(segment: LogSegment, timestamp_ms: int, floor: int) -> int:
    """Position from which on to look for the first record at or after the time, at or above the offset `floor`."""
    told, offset = segment.time_index.lookup(timestamp_ms - 1)
    if offset > floor:
        position = segment.find(offset)
        if _has(segment, position, told):
            return position
    return segment.find(floor)


def find_largest(segment: LogSegment) -> tuple[int, int]:
    """Largest timestamp of a segment that is not empty, and the last offset of its batch; (-1, base offset): none."""
    told = segment.time_index.last_entry
    with suppress(KafkaError):  # what is damaged tells nothing
        last = segment.last_batch()
        is_short = last is not None and last[1].max_timestamp > told[0]  # a closed segment's index is never
        is_torn = segment.time_index.file_size() % ENTRY.size
        if is_short or is_torn or not (told[0] < 0 or _has(segment, segment.find(told[1]), told[0])):
            log.warning("%s: its time index does not fit it, its batches are asked instead", segment.place)
            return read_largest(segment)
    return told


def read_largest(segment: LogSegment) -> tuple[int, int]:
    """The same, read from the batches behind the last entry. Raises KafkaError CORRUPT_MESSAGE."""
    timestamp, offset = segment.time_index.last_entry
    position = segment.find(offset)
    if not _has(segment, position, timestamp):
        timestamp, offset, position = -1, segment.base_offset, 0
    for _, header in segment.headers(position):
        if header.max_timestamp > timestamp:
            timestamp, offset = header.max_timestamp, header.last_offset
    return timestamp, offset


def _has(segment: LogSegment, position: int, timestamp: int) -> bool:
    """Whether the largest timestamp of the batch at a position is this one."""
    return position < segment.size and segment.header_at(position).max_timestamp == timestamp
