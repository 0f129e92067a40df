"""The head of a batch: read, checked, rewritten in place."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.protocol.records import batch as compiled
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.errors import CorruptBatch, InvalidRecord
from tests.protocol.records import interpreted

MODULES = [pytest.param(compiled, id="compiled"), pytest.param(interpreted.load()["batch"], id="interpreted")]
both = pytest.mark.parametrize("batch", MODULES)


def a_batch(records: int = 3, compression: int = 0) -> bytearray:
    builder = BatchBuilder(1 << 20, compression)
    for index in range(records):
        builder.append(b"key", b"value" * index, [("h", b"x")], 1000 + index)
    return builder.build(producer_id=7, producer_epoch=1, base_sequence=5)


@both
def test_a_header_reads_what_was_built(batch: Any) -> None:
    header = batch.read_header(b"abc" + a_batch(), 3)
    assert (header.count, header.last_offset, header.next_offset, header.last_sequence) == (3, 2, 3, 7)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.max_timestamp) == (7, 1, 5, 1002)
    assert header.size == len(a_batch())


@both
def test_sequences_wrap_to_zero(batch: Any) -> None:
    assert batch.increment_sequence(2**31 - 1, 1) == 0


@both
def test_a_checked_batch_tells_its_timestamps(batch: Any) -> None:
    _, summary = batch.check_batch(a_batch())
    assert (summary.min_timestamp, summary.max_timestamp, summary.offset_of_max_timestamp) == (1000, 1002, 2)
    assert summary.has_null_key is False


@both
def test_a_compressed_batch_is_not_unpacked_by_the_check(batch: Any) -> None:
    assert batch.check_batch(a_batch(50, 4))[1] is None
    data = a_batch(50, 4)
    assert batch.validate_records(data, 0, len(data)).max_timestamp == 1049


@both
def test_stamping_leaves_the_crc_valid(batch: Any) -> None:
    data = a_batch()
    batch.stamp(data, 0, 12345678901, 9)
    header, _ = batch.check_batch(data)
    assert (header.base_offset, header.partition_leader_epoch) == (12345678901, 9)


@both
def test_append_time_is_written_with_a_new_crc(batch: Any) -> None:
    data = a_batch()
    batch.set_append_time(data, 0, 999999)
    header, _ = batch.check_batch(data)
    assert (header.timestamp_type, header.max_timestamp) == (1, 999999)


@both
@pytest.mark.parametrize("position", range(12, 80))
def test_a_flipped_bit_is_found(batch: Any, position: int) -> None:
    data = a_batch()
    data[position] ^= 0x10
    if 12 <= position < 16:
        batch.check_batch(data)  # the leader epoch is not covered
        return
    with pytest.raises((CorruptBatch, InvalidRecord)):
        batch.check_batch(data)


@both
@pytest.mark.parametrize("magic", [0, 1])
def test_old_magics_are_refused_by_name(batch: Any, magic: int) -> None:
    data = a_batch()
    data[16] = magic
    with pytest.raises(InvalidRecord, match="magic"):
        batch.read_header(data)


@both
@pytest.mark.parametrize("length", [-1, 0, 48, 1 << 30, -(2**31)])
def test_lying_lengths_are_refused(batch: Any, length: int) -> None:
    data = a_batch()
    data[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch):
        batch.check_batch(data)


@both
@pytest.mark.parametrize("count", [-1, 0, 2, 4, 2**31 - 1])
def test_lying_counts_are_refused(batch: Any, count: int) -> None:
    data = a_batch()
    data[57:61] = count.to_bytes(4, "big", signed=True)
    data[23:27] = max(count - 1, -(2**31)).to_bytes(4, "big", signed=True)
    batch.write_crc(data, 0)
    with pytest.raises(InvalidRecord):
        batch.check_batch(data)


@both
@pytest.mark.parametrize("records", [1, 50, 200, 201, 999])
def test_a_producer_written_afterwards_gets_the_crc_of_the_whole_batch(batch: Any, records: int) -> None:
    behind = b"behind"
    builder = BatchBuilder(1 << 20)
    for index in range(records):
        builder.append(None, b"value %d" % index * 20, (), 1000)
    data = b"before" + builder.build() + behind
    written, anew = bytearray(data), bytearray(data)
    batch.set_producer(written, 6, 1 << 40, 7, 2**31 - 1)
    anew[6 + 43 : 6 + 57] = (1 << 40).to_bytes(8, "big") + (7).to_bytes(2, "big") + (2**31 - 1).to_bytes(4, "big")
    batch.write_crc(anew, 6)
    assert written == anew
    batch.set_producer(written, 6, -1, -1, -1)
    assert written == data


@both
def test_batches_are_split_and_a_cut_tail_left_out(batch: Any) -> None:
    one = a_batch()
    size = len(one)
    assert batch.split_batches(one + one + one[:70]) == [(0, size), (size, size)]


@pytest.mark.slow
@both
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_garbled_records_never_do_more_than_raise(batch: Any, data: st.DataObject) -> None:
    garbled = a_batch(4)
    for _ in range(data.draw(st.integers(1, 4))):
        garbled[data.draw(st.integers(21, len(garbled) - 1))] = data.draw(st.integers(0, 255))
    garbled[21:23] = bytes(2)
    outcomes = []
    for module in (compiled, batch):
        module.write_crc(garbled, 0)
        try:
            outcomes.append(module.check_batch(garbled)[1].max_timestamp)
        except (CorruptBatch, InvalidRecord) as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]
