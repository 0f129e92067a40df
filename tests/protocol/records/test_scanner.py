"""The scanner finds what the reader finds, and refuses what it refuses; headers alone it does not look at."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbroker.protocol.records.batch import HEADER_SIZE
from kbroker.protocol.records.errors import InvalidRecord
from kbroker.protocol.records.reader import RecordReader
from tests.protocol.records import interpreted
from tests.protocol.records.batches import Row, batch_of, rows

RecordScanner = interpreted.load()["scanner"].RecordScanner


@pytest.mark.slow
@given(rows)
def test_it_finds_keys_and_numbers(rows: list[Row]) -> None:
    data = batch_of(rows)
    reader = RecordReader(memoryview(data), HEADER_SIZE, len(data), len(rows), 0, len(rows) - 1)
    scanner = RecordScanner()
    position = HEADER_SIZE
    for _ in rows:
        assert reader.next_record()
        assert scanner.read(data, position, len(data))
        assert (scanner.timestamp_delta, scanner.offset_delta) == (reader.timestamp, reader.offset_delta)
        assert (scanner.key_start, scanner.key_length) == (reader.key_start, reader.key_length)
        assert (scanner.value_length, scanner.end) == (reader.value_length, reader.limit)
        position = scanner.end
    assert position == len(data)


@given(st.binary(max_size=30))
@example(b"\x0c\x00\x00\x00\x01\x01\x00")
@example(b"\x0e\x00" + b"\xff" * 20)
def test_what_it_takes_lies_within_the_bytes_and_the_reader_refuses_nothing_of_it_but_headers(data: bytes) -> None:
    scanner = RecordScanner()
    if not scanner.read(data, 0, len(data)):
        return
    assert scanner.body_start < scanner.key_start <= scanner.end <= len(data)
    assert scanner.key_start + max(scanner.key_length, 0) < scanner.end
    reader = RecordReader(memoryview(data), 0, len(data), 1, 0, 2**31 - 1)
    refusals = []
    try:
        reader.next_record()
    except InvalidRecord as error:
        refusals = [str(error)]
    for text in refusals:
        assert any(word in text for word in ("header", "more than its fields", "follow", "overflows"))
