"""What a loss of power has left out between segments: the kernel writes them in whatever order it likes."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbroker.segment.cleaner import LogCleaner
from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_dir import LogDir
from kbroker.segment.offset_checkpoints import OffsetCheckpoints
from tests.segment.batches import NOW, TOPIC_ID, batch, close_all, fill, new_log, reopen
from tests.segment.compaction import COMPACTED, clean, compacted_log, put, roll, values
from tests.segment.test_log_manager import start

SMALL = LogConfig(segment_bytes=500)
COMPACT_SMALL = replace(COMPACTED, segment_bytes=400)


def crash(log: Log) -> None:
    log.write_pending()
    log.discard()
    close_all(log)


@pytest.mark.parametrize("kept", [0, 1])
def test_a_segment_that_was_lost_with_the_power_leaves_no_hole_in_the_log(tmp_path: Path, kept: int) -> None:
    """Whole batches of it are missing, so nothing that is left of it is damaged."""
    log = new_log(tmp_path, SMALL)
    fill(log, 60)
    segment, following = log.segments[1:3]
    batches = following.base_offset - segment.base_offset
    assert batches > 1
    size = segment.size // batches * kept
    crash(log)
    os.truncate(segment.file.path, size)
    again = reopen(tmp_path, SMALL, has_lost_power=True)
    assert (again.log_end_offset, len(again.segments)) == (segment.base_offset + kept, 2)
    assert again.is_short
    again.close()


@pytest.mark.parametrize("starts_behind", [True, False])
def test_what_is_missing_below_the_start_or_may_be_by_right_ends_no_log(tmp_path: Path, starts_behind: bool) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 60)
    first, following = log.segments[:2]
    count = len(log.segments)
    crash(log)
    os.truncate(first.file.path, 0)
    again = reopen(
        tmp_path, SMALL, has_lost_power=starts_behind, log_start_offset=following.base_offset if starts_behind else 0
    )
    assert (again.log_end_offset, len(again.segments)) == (60, count)
    again.close()


@pytest.mark.parametrize(
    ("policy", "boot", "end"),
    [("delete", b"other", 0), ("compact", b"other", 0), ("delete", b"one", 60), ("compact", b"one", 60)],
)
def test_only_after_a_loss_of_power_a_gap_is_a_loss_where_a_file_is_empty_or_compaction_leaves_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, boot: bytes, end: int
) -> None:
    def configs(topic: str) -> LogConfig:
        return LogConfig(segment_bytes=500, cleanup_policy=(policy,))

    monkeypatch.setattr(LogDir, "boot_id", lambda directory: b"one")
    manager = start(tmp_path, configs=configs)
    log = manager.create("orders", 0, TOPIC_ID, configs("orders"))
    manager.note_boot()
    fill(log, 60)
    first = log.segments[0].file.path
    assert len(log.segments) > 1
    manager.abandon()
    os.truncate(first, 0)
    monkeypatch.setattr(LogDir, "boot_id", lambda directory: boot)
    manager = start(tmp_path, configs=configs)
    assert manager.logs["orders", 0].log_end_offset == end
    manager.shutdown()


def put_each(log: Log, keys: str) -> None:
    """A record of each key, and the end of the segment."""
    for key in keys:
        put(log, (key, f"{log.log_end_offset}"))
    roll(log)


def lose(log: Log, *numbers: int) -> list[int]:
    """Let the power fail before these segments have reached the disk; where they began."""
    lost = [log.segments[number] for number in numbers]
    crash(log)
    for each in lost:
        os.truncate(each.file.path, 0)
    return [each.base_offset for each in lost]


@pytest.mark.parametrize("numbers", [(0,), (0, 2), (0, 1)], ids=str)
def test_what_a_compacted_log_has_lost_above_its_compacted_part_is_missed(
    tmp_path: Path, numbers: Sequence[int]
) -> None:
    """However many offsets compaction has left out, and whatever else was lost."""
    log = compacted_log(tmp_path, COMPACT_SMALL)
    put_each(log, "abcaa")
    put_each(log, "xyzxb")
    assert clean(log).end_offset == 10
    bases = [segment.base_offset for segment in log.segments]
    assert len(values(log)) == 6
    for _ in range(4):
        put_each(log, "abcde")
    first = lose(log, *(len(bases) - 1 + number for number in numbers))[0]
    again = reopen(tmp_path, COMPACT_SMALL, recovery_point=5, first_dirty_offset=10, has_lost_power=True)
    assert (again.log_end_offset, again.is_short, again.promised_offset) == (first, True, 30)
    again.close()


def left_a_gap_between_segments(log: Log) -> None:
    """So that no other offset is missing, once the log is compacted."""
    put_each(log, "abcx")
    put_each(log, "xdef")
    put(log, ("g", "8"))


def test_what_compaction_has_left_out_is_not_missed_when_the_power_fails_before_it_is_noted_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogDir, "boot_id", lambda directory: b"one")
    manager = start(tmp_path / "a", configs=lambda topic: COMPACT_SMALL)
    manager.note_boot()
    log = manager.create("orders", 0, TOPIC_ID, COMPACT_SMALL)
    left_a_gap_between_segments(log)
    write = OffsetCheckpoints.write_first_dirty_offsets

    def power_fails(*_: Any) -> None:
        shutil.copytree(tmp_path / "a", tmp_path / "after")

    monkeypatch.setattr(OffsetCheckpoints, "write_first_dirty_offsets", power_fails)
    assert LogCleaner(manager, clock=lambda: NOW).clean_dirtiest()
    monkeypatch.setattr(OffsetCheckpoints, "write_first_dirty_offsets", write)
    assert [offset for offset, *_ in values(log)] == [0, 1, 2, 4, 5, 6, 7, 8]
    manager.abandon()
    monkeypatch.setattr(LogDir, "boot_id", lambda directory: b"other")
    again = start(tmp_path / "after", configs=lambda topic: COMPACT_SMALL)
    found = again.logs["orders", 0]
    assert ([offset for offset, *_ in values(found)], found.is_short) == ([0, 1, 2, 4, 5, 6, 7, 8], False)
    again.shutdown()


def test_what_compaction_has_left_out_before_a_truncation_is_not_missed(tmp_path: Path) -> None:
    """The next segment begins where the log was cut, behind what compaction has left out there."""
    log = compacted_log(tmp_path, COMPACT_SMALL)
    put_each(log, "abcxx")
    put_each(log, "xdef")
    clean(log)
    log.truncate_to(4)
    log.append_as_leader(batch(1, 300), 4, NOW)
    assert ([segment.base_offset for segment in log.segments], log.first_dirty_offset) == ([0, 4], 0)
    crash(log)
    again = reopen(tmp_path, COMPACT_SMALL, recovery_point=3, first_dirty_offset=0, has_lost_power=True)
    assert (again.log_end_offset, again.is_short) == (5, False)
    again.close()


def test_a_log_that_ends_within_its_compacted_part_is_compacted_again_from_there(tmp_path: Path) -> None:
    """What it is filled with was not compacted here."""
    log = compacted_log(tmp_path, COMPACT_SMALL)
    left_a_gap_between_segments(log)
    assert clean(log).end_offset == 8
    later = [Path(segment.file.path) for segment in log.segments if segment.base_offset >= 4]
    crash(log)
    later[0].write_bytes(later[0].read_bytes()[:-1])
    later[1].unlink()
    again = reopen(tmp_path, COMPACT_SMALL, first_dirty_offset=8)
    assert (again.log_end_offset, again.first_dirty_offset) == (7, 4)
    again.close()
