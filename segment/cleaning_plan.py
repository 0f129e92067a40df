"""Which log is to be compacted, from where to where, and which segments become one (pure).

    clean ......... | dirty .............................. | not cleanable yet
    log start    first dirty                       first uncleanable              log end

The first dirty offset is where the last compaction ended (cleaner-offset-checkpoint). Not cleanable are the active
segment, what lies above the last stable offset, and what is younger than min.compaction.lag.ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kbroker.segment.log import Log
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.offset_index import MAX_RELATIVE_OFFSET


@dataclass(frozen=True, slots=True)
class LogToClean:
    """What there is to compact in one log."""

    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    """Exclusive, the base offset of a segment."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool = False
    """Whether something is older than max.compaction.lag.ms."""
    is_reset: bool = False
    """Whether the first dirty offset had to be set to the log's start: what was noted lay outside of the log."""

    @property
    def dirty_ratio(self) -> float:
        """Share of the bytes that is dirty, 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is worth a compaction by now."""
        overdue = self.is_overdue and self.dirty_bytes > 0
        return overdue or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def examine(log: Log, now_ms: int) -> LogToClean:
    """Find out what there is to compact in a log."""
    segments = log.segments
    start = log.log_start_offset
    noted = log.first_dirty_offset
    is_reset = noted is not None and not start <= noted <= log.log_end_offset
    first_dirty = start if noted is None or is_reset else noted
    dirty = _between(segments[:-1], first_dirty, segments[-1].base_offset)
    limits = [log.last_stable_offset, segments[-1].base_offset]
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        limits += [each.base_offset for each in dirty if each.retention_timestamp > now_ms - lag_ms][:1]
    uncleanable = _segment_start(segments, max(first_dirty, min(limits)))
    return LogToClean(
        log,
        first_dirty,
        uncleanable,
        sum(each.size for each in segments if each.base_offset < first_dirty),
        sum(each.size for each in _between(segments, min(first_dirty, uncleanable), uncleanable)),
        _is_overdue(dirty, now_ms - log.config.max_compaction_lag_ms),
        is_reset,
    )


def choose(candidates: Iterable[LogToClean]) -> LogToClean | None:
    """The dirtiest of those that are due."""
    return max((each for each in candidates if each.is_due), key=lambda each: each.dirty_ratio, default=None)


def group_segments(
    segments: Sequence[LogSegment], max_bytes: int, max_index_bytes: int, end_offset: int
) -> list[list[LogSegment]]:
    """Put neighbours together that fit one segment: log, indexes, and offsets (which an index holds in 31 bits).

    `end_offset`: behind the last of them.
    """
    groups: list[list[LogSegment]] = []
    sizes = (0, 0, 0)
    for number, segment in enumerate(segments):
        own = (segment.size, segment.index.count * 8, segment.time_index.count * 12)
        together = (sizes[0] + own[0], sizes[1] + own[1], sizes[2] + own[2])
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        fits = groups and together[0] <= max_bytes and max(together[1:]) <= max_index_bytes
        if fits and (segment.size == 0 or following - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET):
            groups[-1].append(segment)
            sizes = together
        else:
            groups.append([segment])
            sizes = own
    return groups


def segments_between(log: Log, start: int, end: int) -> tuple[LogSegment, ...]:
    """The segments that hold offsets of [start, end)."""
    return _between(log.segments, start, end)


def _between(segments: Sequence[LogSegment], start: int, end: int) -> tuple[LogSegment, ...]:
    if start >= end:
        return ()
    floor = max((each.base_offset for each in segments if each.base_offset <= start), default=0)
    return tuple(each for each in segments if floor <= each.base_offset < end)


def _segment_start(segments: Sequence[LogSegment], offset: int) -> int:
    """Base offset of the segment that holds an offset; the active one's when it lies beyond."""
    return max((each.base_offset for each in segments if each.base_offset <= offset), default=segments[0].base_offset)


def _is_overdue(dirty: Sequence[LogSegment], limit_ms: int) -> bool:
    """Whether one of the segments begins with a batch from before a time."""
    return any(0 < each.first_timestamp < limit_ms for each in dirty if each.size)
