"""A time index that is not what the batches say: neither searches by time nor retention go by it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from tests.segment.batches import NOW, fill, new_log, reopen

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_ms=-1)
COUNT = 40


def zeros(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def nothing(file: Path) -> None:
    file.write_bytes(b"")


def shorter(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 12)


def cut_within_an_entry(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 5)


def zeros_behind(file: Path) -> None:
    file.write_bytes(file.read_bytes() + bytes(120))


def later_behind(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\x7f" * 12)


def wrong_offsets(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[11::12] = bytes(11 for _ in data[11::12])
    file.write_bytes(data)


HOW = [zeros, nothing, shorter, cut_within_an_entry, zeros_behind, later_behind, wrong_offsets]


def damaged_log(path: Path, how: Callable[[Path], None], config: LogConfig = SMALL) -> Log:
    """One whose time indexes are damaged after a clean stop; its records are a millisecond apart."""
    log = new_log(path, config)
    fill(log, COUNT)
    log.close()
    for file in log.directory.glob("*.timeindex"):
        how(file)
    return reopen(path, config, clean=True, high_watermark=COUNT)


@pytest.mark.parametrize("how", HOW)
def test_a_damaged_time_index_hides_no_record_from_a_search_by_time(
    tmp_path: Path, how: Callable[[Path], None]
) -> None:
    log = damaged_log(tmp_path, how)
    for number in range(COUNT):
        found = log.offset_for_timestamp(NOW + number)
        assert found is not None
        assert (found.timestamp_ms, found.offset) == (NOW + number, number)
    assert log.offset_for_timestamp(NOW + COUNT) is None
    largest = log.offset_for_timestamp(-3)
    assert largest is not None
    assert largest.offset == COUNT - 1
    log.close()


@pytest.mark.parametrize("how", HOW)
def test_a_damaged_time_index_makes_no_segment_older_or_younger(tmp_path: Path, how: Callable[[Path], None]) -> None:
    log = damaged_log(tmp_path, how, LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_ms=1000))
    assert log.retention(NOW + 1000) == 0
    second = log.segments[1].base_offset
    assert log.retention(NOW + second + 1000) == 1
    log.close()


@pytest.mark.parametrize("how", HOW)
def test_what_is_appended_behind_a_damaged_time_index_is_found(tmp_path: Path, how: Callable[[Path], None]) -> None:
    log = damaged_log(tmp_path, how)
    fill(log, 20, timestamp=NOW + COUNT)
    log.update_high_watermark(log.log_end_offset)
    for number in range(COUNT + 20):
        found = log.offset_for_timestamp(NOW + number)
        assert found is not None
        assert found.offset == number
    log.close()


@pytest.mark.parametrize("how", HOW)
def test_a_truncation_asks_the_batches_for_the_largest_timestamp(tmp_path: Path, how: Callable[[Path], None]) -> None:
    log = damaged_log(tmp_path, how)
    last = log.active_segment.base_offset
    log.truncate_to(last + 2)
    assert log.active_segment.max_timestamp == NOW + last + 1
    assert log.active_segment.offset_of_max_timestamp == last + 1
    log.close()


def test_an_index_that_is_cut_within_an_entry_lacks_more_than_the_last_batch_can_tell(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 4)
    fill(log, 1, timestamp=NOW + 1000)
    fill(log, COUNT, timestamp=NOW - COUNT)
    log.close()
    cut_within_an_entry(log.directory / f"{0:020d}.timeindex")
    again = reopen(tmp_path, SMALL, clean=True, high_watermark=COUNT)
    found = again.offset_for_timestamp(NOW + 500)
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (NOW + 1000, 4)
    again.close()
