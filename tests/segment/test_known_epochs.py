"""A leader-epoch-checkpoint that can be right is believed, one that cannot is made again from the batches."""

from pathlib import Path

import pytest

from kbroker.segment.checkpoints import leader_epochs_text
from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from tests.segment.batches import fill, new_log, reopen
from tests.segment.compaction import COMPACTED, clean, compacted_log, headers, put, roll

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_ms=-1)
EPOCHS = ((0, 0), (3, 12), (5, 30))


def log_with_epochs(tmp_path: Path) -> Log:
    log = new_log(tmp_path, SMALL)
    for number, (epoch, _) in enumerate(EPOCHS):
        ends = [start for _, start in EPOCHS[number + 1 :]] or [60]
        fill(log, ends[0] - log.log_end_offset, epoch=epoch)
    return log


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("said", [((0, 0), (30, 12), (5, 30)), ((0, 0), (3, 12), (5, 3)), ()])
def test_entries_that_do_not_ascend_are_made_again(
    tmp_path: Path, clean: bool, said: tuple[tuple[int, int], ...]
) -> None:
    log = log_with_epochs(tmp_path)
    log.close()
    (log.directory / "leader-epoch-checkpoint").write_bytes(leader_epochs_text(said))
    again = reopen(tmp_path, SMALL, clean=clean, recovery_point=40, high_watermark=60)
    assert (again.log_end_offset, again.leader_epochs.entries) == (60, EPOCHS)
    fill(again, 1, epoch=5)
    again.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_batch_that_says_a_higher_epoch_below_the_recovery_point_cuts_nothing(tmp_path: Path, clean: bool) -> None:
    """Its checksum does not cover the epoch."""
    log = log_with_epochs(tmp_path)
    segment, behind = log.segments[-4:-2]
    *_, (position, _) = segment.headers()
    file = log.directory / segment.file.name
    log.close()
    data = bytearray(file.read_bytes())
    data[position + 12] ^= 0x40
    file.write_bytes(data)
    again = reopen(tmp_path, SMALL, clean=clean, recovery_point=behind.base_offset, high_watermark=60)
    assert (again.log_end_offset, again.leader_epochs.entries) == (60, EPOCHS)
    again.close()


def test_epochs_of_a_log_that_was_cut_to_within_its_last_batch_are_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 5, count=10, epoch=5)
    log.delete_records(45)
    log.close()
    again = reopen(tmp_path, SMALL, clean=True, log_start_offset=45, high_watermark=50)
    assert (again.leader_epochs.entries, caplog.records) == (((5, 45),), [])
    again.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("start", [40, 35, 20])
def test_what_is_below_the_logs_start_makes_no_epoch_doubtful(
    tmp_path: Path, start: int, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 20, epoch=1)
    fill(log, 2, count=10, epoch=3)
    log.delete_records(start)
    log.close()
    for _ in range(3):  # what one start writes the next one reads
        again = reopen(tmp_path, SMALL, clean=clean, recovery_point=40, log_start_offset=start, high_watermark=40)
        assert (again.log_start_offset, again.leader_epochs.entries) == (start, ((3, start),))
        assert not caplog.records
        again.close()


@pytest.mark.parametrize("in_segments", [1, 2, 5])
@pytest.mark.parametrize("recovery_point", [0, 3, 5])
def test_epochs_whose_first_batches_were_compacted_away_still_begin_where_they_began(
    tmp_path: Path, recovery_point: int, in_segments: int
) -> None:
    log = compacted_log(tmp_path)
    for offset, (key, epoch) in enumerate([("a", 1), ("x", 4), ("x", 4), ("x", 6), ("b", 8), ("x", 8)]):
        put(log, (key, "1"), epoch=epoch)
        if offset < in_segments - 1:
            roll(log)
    put(log, ("x", "2"), epoch=8)
    roll(log)
    put(log, ("c", "1"), epoch=9)
    clean(log)
    known = log.leader_epochs.entries
    assert [header.base_offset for header in headers(log)] == [0, 4, 6, 7]
    assert known == ((1, 0), (4, 1), (6, 3), (8, 4), (9, 7))
    log.close()
    again = reopen(tmp_path, COMPACTED, recovery_point=recovery_point, first_dirty_offset=7, high_watermark=8)
    assert (again.log_end_offset, again.leader_epochs.entries) == (8, known)
    again.close()
