"""Offsets that are missing between two closed segments of a log in use: a file is gone, or a part of it.

A start after a kill notices that where it recovers (behind_damage.py); below the recovery point, and after a clean
stop, files are believed. Each segment of a log that was never compacted ends where the next one begins, and the last
entry of its index leads to its end: so the scrubber looks at all ends first when a round begins.
"""

from __future__ import annotations

from kbroker.protocol.errors import KafkaError
from kbroker.segment.behind_damage import has_every_offset
from kbroker.segment.log import Log
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.offset_index import MAX_RELATIVE_OFFSET


def end_of(segment: LogSegment) -> tuple[int, int] | None:
    """(position, offset) behind a segment's last batch; None where only reading all of it tells."""
    try:
        if not segment.size or segment.index.damage(segment.size) is not None:
            return None
        last = segment.last_batch()
    except (KafkaError, OSError):
        return None
    return None if last is None else (last[0] + last[1].size, last[1].next_offset)


def hole_behind(log: Log, segment: LogSegment) -> tuple[int, int, int] | None:
    """(position, first offset, end offset) of what is missing behind a closed segment; None when nothing is, or was
    left out by a compaction: of this log, or of the one that it was filled from.
    """
    segments = log.segments
    if log.config.is_compacted or log.first_dirty_offset is not None or segment not in segments[:-1]:
        return None
    end = end_of(segment)
    following = segments[segments.index(segment) + 1]
    if end is None or end[0] != segment.size or not following.size:
        return None
    position, offset = end
    if not 0 < following.base_offset - offset <= MAX_RELATIVE_OFFSET or not all(map(has_every_offset, segments)):
        return None
    return position, offset, following.base_offset
