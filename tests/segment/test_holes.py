"""A segment's file that is gone where no recovery looks is noticed by the first round of the scrubber."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from kbroker.protocol.errors import KafkaError
from kbroker.segment.holes import end_of, hole_behind
from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from kbroker.segment.segment_mending import SegmentMending
from tests.segment.batches import NOW, batch, fill, new_log, reopen
from tests.segment.test_recovery import SMALL
from tests.segment.test_scrubber import scrub


def without(path: Path, number: int, config: LogConfig = SMALL, removed: str = "*") -> tuple[Log, int, int]:
    """A log of 60 records after a clean stop, without a segment: (log, first offset that is missing, the next one)."""
    path.mkdir(exist_ok=True)
    log = new_log(path, config)
    fill(log, 60)
    gone, following = log.segments[number], log.segments[number + 1].base_offset
    log.close()
    for file in Path(gone.folder.path).glob(f"{gone.base_offset:020d}{removed}"):
        file.unlink()
    return reopen(path, config, clean=True), gone.base_offset, following


@pytest.mark.parametrize("removed", ["*", ".log"])
def test_a_missing_segment_is_told_with_its_offsets(tmp_path: Path, removed: str) -> None:
    log, first, following = without(tmp_path, 2, removed=removed)
    scrubber, found = scrub(log)
    (damage,) = found
    assert (damage.offset, damage.end_offset, damage.is_hole) == (first, following, True)
    assert damage.position == damage.segment.size
    assert damage.segment is log.segments[1]
    assert scrubber.damages == 1
    assert f"offsets from {first} on, at most to {following - 1}" in str(damage)
    log.close()


def test_a_segment_cut_short_between_two_batches_is_told_too(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 60)
    segment, following = log.segments[1], log.segments[2].base_offset
    *_, (position, last) = segment.headers()
    path = Path(segment.file.path)
    log.close()
    with path.open("r+b") as file:
        file.truncate(position)
    for index in path.parent.glob(f"{segment.base_offset:020d}.*index"):
        index.unlink()
    log = reopen(tmp_path, SMALL, clean=True)
    (damage,) = scrub(log)[1]
    assert (damage.offset, damage.end_offset) == (last.base_offset, following)
    log.close()


@pytest.mark.parametrize("compacted", ["now", "once"])
def test_what_compaction_left_out_is_no_hole(tmp_path: Path, compacted: str) -> None:
    config = LogConfig(segment_bytes=1000, index_interval_bytes=100, cleanup_policy=("compact",))
    log, *_ = without(tmp_path, 2, config if compacted == "now" else SMALL)
    if compacted == "once":
        assert hole_behind(log, log.segments[1]) is not None
        log.first_dirty_offset = 0
    assert scrub(log)[1] == []
    log.close()


def test_a_log_that_was_filled_from_a_compacted_one_has_no_holes(tmp_path: Path) -> None:
    (tmp_path / "leader").mkdir()
    source, follower = new_log(tmp_path / "leader"), new_log(tmp_path, SMALL)
    fill(source, 60)
    for offset in range(0, 60, 3):
        follower.append_as_follower(source.read(offset, 1).read(), NOW)
    pairs = itertools.pairwise(follower.segments)
    assert any(end_of(one) != (one.size, two.base_offset) for one, two in pairs)
    assert scrub(follower)[1] == []
    for log in (source, follower):
        log.close()


def test_a_hole_is_filled_from_another_replica(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = new_log(tmp_path / "other", SMALL)
    fill(other, 60)
    log, first, following = without(tmp_path / "one", 2)
    (damage,) = scrub(log)[1]
    mending = SegmentMending(damage)
    while not mending.is_whole:
        assert mending.add(memoryview(other.read(mending.next_offset, 300).read()))
    assert mending.swap_in()
    assert [(each.base_offset, each.next_offset) for _, each in log.segments[1].headers()][-1][1] == following
    assert bytes(log.read(first, 1 << 20).read()) == bytes(other.read(first, 1 << 20).read())
    assert scrub(log)[1] == []
    for each in (log, other):
        each.close()


def test_a_hole_in_transactions_is_not_filled_as_their_index_is_gone(tmp_path: Path) -> None:
    log, first, _ = without(tmp_path, 2)
    (damage,) = scrub(log)[1]
    mending = SegmentMending(damage)
    (tmp_path / "other").mkdir()
    other = new_log(tmp_path / "other", SMALL)
    fill(other, first)
    data = batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    other.append_as_leader(data, 0, NOW)
    with pytest.raises(KafkaError, match="remove the partition's folder"):
        mending.add(memoryview(other.read(first, 1 << 20).read()))
    other.close()
    mending.discard()
    log.close()
