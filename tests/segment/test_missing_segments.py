"""A segment's file that is gone leaves a hole, unless what compaction left out looks just like it."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from tests.segment.batches import NOW, batch, fill, new_log, reopen
from tests.segment.test_recovery import SMALL, crash

COMPACTED = LogConfig(segment_bytes=1000, index_interval_bytes=100, cleanup_policy=("compact", "delete"))


def remove(log: Log, number: int) -> int:
    """Crash, and lose a segment: its first offset."""
    path, first = Path(log.segments[number].file.path), log.segments[number].base_offset
    crash(log)
    path.unlink()
    for index in path.parent.glob("*.index"):  # so that all are looked at, whatever was said of them
        index.unlink()
    return first


@pytest.mark.parametrize("number", [1, 3, -2])
def test_a_log_without_one_of_its_segments_ends_there_and_is_short(tmp_path: Path, number: int) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 60)
    first = remove(log, number)
    again = reopen(tmp_path, SMALL)
    assert again.log_end_offset == first
    assert (again.is_short, again.promised_offset) == (True, 60)
    again.close()


@pytest.mark.parametrize(
    "known", [{"clean": True}, {"recovery_point": 59}, {"log_start_offset": 40}, {"first_dirty_offset": 0}], ids=str
)
def test_a_hole_that_a_recovery_has_no_word_in_is_left_alone(tmp_path: Path, known: dict[str, Any]) -> None:
    """It is below what is looked at, or before the log's start, or a compaction may have made it."""
    log = new_log(tmp_path, SMALL)
    fill(log, 60)
    remove(log, 2)
    again = reopen(tmp_path, SMALL, **known)
    assert (again.log_end_offset, again.is_short) == (60, False)
    again.close()


def test_a_hole_in_a_compacted_log_is_none(tmp_path: Path) -> None:
    log = new_log(tmp_path, COMPACTED)
    fill(log, 60)
    remove(log, 2)
    again = reopen(tmp_path, COMPACTED)
    assert (again.log_end_offset, again.is_short) == (60, False)
    again.close()


@pytest.mark.parametrize("has_lost_power", [False, True])
@pytest.mark.parametrize("config", [SMALL, COMPACTED], ids=["not any more", "still"])
def test_a_log_whose_leader_is_compacted_or_was_once_lacks_nothing(
    tmp_path: Path, config: LogConfig, has_lost_power: bool
) -> None:
    """What it was filled with has gaps, some of them between its segments."""
    (tmp_path / "leader").mkdir()
    source = new_log(tmp_path / "leader")
    fill(source, 60)
    follower = new_log(tmp_path, config)
    for offset in range(0, 60, 3):
        follower.append_as_follower(source.read(offset, 1).read(), NOW)
    segments = follower.segments
    ends = {each.base_offset: max(header.next_offset for _, header in each.headers()) for each in segments}
    assert any(ends[one.base_offset] < two.base_offset for one, two in itertools.pairwise(segments))
    crash(follower)
    again = reopen(tmp_path, config, has_lost_power=has_lost_power)
    assert (again.log_end_offset, again.is_short) == (58, False)
    again.close()
    source.close()


def test_what_cannot_be_read_at_the_end_hides_no_missing_segment(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 60)
    first = log.segments[2].base_offset
    remove(log, 2)
    with Path(log.segments[-1].file.path).open("ab") as file:
        file.write(bytes(100))
    again = reopen(tmp_path, SMALL)
    assert (again.log_end_offset, again.is_short) == (first, True)
    again.close()


@pytest.mark.parametrize("is_all_else_flushed", [False, True])
def test_a_log_that_ends_before_empty_segments_is_short(tmp_path: Path, is_all_else_flushed: bool) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 60)
    segments = log.segments[-2:]
    crash(log)
    for each in segments:
        os.truncate(each.file.path, 0)
    flushed_to = segments[0].base_offset if is_all_else_flushed else 0
    again = reopen(tmp_path, SMALL, has_lost_power=True, recovery_point=flushed_to)
    assert again.log_end_offset == segments[0].base_offset
    assert (again.is_short, again.promised_offset) == (True, segments[1].base_offset)
    again.close()


def test_a_gap_that_no_segment_could_have_filled_is_none(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 3)
    far = batch()
    far[:8] = (1 << 33).to_bytes(8, "big")
    log.append_as_follower(far, NOW)
    assert len(log.segments) == 2
    crash(log)
    again = reopen(tmp_path, SMALL)
    assert (again.log_end_offset, again.is_short) == ((1 << 33) + 1, False)
    again.close()
