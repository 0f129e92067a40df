"""Whether a log had more than a recovery has left of it, by what lies behind the damage.

A crash leaves nothing behind what it has torn, and what a loss of power has torn was lost. So where a whole batch lies
behind one that is damaged, the log ends sooner than it did, also where no checkpoint says so yet. How far it went is
told by the headers, from one to the next; where one cannot be read, nothing behind it is found.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records.batch import BatchHeader, verify_crc
from kbroker.segment.log_config import MAX_LONG
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.offset_index import MAX_RELATIVE_OFFSET

log = logging.getLogger(__name__)

_LOOKED_AT = 64
"""So many of the last batches are read in search of a whole one."""


def end_behind_damage(segment: LogSegment, position: int, end: int, latest_epoch: int) -> int:
    """The offset behind the last whole batch if the one at a position, where the log ends now, is damaged; else 0."""
    try:
        header = segment.header_at(position)
    except KafkaError:
        return 0
    if _is_whole(segment, position, header):
        return 0
    return _last_end(segment, position + header.size, end, latest_epoch)


def end_in_later(segments: Sequence[LogSegment], latest_epoch: int) -> int:
    """The offset behind the last whole batch of segments, 0 if there is none."""
    ends = (_last_end(each, 0, each.base_offset, latest_epoch) for each in reversed(segments))
    return next(filter(None, ends), 0)


class Gaps(NamedTuple):
    """What offsets that are missing between two segments tell.

    A log that was never compacted has every offset, unless it was filled by a leader whose log was: then some are
    missing elsewhere, too.

    What a compaction leaves out lies below the end of what it may compact. Before its first exchange of files all of
    that is on disk, and so is a recovery point that says so (cleaner.py); a truncation lowers the point no further than
    to where it cuts. So above it, and above where the last compaction came to, a log has what it was filled with, and
    what is missing there after a loss of power did not reach the disk.
    """

    lost_above: int
    """A segment that begins at or below it may begin behind a gap by right."""
    whole_above: int
    """Where offsets beyond it are missing within segments, too, gaps tell nothing."""
    has_lost_power: bool
    """The earlier of two segments may have reached the disk in part, or not at all; else a whole file is gone."""

    @classmethod
    def of(cls, start: int, sure_up_to: int, compacted_up_to: int | None, has_lost_power: bool) -> Gaps:
        """For a log that begins at `start`; `compacted_up_to`: None if it never was and is not to be, 0: not known."""
        if compacted_up_to is None:
            return cls(max(start, sure_up_to), -1, has_lost_power)
        if not has_lost_power:
            return cls(MAX_LONG, MAX_LONG, has_lost_power)
        # A recovery point stays one below the high watermark, which may be where what was compacted ends.
        floor = max(start, sure_up_to + 1, compacted_up_to)
        return cls(floor, floor, has_lost_power)

    def is_loss(self, segments: Sequence[LogSegment], number: int, end: int) -> bool:
        """Whether there were records between the segment of that number, which ends at an offset, and the next one."""
        if number + 1 == len(segments):
            return False
        following = segments[number + 1]
        gap = following.base_offset - end
        if following.base_offset <= self.lost_above or not 0 < gap <= MAX_RELATIVE_OFFSET:
            return False
        are_there = segments[number].size and following.size  # a compaction empties some
        if not (self.has_lost_power or are_there):
            return False
        first = max(bisect_right(segments, self.whole_above, key=lambda each: each.base_offset) - 1, 0)
        if not all(has_every_offset(each, self.whole_above) for each in segments[first:]):
            return False
        log.warning("%s: ends at %d, the next begins at %d", segments[number].place, end, following.base_offset)
        return True


def has_every_offset(segment: LogSegment, above: int = -1) -> bool:
    """Whether none is missing within a segment, but for what lies at or below an offset, as far as it can be read."""
    expected = segment.base_offset
    with suppress(KafkaError):
        for _, header in segment.headers():
            if header.base_offset > above and (header.magic != 2 or header.base_offset != expected):
                return False
            expected = header.next_offset
    return True


def _last_end(segment: LogSegment, position: int, floor: int, lowest_epoch: int) -> int:
    """The offset behind the last whole batch from a position on, as far as headers lead; 0 if there is none.

    Checksums do not cover base offsets: none is believed that the indexes could not hold, or that one behind it belies.
    One of an older epoch is no batch of this log: a truncation had dropped it, and it is back.
    """
    found: deque[tuple[int, BatchHeader]] = deque(maxlen=_LOOKED_AT)
    with suppress(KafkaError):
        for place, header in segment.headers(position):
            if (
                floor <= header.base_offset <= header.last_offset <= segment.base_offset + MAX_RELATIVE_OFFSET
                and header.partition_leader_epoch >= lowest_epoch
            ):
                while found and found[-1][1].last_offset >= header.base_offset:
                    found.pop()
                found.append((place, header))
    return next((header.next_offset for place, header in reversed(found) if _is_whole(segment, place, header)), 0)


def _is_whole(segment: LogSegment, position: int, header: BatchHeader) -> bool:
    if position + header.size > segment.size:
        return False
    return verify_crc(segment.file.read(header.size, position), 0, header.size)


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
