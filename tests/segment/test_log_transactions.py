"""Transactions in a log: its last stable offset, and the aborted ones of what was read."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.segment.log import AppendOrigin, Log
from kbroker.segment.log_config import LogConfig
from kbroker.segment.offset_lookup import collect_aborted
from tests.segment.batches import NOW, batch, new_log, reopen
from tests.segment.compaction import COMPACTED, clean, compacted_log, end_transaction, headers, put, roll

SMALL = LogConfig(segment_bytes=300, index_interval_bytes=50, retention_ms=-1)
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


def write(log: Log, producer_id: int, sequence: int) -> None:
    data = batch(2, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
    log.append_as_leader(data, 0, NOW)


def end(log: Log, producer_id: int, control_type: ControlType) -> None:
    log.append_as_leader(control_batch(control_type, producer_id, 0, 0, NOW), 0, NOW, AppendOrigin.COORDINATOR)


def interleaved(path: Path, config: LogConfig = SMALL) -> Log:
    """0..1 of producer 1, 2..3 of 2, 4..5 of 1, 6 2 commits, 7 1 aborts, 8..9 of 2, 10 2 aborts."""
    log = new_log(path, config)
    write(log, 1, 0)
    write(log, 2, 0)
    write(log, 1, 2)
    end(log, 2, COMMIT)
    end(log, 1, ABORT)
    write(log, 2, 2)
    end(log, 2, ABORT)
    return log


def test_the_last_stable_offset_never_moves_back_when_transactions_interleave(tmp_path: Path) -> None:
    log = interleaved(tmp_path)
    stable = [(log.update_high_watermark(offset), log.last_stable_offset) for offset in range(12)]
    expected = {**dict.fromkeys(range(8), 0), 8: 8, 9: 8, 10: 8, 11: 11}
    assert dict(stable) == expected
    log.close()


def test_the_high_watermark_moves_while_who_changes_the_log_waits_for_the_disk(tmp_path: Path) -> None:
    log = interleaved(tmp_path)
    with log.changing("append"):
        moving = threading.Thread(target=log.update_high_watermark, args=(11,))
        moving.start()
        moving.join(20)
        found = moving.is_alive(), log.last_stable_offset
    moving.join()
    assert found == (False, 11)
    log.close()


@pytest.mark.parametrize("config", [SMALL, LogConfig()], ids=["many snapshots", "none"])
def test_the_last_stable_offset_is_the_same_after_a_restart_and_after_a_truncation(
    tmp_path: Path, config: LogConfig
) -> None:
    log = interleaved(tmp_path, config)
    for offset, expected in ((10, (10, 8)), (7, (7, 0)), (4, (4, 0))):
        log.update_high_watermark(log.log_end_offset)
        log.truncate_to(offset)
        assert (log.high_watermark, log.last_stable_offset) == expected
        log.close()
        for was_clean in (True, False):
            log = reopen(tmp_path, config, clean=was_clean, high_watermark=offset)
            assert (log.high_watermark, log.last_stable_offset) == expected, (offset, was_clean)
            log.close()
        log = reopen(tmp_path, config, high_watermark=offset)
    log.close()


def test_the_last_stable_offset_is_not_below_the_log_start(tmp_path: Path) -> None:
    log = interleaved(tmp_path)
    log.truncate_to(7)
    log.update_high_watermark(7)
    assert log.last_stable_offset == 0
    log.delete_records(5)
    assert (log.log_start_offset, log.last_stable_offset) == (5, 5)
    end(log, 1, ABORT)
    log.update_log_start_offset(8)
    assert (log.high_watermark, log.last_stable_offset) == (8, 8)
    log.close()


def test_aborted_transactions_are_told_wherever_their_markers_lie(tmp_path: Path) -> None:
    log = interleaved(tmp_path)
    assert len(log.segments) > 3
    told = {offset: log.aborted_transactions(log.read(offset, 1), offset + 1) for offset in range(11)}
    one, two = (1, 0, 7), (2, 8, 10)
    assert {offset: [each[:3] for each in found] for offset, found in told.items()} == {
        **{offset: [one] for offset in range(8)},
        **{offset: [two] for offset in (8, 9, 10)},
    }
    assert one in [each[:3] for each in log.aborted_transactions(log.read(0, 1))], "also when the bound is not told"
    everything = collect_aborted(log.segments, 0, 11)
    assert [each[:3] for each in everything] == [one, two]
    assert [each.last_stable_offset for each in everything] == [8, 11]
    log.close()


def test_a_follower_of_a_compacted_log_is_as_stable_as_its_leader(tmp_path: Path) -> None:
    """The leader has emptied a marker which alone tells its producer's epoch: it opens nothing anywhere."""
    (tmp_path / "leader").mkdir()
    (tmp_path / "follower").mkdir()
    leader = compacted_log(tmp_path / "leader", replace(COMPACTED, delete_retention_ms=0))
    put(leader, ("a", "1"), producer=(5, 0, 0), transactional=True)
    end_transaction(leader, ABORT, 5, epoch=1)
    put(leader, ("b", "1"))
    roll(leader)
    for later in range(4):
        clean(leader, NOW + later)
    marker = headers(leader)[0]
    assert (marker.is_control, marker.count) == (True, 0)
    follower = compacted_log(tmp_path / "follower")
    follower.append_as_follower(leader.read(0, 10_000).read())
    follower.update_high_watermark(leader.log_end_offset)
    assert follower.last_stable_offset == leader.last_stable_offset == leader.log_end_offset
    assert follower.producers.newest_batches() == leader.producers.newest_batches() == {5: (-1, 1)}
    follower.close()
    again = reopen(tmp_path / "follower", COMPACTED, high_watermark=leader.log_end_offset)
    assert (again.last_stable_offset, again.producers.newest_batches()) == (leader.log_end_offset, {5: (-1, 1)})
    again.close()
    leader.close()


def test_a_small_slice_is_not_told_of_all_that_was_aborted_behind_it(tmp_path: Path) -> None:
    log = new_log(tmp_path, replace(SMALL, segment_bytes=100_000))
    for number in range(50):
        write(log, 1, 2 * number)
        end(log, 1, ABORT)
    log.update_high_watermark(log.log_end_offset)
    told = log.aborted_transactions(log.read(0, 300), log.last_stable_offset)
    assert 1 <= len(told) < 10
    assert told[0][:3] == (1, 0, 2)
    log.close()
