"""Whether a log had more than a recovery has left of it, by what lies behind the damage.

A crash leaves nothing behind what it has torn, and what a loss of power has torn was lost. So where a whole batch lies
behind one that is damaged, the log ends sooner than it did, also where no checkpoint says so yet.
"""

from __future__ import annotations

from collections.abc import Iterable

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records.batch import verify_crc
from kbroker.segment.log_segment import LogSegment


def end_behind_damage(segment: LogSegment, position: int, latest_epoch: int) -> int:
    """The offset behind the batch after the one at a position, if the former is whole and the latter is not; else 0."""
    if _end_of_batch(segment, position, -1):
        return 0
    try:
        return _end_of_batch(segment, position + segment.header_at(position).size, latest_epoch)
    except KafkaError:
        return 0


def end_in_later(segments: Iterable[LogSegment], latest_epoch: int) -> int:
    """The highest offset behind the first batches of segments, if they are whole; else 0."""
    return max((_end_of_batch(each, 0, latest_epoch) for each in segments), default=0)


def _end_of_batch(segment: LogSegment, position: int, lowest_epoch: int) -> int:
    """0 if there is none that is whole, or it is of an older epoch: a truncation had dropped it, and it is back."""
    try:
        header = segment.header_at(position)
    except KafkaError:
        return 0
    data = segment.file.read(header.size, position) if position + header.size <= segment.size else b""
    if not data or not verify_crc(data, 0, header.size) or header.partition_leader_epoch < lowest_epoch:
        return 0
    return header.next_offset


def first_epoch(segment: LogSegment) -> int:
    """Leader epoch of a segment's first batch, -1 when there is none, or none that can be read."""
    try:
        return segment.header_at(0).partition_leader_epoch if segment.size else -1
    except KafkaError:
        return -1
