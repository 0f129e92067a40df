"""Batches read as Arrow columns: limits, hidden transactions, and what a bad batch takes back."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.protocol.records import columns, control
from kbroker.protocol.records.builder import BatchBuilder, encode_varint
from kbroker.protocol.records.errors import CorruptBatch, InvalidRecord
from tests.protocol.records import interpreted
from tests.protocol.records.batches import Row, assemble, batch_of, cells, rows, table
from tests.protocol.records.test_record import HEAD

plain = interpreted.load()
both = pytest.mark.parametrize("module", [columns, plain["columns"]], ids=["compiled", "interpreted"])


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(rows=rows, row_limit=st.integers(1, 60), codec=st.sampled_from([0, 4]))
def test_columns_hold_what_the_records_hold(rows: list[Row], row_limit: int, codec: int) -> None:
    data = batch_of(rows, codec)
    for module in (columns, plain["columns"]):
        decoder = module.ColumnDecoder(row_limit, with_headers=True)
        found: list[tuple[Any, ...]] = []
        position = 0
        while True:
            position = decoder.append(data, 3, decoder.next_offset, None, position)
            full = decoder.full
            part = decoder.finish()
            found += zip(cells(part.key, part.rows), cells(part.value, part.rows), part.offset.cast("q"), strict=True)
            if not full:
                break
        assert found == [(key, value, index) for index, (key, value, _, _) in enumerate(rows)]


@both
def test_what_was_aborted_is_hidden_until_its_marker(module: ModuleType) -> None:
    def data(producer_id: int, offset: int) -> bytes:
        filling = BatchBuilder()
        filling.append(b"k", b"v", (), 1)
        return bytes(filling.build(producer_id, 0, 0, transactional=True, base_offset=offset))

    marker = bytes(control.control_batch(control.ControlType.ABORT, 1, 0, 4, 5, base_offset=2))
    stream = data(1, 0) + data(2, 1) + marker + data(1, 3)
    decoder = module.ColumnDecoder()
    assert decoder.append(stream, 0, 0, None, 0, control.AbortedTransactions([(1, 0)])) == len(stream)
    assert list(decoder.finish().offset.cast("q")) == [1, 3]


@both
def test_the_byte_limit_stops_before_a_batch(module: ModuleType) -> None:
    one = batch_of([(None, bytes(100), [], 1)] * 3)
    other = batch_of([(None, bytes(100), [], 1)] * 3, base_offset=3)
    decoder = module.ColumnDecoder(byte_limit=500)
    assert decoder.append(one + other, 0) == len(one)
    assert (decoder.full, decoder.rows, decoder.next_offset) == (True, 3, 3)
    decoder.finish()
    assert decoder.append(one + other, 0, 3, None, len(one)) == len(one + other)


@both
@pytest.mark.parametrize("codec", [0, 4])
def test_a_batch_without_room_waits_for_the_next_columns(module: ModuleType, codec: int) -> None:
    stream = b"".join(batch_of([(None, bytes(100), [], 1)] * 3, codec, base_offset=3 * number) for number in range(4))
    decoder = module.ColumnDecoder(byte_limit=500)
    position, found = 0, []
    while True:
        position = decoder.append(stream, 0, decoder.next_offset, None, position)
        assert decoder.append(stream, 0, decoder.next_offset, None, position) == position, "it is full, or at the end"
        is_last = not decoder.full
        found.append(list(decoder.finish().offset.cast("q")))
        if is_last:
            break
    assert found == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]


@both
def test_a_batch_that_waits_is_forgotten_when_another_place_is_read(module: ModuleType) -> None:
    one, large = batch_of([(None, bytes(100), [], 1)] * 3), batch_of([(None, bytes(1_000), [], 1)] * 3, base_offset=3)
    decoder = module.ColumnDecoder(byte_limit=500)
    assert decoder.append(one + large, 0) == len(one)
    small = batch_of([(None, b"", [], 1)], base_offset=9)
    assert decoder.append(small, 0, 9) == len(small)
    assert list(decoder.finish().offset.cast("q")) == [0, 1, 2, 9]


@both
def test_headers_count_for_the_byte_limit(module: ModuleType) -> None:
    one = batch_of([(None, None, [("h", bytes(400))], 1)])
    decoder = module.ColumnDecoder(byte_limit=600, with_headers=True)
    decoder.append(one + batch_of([(None, bytes(300), [], 1)], base_offset=1), 0)
    assert (decoder.full, decoder.rows) == (True, 1)


@both
def test_times_in_microseconds_end_at_64_bits(module: ModuleType) -> None:
    decoder = module.ColumnDecoder()
    decoder.append(batch_of([(None, None, [], 5), (None, None, [], 2**62)]), 0)
    assert list(decoder.finish().timestamp.cast("q")) == [5000, 2**63 - 1]


@both
def test_a_bad_record_takes_back_its_batch_and_the_rest_goes_on(module: ModuleType) -> None:
    good = batch_of([(b"a", None, [], 1), (None, b"b", [], 2)])
    payload = bytes([14, 0, 0, 0, 1, 2, 120, 0]) + bytes([12, 0, 0, 0, 1, 1, 0])  # the delta 0 twice
    bad = assemble(payload, 0, HEAD | {"base_offset": 2, "count": 2, "last_offset_delta": 1})
    decoder = module.ColumnDecoder()
    with pytest.raises(InvalidRecord, match="offset delta 0 after 0"):
        decoder.append(good + bad, 0)
    assert (decoder.rows, decoder.next_offset) == (2, 2)
    decoder.append(batch_of([(b"c", b"d", [], 3)], base_offset=4), 0, 2)
    assert [row[4:6] for row in table(decoder.finish())] == [(b"a", None), (None, b"b"), (b"c", b"d")]


@both
def test_header_keys_that_are_no_text_stop_no_reader(module: ModuleType) -> None:
    data = assemble(bytes([22, 0, 0, 0, 1, 1, 2, 6, 97, 255, 98, 1]), 0, HEAD)
    decoder = module.ColumnDecoder(with_headers=True)
    assert decoder.append(data, 0) == len(data)
    headers = decoder.finish().headers
    assert cells(headers.keys, headers.count) == ["a\N{REPLACEMENT CHARACTER}b".encode()]


@both
def test_header_keys_grow_by_what_is_put_in_place_of_wrong_bytes(module: ModuleType) -> None:
    wrong, right, count = b"\xff" * 60, b"r" * 60, 60
    header = bytes([120]) + wrong + bytes([1, 120]) + right + bytes([1])
    record = bytes([0, 0, 0, 1, 1]) + encode_varint(2 * count) + header * count
    payload = encode_varint(len(record)) + record
    decoder = module.ColumnDecoder(with_headers=True)
    data = assemble(payload, 0, HEAD)
    for _ in range(3):
        decoder.append(data, 0)
    headers = decoder.finish().headers
    assert cells(headers.keys, headers.count) == ["\N{REPLACEMENT CHARACTER}".encode() * 60, right] * (3 * count)


@both
def test_a_batch_larger_than_allowed_is_refused(module: ModuleType) -> None:
    for codec in (0, 4):
        with pytest.raises(CorruptBatch):
            module.ColumnDecoder(max_payload_size=50).append(batch_of([(None, bytes(100), [], 1)], codec), 0)
