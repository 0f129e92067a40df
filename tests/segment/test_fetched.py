"""Batches that a leader sent."""

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import stamp
from kbroker.segment.fetched import check_fetched, cut_into_lots
from tests.segment.batches import batch


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
