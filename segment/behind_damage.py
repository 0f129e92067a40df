"""Whether a log had more than a recovery has left of it, by what lies behind the damage.

A crash leaves nothing behind what it has torn, and what a loss of power has torn was lost. So where a whole batch lies
behind one that is damaged, the log ends sooner than it did, also where no checkpoint says so yet.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records.batch import verify_crc
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.offset_index import MAX_RELATIVE_OFFSET

log = logging.getLogger(__name__)


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


def lacks_a_segment(segments: Sequence[LogSegment], number: int, end: int, holes_from: int) -> bool:
    """Whether a whole file is gone behind the segment of that number, which ends at an offset.

    Only for logs that were never compacted: they have every offset, and each segment begins where the one before ends.
    A log in which offsets are missing elsewhere too was filled by a leader whose log was compacted once; so was one
    that lacks more than fit a segment. `holes_from`: the next segment must begin beyond that offset.
    """
    if number + 1 == len(segments):
        return False
    following = segments[number + 1]
    gap = following.base_offset - end
    if following.base_offset <= holes_from or not 0 < gap <= MAX_RELATIVE_OFFSET:
        return False
    if not (segments[number].size and following.size):  # files that are there: a compaction empties some
        return False
    try:
        is_hole = all(_has_every_offset(each) for each in segments)
    except KafkaError:
        return False
    if is_hole:
        log.warning("%s: ends at %d, the next begins at %d", segments[number].place, end, following.base_offset)
    return is_hole


def _has_every_offset(segment: LogSegment) -> bool:
    expected = segment.base_offset
    for _, header in segment.headers():
        if header.magic != 2 or header.base_offset != expected:
            return False
        expected = header.next_offset
    return True


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


def is_left_over(following: LogSegment | None, sure_up_to: int, latest_epoch: int) -> bool:
    """Whether a truncation had dropped the segment, and its name is back: what lies before it is newer."""
    if following is None or following.base_offset < sure_up_to:
        return False
    return 0 <= first_epoch(following) < latest_epoch
