"""Batches that a leader sent."""

from pathlib import Path

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import stamp, write_crc
from kbroker.segment.fetched import check_fetched, cut_into_lots
from kbroker.segment.log_config import LogConfig
from tests.segment.batches import NOW, batch, new_log, old_messages, reopen


def at(offset: int, count: int = 1) -> bytearray:
    data = batch(count)
    stamp(data, 0, offset, 0)
    return data


def test_whole_batches_are_listed_and_a_cut_one_is_left_out() -> None:
    data = at(5, 2) + at(9) + at(10)[:-1]
    headers = check_fetched(memoryview(data), "t-0")
    assert [header.base_offset for _, header in headers] == [5, 9]
    assert check_fetched(memoryview(b""), "t-0") == []


def test_offsets_must_ascend_and_checksums_match() -> None:
    with pytest.raises(KafkaError) as caught:
        check_fetched(memoryview(at(5, 3) + at(7)), "t-0")
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    damaged = at(5)
    damaged[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        check_fetched(memoryview(damaged), "t-0")
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_lots_fit_a_segment_but_for_a_single_larger_batch() -> None:
    data = at(0) + at(1) + at(2, 20) + at(22)
    headers = check_fetched(memoryview(data), "t-0")
    lots = cut_into_lots(headers, 2 * headers[0][1].size)
    assert [[header.base_offset for _, header in lot] for lot in lots] == [[0, 1], [2], [22]]


@pytest.mark.parametrize("gap", [1 << 31, (1 << 31) + 5, 1 << 40])
def test_a_gap_of_offsets_that_no_segment_spans_starts_the_next_one(tmp_path: Path, gap: int) -> None:
    log = new_log(tmp_path, LogConfig(index_interval_bytes=0))
    data = at(0) + at(1) + at(gap, 3) + at(2 * gap)
    result = log.append_as_follower(data, NOW)
    assert (result.base_offset, result.last_offset) == (0, 2 * gap)
    assert [segment.base_offset for segment in log.segments] == [0, gap, 2 * gap]
    assert b"".join(segment.file.read(segment.size, 0) for segment in log.segments) == data
    assert log.read(gap + 1, 1 << 20).read() == at(gap, 3)
    log.close()


def test_offsets_up_to_the_largest_relative_one_stay_in_their_segment(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(index_interval_bytes=0))
    log.append_as_follower(at(0) + at((1 << 31) - 3, 2) + at((1 << 31) - 1), NOW)
    assert len(log.segments) == 1
    assert log.active_segment.index.last_offset == (1 << 31) - 1
    log.close()


def test_a_batch_that_ends_before_it_begins_is_refused() -> None:
    data = at(5, 2)
    data[23:27] = b"\xff\xff\xff\xfe"
    write_crc(data, 0)
    with pytest.raises(KafkaError, match="ends before it begins") as caught:
        check_fetched(memoryview(data), "t-0")
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_messages_of_old_are_listed_and_their_checksums_looked_at() -> None:
    data = old_messages(9, 0) + old_messages(9, 1, 9) + at(20)
    headers = check_fetched(memoryview(data[:-1]), "t-0")
    assert [header.last_offset for _, header in headers] == [0, 3, 4, 7, 8, 11, 12, 15, 16, 19]
    assert len(check_fetched(memoryview(data[: len(data) - len(at(20)) - 1]), "t-0")) == 9
    damaged = bytearray(data)
    damaged[27] ^= 1
    with pytest.raises(KafkaError, match="wrong CRC"):
        check_fetched(memoryview(damaged), "t-0")


def test_a_follower_takes_messages_of_old_as_they_are(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(index_interval_bytes=100))
    data = old_messages(40)
    log.append_as_follower(data, NOW)
    assert log.log_end_offset == 40
    assert log.active_segment.file.read(log.size, 0) == data
    assert log.active_segment.index.count > 3
    assert log.latest_epoch == -1
    log.close()


def test_a_batch_too_large_for_a_segment_starts_one_where_the_empty_one_cannot_hold_its_offset(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(segment_bytes=10, index_interval_bytes=0))
    gap = (1 << 31) + 5
    for offset in (gap, gap + 1):
        log.append_as_follower(at(offset), NOW)
    assert [segment.base_offset for segment in log.segments] == [0, gap, gap + 1]
    log.close()
    again = reopen(tmp_path, LogConfig(segment_bytes=10))
    assert again.log_end_offset == gap + 2
    again.close()
