"""Reading a log without its lock, while others append, compact and remove.

The list of segments is replaced, never changed, so a reader works on the log as it was a moment ago. What it finds may
leave the log before it has opened the files: then it looks again, at the log as it is by now.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.segment.file_records import FileRecords
from kbroker.segment.files import FileRemoved
from kbroker.segment.log_config import MAX_LONG
from kbroker.segment.log_segment import LogSegment

if TYPE_CHECKING:
    from kbroker.segment.log import Log

Found = TypeVar("Found")


def look_up(log: Log, find: Callable[[], Found]) -> Found:
    """Do what reads segments. Raises KAFKA_STORAGE_ERROR when the disk fails, or has failed."""
    log.check_usable()
    while True:
        try:
            return find()
        except FileRemoved:
            wait_for_change(log)
        except OSError as error:
            log.fail(error, "read")


def wait_for_change(log: Log) -> None:
    """A segment is leaving the log at this very moment: wait until it has left."""
    with log.changing("read"):
        pass


def read_slice(
    log: Log, offset: int, max_bytes: int, limit: int | None, min_one_batch: bool, patient: bool
) -> FileRecords:
    """What Log.read promises, when no segment leaves the log meanwhile."""
    segments, active_size, end_offset = _extent(log)
    if not log.log_start_offset <= offset <= end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.name}: offset {offset} is not in [{log.log_start_offset}, {end_offset}]",
        )
    if limit is None or limit > end_offset:
        limit = end_offset
    number = len(segments) - 1
    if offset < segments[number].base_offset:
        number = max(bisect_right(segments, offset, key=_base_offset) - 1, 0)
    while offset < limit and number < len(segments):
        segment = segments[number]
        number += 1
        is_closed = number < len(segments)
        end = segment.size if is_closed else active_size
        following = segments[number].base_offset if is_closed else end_offset
        if limit < following:
            end = segment.find(limit, patient) if limit > segment.base_offset else 0
        ceiling = following if is_closed else MAX_LONG  # the end may move back at this moment, and again forward
        records = segment.slice(offset, end, max_bytes, min_one_batch, patient, ceiling)
        if records is not None:
            records.goes_on = following < limit
            return records
    active = segments[-1]
    return FileRecords(active.file, active.size, 0, active.base_offset, offset)


def _extent(log: Log) -> tuple[tuple[LogSegment, ...], int, int]:
    """The segments, how far the active one is filled, and the end offset, as of one moment.

    Another thread may append: the bytes come first, the end offset last. So all of that size lies below that end.
    """
    while True:
        segments = log.segments
        size = segments[-1].size
        end_offset = log.log_end_offset
        if segments is log.segments:
            return segments, size, end_offset


def _base_offset(segment: LogSegment) -> int:
    return segment.base_offset
