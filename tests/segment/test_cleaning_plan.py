"""Which log is compacted, from where to where; which segments go together."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker.segment.cleaning_plan import choose, examine, group_segments, segments_between
from kbroker.segment.log import Log
from tests.segment.batches import NOW
from tests.segment.compaction import COMPACTED, compacted_log, put, roll

FIVE = [0, 2, 4, 6, 8]
"""Base offsets of four closed segments and the active one."""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = compacted_log(tmp_path)
    for number in range(4):
        put(made, ("a", "1"), timestamp=NOW + 100 * number)
        put(made, ("b", "1"), timestamp=NOW + 100 * number)
        roll(made)
    put(made, ("c", "1"), timestamp=NOW + 400)
    yield made
    made.close()


def test_all_but_the_active_segment_is_dirty_at_first(log: Log) -> None:
    assert [segment.base_offset for segment in log.segments] == FIVE
    plan = examine(log, NOW)
    assert (plan.first_dirty_offset, plan.first_uncleanable_offset) == (0, 8)
    assert (plan.clean_bytes, plan.dirty_ratio, plan.is_due) == (0, 1.0, True)


def test_what_was_compacted_is_clean_and_a_segment_in_part_counts_as_both(log: Log) -> None:
    log.first_dirty_offset = 5
    plan = examine(log, NOW)
    size = log.segments[0].size
    assert (plan.first_dirty_offset, plan.clean_bytes, plan.dirty_bytes) == (5, 3 * size, 2 * size)
    assert plan.dirty_ratio == 0.4
    assert not plan.is_due
    log.apply_config(replace(COMPACTED, min_cleanable_dirty_ratio=0.39))
    assert examine(log, NOW).is_due


def test_nothing_above_the_high_watermark_or_an_open_transaction_is_cleanable(log: Log) -> None:
    log.high_watermark = 5
    assert examine(log, NOW).first_uncleanable_offset == 4
    log.high_watermark = 9
    put(log, ("a", "1"), producer=(1, 0, 0), transactional=True)
    put(log, ("a", "1"))
    roll(log)
    assert examine(log, NOW).first_uncleanable_offset == 8


def test_records_younger_than_the_min_compaction_lag_are_not_cleanable(log: Log) -> None:
    log.apply_config(replace(COMPACTED, min_compaction_lag_ms=1000))
    assert examine(log, NOW + 1099).first_uncleanable_offset == 2
    assert examine(log, NOW + 1100).first_uncleanable_offset == 4
    assert examine(log, NOW + 500).first_uncleanable_offset == 0
    assert not examine(log, NOW + 500).is_due
    assert examine(log, NOW + 9000).first_uncleanable_offset == 8


def test_records_older_than_the_max_compaction_lag_make_a_log_due(log: Log) -> None:
    log.apply_config(replace(COMPACTED, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000))
    log.first_dirty_offset = 4
    assert not examine(log, NOW + 1200).is_due
    assert examine(log, NOW + 1201).is_due
    log.first_dirty_offset = 8
    assert not examine(log, NOW + 9999).is_due


def test_an_offset_noted_outside_of_the_log_starts_over(log: Log) -> None:
    log.first_dirty_offset = 10
    assert (examine(log, NOW).is_reset, examine(log, NOW).first_dirty_offset) == (True, 0)
    log.first_dirty_offset = 1
    log.update_log_start_offset(3)
    assert (examine(log, NOW).is_reset, examine(log, NOW).first_dirty_offset) == (True, 3)
    log.first_dirty_offset = 9
    assert (examine(log, NOW).is_reset, examine(log, NOW).dirty_bytes) == (False, 0)


def test_the_dirtiest_of_those_that_are_due_is_chosen(log: Log) -> None:
    whole = examine(log, NOW)
    half = replace(whole, clean_bytes=whole.dirty_bytes // 2)
    little = replace(whole, clean_bytes=whole.dirty_bytes * 2)
    assert choose([half, little]) is half
    assert choose([half, whole]) is whole
    assert choose([little]) is None
    assert choose([replace(little, is_overdue=True)]) is not None
    assert choose([replace(whole, dirty_bytes=0, is_overdue=True)]) is None


def test_segments_are_grouped_by_size_indexes_and_offsets(log: Log) -> None:
    closed = log.segments[:4]
    size = closed[0].size

    def grouped(max_bytes: int, max_index_bytes: int = 1 << 20, end: int = 8) -> list[list[int]]:
        return [
            [each.base_offset for each in group] for group in group_segments(closed, max_bytes, max_index_bytes, end)
        ]

    assert grouped(10 * size) == [[0, 2, 4, 6]]
    assert grouped(2 * size) == [[0, 2], [4, 6]]
    assert grouped(3 * size - 1) == [[0, 2], [4, 6]]
    assert grouped(1) == [[0], [2], [4], [6]]
    assert grouped(10 * size, 24) == [[0, 2], [4, 6]]
    assert grouped(10 * size, end=(1 << 31)) == [[0, 2, 4, 6]]
    assert grouped(10 * size, end=(1 << 31) + 1) == [[0, 2, 4], [6]]


def test_segments_between_offsets(log: Log) -> None:
    def between(start: int, end: int) -> list[int]:
        return [segment.base_offset for segment in segments_between(log, start, end)]

    assert between(0, 8) == [0, 2, 4, 6]
    assert between(3, 7) == [2, 4, 6]
    assert between(3, 4) == [2]
    assert between(4, 4) == []
