"""Records as objects: what is written comes back, at any place and of any codec."""

import pickle
from types import ModuleType

import pytest
from hypothesis import given, settings

from kbroker.protocol.records import builder, record
from kbroker.protocol.records.errors import CorruptBatch
from tests.protocol.records import interpreted
from tests.protocol.records.batches import Row, assemble, batch_of, codecs, rows

plain = interpreted.load()
both = pytest.mark.parametrize("module", [record, plain["record"]], ids=["compiled", "interpreted"])


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(rows=rows, codec=codecs)
def test_records_come_back_and_both_codecs_agree(rows: list[Row], codec: int) -> None:
    batches = []
    for module in (builder, plain["builder"]):
        filling = module.BatchBuilder(1 << 20, codec)
        for key, value, extra, timestamp in rows:
            assert filling.append(key, value, extra, timestamp)
        batches.append(bytes(filling.build(1, 0, 0)))
    assert batches[0] == batches[1]
    for module in (record, plain["record"]):
        decoded = module.decode_batch(batches[0], topic="t", partition=3)
        assert [(r.key, r.value, list(r.headers), r.timestamp) for r in decoded] == rows
        assert [r.offset for r in decoded] == list(range(len(rows)))


@both
def test_a_record_is_equal_after_a_journey(module: ModuleType) -> None:
    one = record.Record(5, 6, 0, b"k", None, (("h", b"v"),), "topic", 2)
    assert pickle.loads(pickle.dumps(one)) == one
    assert hash(one) == hash(pickle.loads(pickle.dumps(one)))
    assert module.Record(1, 2, 0, None, None) != one


@both
def test_records_before_the_wanted_offset_are_left_out(module: ModuleType) -> None:
    data = batch_of([(b"k", None, [], 1)] * 5, base_offset=100)
    assert [r.offset for r in module.decode_batch(data, from_offset=103)] == [103, 104]


@both
def test_a_batch_in_the_middle_of_a_buffer_is_read(module: ModuleType) -> None:
    data = batch_of([(b"k", b"v", [], 1)])
    for buffer in (b"..." + data, memoryview(bytearray(b"..." + data + b"tail"))):
        assert [r.value for r in module.decode_batch(buffer, 3)] == [b"v"]


@both
def test_append_time_is_every_records_time(module: ModuleType) -> None:
    filling = builder.BatchBuilder()
    filling.append(b"k", b"v", (), 5)
    filling.append(b"k", b"v", (), 9)
    found = module.decode_batch(filling.build(log_append_time=True))
    assert [(r.timestamp, r.timestamp_type) for r in found] == [(9, 1), (9, 1)]


@both
def test_a_wrong_crc_is_found_unless_it_was_checked_before(module: ModuleType) -> None:
    data = bytearray(batch_of([(b"k", b"v", [], 1)]))
    data[-2] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        module.decode_batch(data)
    assert len(module.decode_batch(data, check_crc=False)) == 1


@both
def test_a_header_key_that_is_no_text_stops_no_reader(module: ModuleType) -> None:
    payload = bytes([22, 0, 0, 0, 1, 1, 2, 6, 97, 255, 98, 1])
    (read,) = module.decode_batch(assemble(payload, 0, HEAD))
    assert read.headers == (("a\N{REPLACEMENT CHARACTER}b", None),)


HEAD = {
    "base_offset": 0,
    "attributes": 0,
    "count": 1,
    "last_offset_delta": 0,
    "base_timestamp": 0,
    "max_timestamp": 0,
}
