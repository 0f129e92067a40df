from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kbroker.segment.log import Log
from tests.segment.batches import fill, new_log, reopen
from tests.segment.test_recovery import SMALL, crash


def flip(log: Log, bits: Sequence[tuple[int, int, int]], batches: int = 11) -> None:
    """Crash, and flip bits: (batch, byte of it, bit)."""
    path, size = Path(log.active_segment.file.path), log.size // batches
    crash(log)
    data = bytearray(path.read_bytes())
    for number, byte, bit in bits:
        data[number * size + byte % size] ^= bit
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damaged", "promised"),
    [((2,), 11), ((9,), 11), ((10,), 0), ((5, 6), 11), ((2, 7, 10), 10), ((9, 10), 0)],
    ids=["early", "last but one", "the tail", "neighbours", "the tail, too", "both last"],
)
def test_a_log_with_whole_batches_behind_damage_is_short_whatever_was_promised(
    tmp_path: Path, damaged: tuple[int, ...], promised: int
) -> None:
    """A crash leaves nothing behind what it has torn; no checkpoint may have been written yet."""
    log = new_log(tmp_path)
    fill(log, 11)
    flip(log, [(number, -1, 1) for number in damaged])
    again = reopen(tmp_path)
    assert again.log_end_offset == damaged[0]
    assert (again.is_short, again.promised_offset) == (promised > 0, promised)
    again.close()


@pytest.mark.parametrize(
    ("number", "byte", "bit", "promised"),
    [(6, 0, 16, 11), (10, 0, 16, 10), (10, 2, 1, 10), (10, 7, 8, 10), (8, 7, 64, 11), (6, 11, 1, 0), (10, 23, 64, 10)],
    ids=["next", "the last", "the last's third byte", "the last's lowest byte", "by 64", "a length", "a delta"],
)
def test_offsets_behind_damage_are_believed_only_if_they_can_be(
    tmp_path: Path, number: int, byte: int, bit: int, promised: int
) -> None:
    """The checksums do not cover them."""
    log = new_log(tmp_path)
    fill(log, 11)
    flip(log, [(5, -1, 1), (number, byte, bit)])
    again = reopen(tmp_path)
    assert (again.log_end_offset, again.promised_offset) == (5, promised)
    again.close()


@pytest.mark.parametrize(
    ("bits", "promised"),
    [
        ([(8, 7, 64), (9, -1, 1), (10, -1, 1)], 8),
        ([(number, 15, 1) for number in range(6, 11)], 0),
        ([(number, 15, 1) for number in range(8, 11)], 8),
    ],
    ids=["the last whole one belied by a damaged one", "an older epoch", "in part"],
)
def test_what_cannot_be_the_logs_own_behind_damage_does_not_count(
    tmp_path: Path, bits: list[tuple[int, int, int]], promised: int
) -> None:
    log = new_log(tmp_path)
    fill(log, 11, epoch=1)
    flip(log, [(5, -1, 1), *bits])
    again = reopen(tmp_path)
    assert (again.log_end_offset, again.promised_offset) == (5, promised)
    again.close()


def test_more_damaged_batches_at_the_end_than_are_looked_at_promise_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbroker.segment.behind_damage._LOOKED_AT", 2)
    log = new_log(tmp_path)
    fill(log, 11)
    flip(log, [(number, -1, 1) for number in (5, 9, 10)])
    again = reopen(tmp_path)
    assert (again.log_end_offset, again.promised_offset) == (5, 0)
    again.close()


@pytest.mark.parametrize("how", ["damaged", "its tail", "and an offset"])
def test_a_log_with_segments_behind_damage_is_short_whatever_was_promised(tmp_path: Path, how: str) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 60)
    path, last = Path(log.segments[2].file.path), log.active_segment
    batches = 60 - last.base_offset
    size = last.size // batches
    assert batches > 1
    crash(log)
    if how == "its tail":
        path.write_bytes(path.read_bytes()[:-10])
    else:
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(data)
    if how == "and an offset":
        path = Path(last.file.path)
        data = bytearray(path.read_bytes())
        data[(batches - 1) * size] ^= 1
        path.write_bytes(data)
    again = reopen(tmp_path, SMALL)
    assert again.log_end_offset < last.base_offset
    assert (again.is_short, again.promised_offset) == (True, 59 if how == "and an offset" else 60)
    again.close()
