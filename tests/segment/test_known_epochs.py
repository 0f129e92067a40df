"""A leader-epoch-checkpoint that is damaged: the batches tell."""

from pathlib import Path

import pytest

from kbroker.segment.checkpoints import leader_epochs_text
from kbroker.segment.log_config import LogConfig
from tests.segment.batches import NOW, fill, new_log, reopen

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_ms=-1)
EPOCHS = ((0, 0), (3, 12), (5, 30))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "said",
    [
        ((0, 0), (3, 12), (7, 30)),
        ((0, 0), (3, 12), (5, 3)),
        ((0, 0), (30, 12), (5, 30)),
        ((0, 0), (9, 12)),
        ((9, 0), (30, 3)),
        (),
    ],
)
def test_an_epoch_that_no_batch_bears_out_costs_no_record_and_hinders_no_leader(
    tmp_path: Path, clean: bool, said: tuple[tuple[int, int], ...]
) -> None:
    log = new_log(tmp_path, SMALL)
    for number, (epoch, _) in enumerate(EPOCHS):
        ends = [start for _, start in EPOCHS[number + 1 :]] or [60]
        fill(log, ends[0] - log.log_end_offset, epoch=epoch)
    log.close()
    (log.directory / "leader-epoch-checkpoint").write_bytes(leader_epochs_text(said))
    again = reopen(tmp_path, SMALL, clean=clean, recovery_point=40, high_watermark=60)
    assert (again.log_end_offset, again.leader_epochs.entries) == (60, EPOCHS)
    fill(again, 1, epoch=5)
    again.close()


def test_an_epoch_that_says_it_began_before_the_log_cuts_nothing(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 40, epoch=2)
    log.delete_records(log.segments[2].base_offset)
    log.retention(NOW)
    start = log.log_start_offset
    assert start == log.segments[0].base_offset > 1
    log.close()
    (log.directory / "leader-epoch-checkpoint").write_bytes(leader_epochs_text(((4, 1),)))
    again = reopen(tmp_path, SMALL, log_start_offset=start, high_watermark=40)
    assert (again.log_end_offset, again.leader_epochs.entries) == (40, ((2, start),))
    again.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("start", [40, 35, 20])
def test_what_is_below_the_logs_start_makes_no_epoch_doubtful(
    tmp_path: Path, clean: bool, start: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 20, epoch=1)
    fill(log, 2, count=10, epoch=3)
    log.delete_records(start)
    log.close()
    again = reopen(tmp_path, SMALL, clean=clean, recovery_point=40, log_start_offset=start, high_watermark=40)
    assert (again.log_start_offset, again.leader_epochs.entries) == (start, ((3, start),))
    assert not caplog.records
    again.close()
