"""Which of a log's oldest segments may go (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_segment import LogSegment


def deletable_count(
    segments: Sequence[LogSegment],
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    config: LogConfig,
    now_ms: int,
) -> int:
    """How many segments, counted from the oldest, may be removed: too old, too many bytes, or below the log start.

    Never past the high watermark: what is not replicated yet may be all there is of an acknowledged record.
    """
    removable = 0
    excess = _excess(segments, config)
    for number, segment in enumerate(segments):
        last = number + 1 == len(segments)
        following = log_end_offset if last else segments[number + 1].base_offset
        if following > high_watermark or (last and segment.size == 0):
            break
        below_start = not last and following <= log_start_offset
        too_much = config.is_deleted and config.retention_bytes >= 0 and excess >= segment.size
        if not (below_start or too_much or _too_old(segment, config, now_ms)):
            break
        excess -= segment.size
        removable += 1
    return removable


def _excess(segments: Sequence[LogSegment], config: LogConfig) -> int:
    """Bytes beyond retention.bytes."""
    if config.retention_bytes < 0:
        return 0
    return sum(segment.size for segment in segments) - config.retention_bytes


def _too_old(segment: LogSegment, config: LogConfig, now_ms: int) -> bool:
    return config.is_deleted and config.retention_ms >= 0 and now_ms - segment.retention_timestamp > config.retention_ms
