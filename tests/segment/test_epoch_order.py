"""Leader epochs that fall at a recovery: damage to one field is mended, what a truncation left behind is cut."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from tests.segment.batches import fill, new_log, reopen

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)


def written(folder: Path, epochs: Sequence[int], config: LogConfig) -> Log:
    """A log of one batch per epoch that is named; the checkpoint of epochs was never written."""
    log = new_log(folder, config)
    for epoch in epochs:
        fill(log, 1, epoch=epoch)
    return log


def contents(log: Log) -> bytes:
    return b"".join(Path(segment.file.path).read_bytes() for segment in log.segments)


def damage(log: Log, number: int, epoch: int) -> None:
    """Let the batch of that number (and offset) say another epoch."""
    segment = next(each for each in reversed(log.segments) if each.base_offset <= number)
    path, position = Path(segment.file.path), segment.find(number)
    data = bytearray(path.read_bytes())
    data[position + 12 : position + 16] = epoch.to_bytes(4)
    path.write_bytes(data)


FIVE = [3, 3, 3, 3, 3]


@pytest.mark.parametrize("config", [LogConfig(), SMALL], ids=["one segment", "several"])
@pytest.mark.parametrize(
    ("epochs", "number", "says"),
    [
        *((FIVE * 5, number, 1 << 30) for number in (0, 1, 5, 6, 7, 8, 12, 23)),
        *((FIVE * 5, number, 1) for number in (1, 5, 6, 7, 8, 12, 23)),
        ([*FIVE, 5, 5, 5], 4, 7),
        ([*FIVE, 5, 5, 5], 6, 4),
        ([*FIVE, 5, 5, 5], 7, 2),
        ([1, *FIVE, 5, 5, 5], 3, 2),
    ],
)
@pytest.mark.parametrize("recovery_point", [0, 2])
def test_one_batch_whose_epoch_fits_to_neither_neighbour_is_mended_and_nothing_is_lost(
    tmp_path: Path, epochs: Sequence[int], number: int, says: int, config: LogConfig, recovery_point: int
) -> None:
    log = written(tmp_path, epochs, config)
    before, known = contents(log), log.leader_epochs.entries
    damage(log, number, says)
    log.discard()
    again = reopen(tmp_path, config, recovery_point=recovery_point)
    assert again.log_end_offset == len(epochs)
    if number >= recovery_point or says > max(epochs):  # one below it may say less: who asks for it is told so
        assert (contents(again), again.leader_epochs.entries) == (before, known)
    again.close()


def test_the_first_batch_of_an_epoch_gets_it_back_where_the_checkpoint_knows(tmp_path: Path) -> None:
    log = written(tmp_path, [*FIVE, 5, 5, 5], LogConfig())
    log.write_pending()
    before = contents(log)
    damage(log, 5, 9)
    log.discard()
    again = reopen(tmp_path)
    assert contents(again) == before
    assert again.leader_epochs.entries == ((3, 0), (5, 5))
    again.close()


@pytest.mark.parametrize(("newer", "is_known"), [(1, True), (2, True), (2, False)])
def test_what_newer_batches_have_before_them_is_cut_where_their_epoch_is_shown(
    tmp_path: Path, newer: int, is_known: bool
) -> None:
    """By the checkpoint of epochs, or by a second batch."""
    log = written(tmp_path, FIVE * 2, LogConfig())
    stale = contents(log)
    log.truncate_to(4)
    fill(log, newer, epoch=4)
    if is_known:
        log.write_pending()
    kept = contents(log)
    log.discard()
    Path(log.active_segment.file.path).write_bytes(kept + stale[len(kept) :])
    again = reopen(tmp_path, recovery_point=4)
    assert (contents(again), again.leader_epochs.entries) == (kept, ((3, 0), (4, 4)))
    again.close()


def test_what_is_cut_off_is_cut_though_it_is_of_two_older_epochs(tmp_path: Path) -> None:
    log = written(tmp_path, [3, 3, 3, 4, 4, 5, 5, 5], LogConfig())
    stale = contents(log)
    log.truncate_to(2)
    fill(log, 2, epoch=6)
    kept = contents(log)
    log.discard()
    Path(log.active_segment.file.path).write_bytes(kept + stale[len(kept) :])
    again = reopen(tmp_path, recovery_point=2)
    assert (contents(again), again.leader_epochs.entries) == (kept, ((3, 0), (6, 2)))
    again.close()
