"""Batches that cannot be read: the error names the offset, what is before is delivered, a seek goes on behind."""

import re

import pytest

from kbroker.client.chunk_decoder import decode_columns, decode_records
from kbroker.client.errors import CorruptMessageError
from kbroker.client.fetcher import Chunk, PartitionState
from kbroker.client.types import TopicPartition
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.columns import ColumnDecoder
from kbroker.protocol.records.record import Record

KEY = TopicPartition("t", 3)


def batch(base_offset: int, count: int) -> bytes:
    builder = BatchBuilder(1 << 16)
    for number in range(count):
        assert builder.append(None, b"%d" % (base_offset + number), [], 1)
    data = builder.build()
    data[:8] = base_offset.to_bytes(8, "big")
    return bytes(data)


@pytest.fixture
def poisoned() -> tuple[PartitionState, Chunk]:
    """Records 0 to 4, a bad batch with 5 to 9, records 10 to 14."""
    bad = bytearray(batch(5, 5))
    bad[-1] ^= 1
    state = PartitionState(0)
    chunk = Chunk(KEY, batch(0, 5) + bytes(bad) + batch(10, 5), None)
    state.chunks.append(chunk)
    return state, chunk


def test_a_poisoned_batch_is_named_and_can_be_skipped(poisoned: tuple[PartitionState, Chunk]) -> None:
    state, chunk = poisoned
    records: list[Record] = []
    with pytest.raises(
        CorruptMessageError, match=r"t-3: offset 5 cannot be read.*before offset 10, seek there"
    ) as told:
        decode_records(state, chunk, records, 100, True)
    assert [record.offset for record in records] == list(range(5))
    behind = int(re.search(r"offset (\d+), seek", str(told.value)).group(1))  # type: ignore[union-attr]
    state.move(behind)
    fetched_again = Chunk(KEY, chunk.records, None)
    fetched_again.position = len(batch(0, 5)) + len(batch(5, 5))
    records.clear()
    decode_records(state, fetched_again, records, 100, True)
    assert [record.offset for record in records] == list(range(10, 15))


def test_columns_before_a_poisoned_batch_are_delivered_first(poisoned: tuple[PartitionState, Chunk]) -> None:
    state, chunk = poisoned
    decoder = ColumnDecoder(100, 1 << 20, True)
    decode_columns(state, chunk, decoder, True)
    assert (decoder.rows, state.offset) == (5, 5)
    decoder.finish()
    with pytest.raises(CorruptMessageError, match="offset 5 cannot be read"):
        decode_columns(state, chunk, decoder, True)


def test_a_batch_may_be_delivered_in_parts() -> None:
    state, chunk = PartitionState(0), Chunk(KEY, batch(0, 5), None)
    state.chunks.append(chunk)
    for first, limit in ((0, 2), (2, 2), (4, 2)):
        records: list[Record] = []
        decode_records(state, chunk, records, limit, True)
        assert [record.offset for record in records] == list(range(first, min(first + limit, 5)))
    assert not state.chunks
