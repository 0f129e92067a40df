"""Batches that cannot be read: the error names the offset, what is before is delivered, a seek goes on behind."""

import re

import pytest

from kbroker.client.chunk_decoder import decode_columns, decode_records
from kbroker.client.errors import CorruptMessageError
from kbroker.client.partition_state import Chunk, PartitionState
from kbroker.client.types import TopicPartition
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.columns import ColumnDecoder
from kbroker.protocol.records.compression import CompressionType
from kbroker.protocol.records.control import AbortedTransactions, ControlType, control_batch
from tests.protocol.records.old_messages import message, wrapper

KEY = TopicPartition("t", 3)


def batch(base_offset: int, count: int) -> bytes:
    builder = BatchBuilder(1 << 16)
    for number in range(count):
        assert builder.append(None, b"%d" % (base_offset + number), [], 1)
    data = builder.build()
    data[:8] = base_offset.to_bytes(8, "big")
    return bytes(data)


@pytest.fixture
def poisoned() -> PartitionState:
    """Records 0 to 4, a bad batch with 5 to 9, records 10 to 14."""
    bad = bytearray(batch(5, 5))
    bad[-1] ^= 1
    return state_of(batch(0, 5) + bytes(bad) + batch(10, 5))


def state_of(data: bytes, position: int = 0, follower_in: int | None = None) -> PartitionState:
    state = PartitionState(KEY, 0)
    chunk = Chunk(data, follower_in=follower_in)
    chunk.position = position
    state.add(chunk)
    return state


@pytest.mark.parametrize("is_read_from", [True, False])
@pytest.mark.parametrize("columns", [False, True])
def test_what_a_follower_gave_and_cannot_be_read_is_asked_of_the_leader(columns: bool, is_read_from: bool) -> None:
    bad = bytearray(batch(5, 5))
    bad[-1] ^= 1
    poisoned = state_of(batch(0, 5) + bytes(bad) + batch(10, 5), follower_in=7)
    if is_read_from:  # or a later fetch from it has failed
        poisoned.prefer(2, 7, 1e9)
    decoder = ColumnDecoder(100, 1 << 20, False)

    def decoded() -> int:
        if not columns:
            return len(decode_records(poisoned, 100, True))
        decode_columns(poisoned, decoder, True)
        rows: int = decoder.rows
        if rows:
            decoder.finish()
        return rows

    assert [decoded(), decoded()] == [5, 0]
    assert (poisoned.offset, poisoned.fetch_offset, len(poisoned.chunks)) == (5, 5, 0)
    assert (poisoned.replica, poisoned.distrusted_in) == (-1, 7)
    poisoned.add(Chunk(bytes(bad)))
    with pytest.raises(CorruptMessageError, match="offset 5 cannot be read"):
        decoded()


def test_the_leaders_damage_is_not_the_followers_from_whom_is_read_next(poisoned: PartitionState) -> None:
    poisoned.prefer(2, 7, 1e9)
    assert len(decode_records(poisoned, 100, True)) == 5
    with pytest.raises(CorruptMessageError, match="offset 5 cannot be read"):
        decode_records(poisoned, 100, True)
    assert (poisoned.replica, poisoned.distrusted_in) == (2, None)


def test_a_poisoned_batch_is_named_and_can_be_skipped(poisoned: PartitionState) -> None:
    assert [record.offset for record in decode_records(poisoned, 100, True)] == list(range(5))
    for _ in range(2):
        with pytest.raises(
            CorruptMessageError, match=r"t-3: offset 5 cannot be read.*before offset 10, seek there"
        ) as told:
            decode_records(poisoned, 100, True)
    behind = int(re.search(r"offset (\d+), seek", str(told.value)).group(1))  # type: ignore[union-attr]
    again = state_of(bytes(poisoned.chunks[0].records), len(batch(0, 5)) + len(batch(5, 5)))
    again.offset = behind
    assert [record.offset for record in decode_records(again, 100, True)] == list(range(10, 15))


def test_columns_before_a_poisoned_batch_are_delivered_first(poisoned: PartitionState) -> None:
    decoder = ColumnDecoder(100, 1 << 20, True)
    decode_columns(poisoned, decoder, True)
    assert (decoder.rows, poisoned.offset) == (5, 5)
    decoder.finish()
    with pytest.raises(CorruptMessageError, match="offset 5 cannot be read"):
        decode_columns(poisoned, decoder, True)


def transactional(base_offset: int, count: int, producer_id: int) -> bytes:
    builder = BatchBuilder(1 << 16)
    for number in range(count):
        assert builder.append(None, b"%d" % (base_offset + number), [], 1)
    return bytes(builder.build(base_offset=base_offset, producer_id=producer_id, producer_epoch=0, transactional=True))


def marker(kind: ControlType, offset: int, producer_id: int) -> bytes:
    return bytes(control_batch(kind, producer_id, 0, 0, 1, base_offset=offset))


@pytest.mark.parametrize("begins", [0, 3, 6])
def test_a_read_committed_reader_sees_what_was_committed_wherever_it_begins(begins: int) -> None:
    data = (
        transactional(0, 2, 7)
        + transactional(2, 3, 8)
        + batch(5, 1)
        + marker(ControlType.ABORT, 6, 8)
        + transactional(7, 1, 8)
        + marker(ControlType.COMMIT, 8, 7)
        + marker(ControlType.COMMIT, 9, 8)
    )
    wanted = [offset for offset in (0, 1, 5, 7) if offset >= begins]

    def state() -> PartitionState:
        found = PartitionState(KEY, begins)
        found.add(Chunk(data, AbortedTransactions([(8, 2)])))
        return found

    assert [record.offset for record in decode_records(state(), 100, True)] == wanted
    columns, one_by_one = ColumnDecoder(100, 1 << 20, False), ColumnDecoder(1, 1 << 20, False)
    decode_columns(state(), columns, True)
    assert offsets_of(columns) == wanted
    slowly, left = [], state()
    while left.chunks:
        decode_columns(left, one_by_one, True)
        slowly += offsets_of(one_by_one)
    assert slowly == wanted
    assert left.offset == 10


def offsets_of(decoder: ColumnDecoder) -> list[int]:
    return list(decoder.finish().offset.cast("q"))


def test_a_batch_is_decoded_once_and_whole() -> None:
    state = state_of(batch(0, 5) + batch(5, 5) + batch(10, 5))
    assert [record.offset for record in decode_records(state, 1, True)] == list(range(5))
    assert [record.offset for record in decode_records(state, 6, True)] == list(range(5, 15))
    assert not state.chunks
    assert state.offset == 15


def test_messages_of_old_are_read_like_batches_as_records_and_as_columns() -> None:
    rows: list[tuple[bytes | None, bytes | None]] = [(b"k", b"1"), (None, b"2"), (b"k", None)]
    data = message(0, 0, b"k", b"0") + wrapper(0, 1, rows, CompressionType.GZIP)
    data += message(1, 4, None, b"4", 1_700_000_000_000) + batch(5, 2) + batch(7, 1)[:-1]
    state = state_of(data)
    assert state.fetch_offset == 7
    records = decode_records(state, 100, True)
    values = [b"0", b"1", b"2", None, b"4", b"5", b"6"]
    assert [(each.offset, each.value) for each in records] == list(enumerate(values))
    assert [each.timestamp for each in records] == [-1, -1, -1, -1, 1_700_000_000_000, 1, 1]
    decoder = ColumnDecoder(100, 1 << 20)
    state = state_of(data)
    decode_columns(state, decoder, True)
    assert decoder.rows == 7
    assert decoder.finish().offset.cast("q").tolist() == list(range(7))


def test_a_damaged_message_of_old_is_named_and_can_be_skipped() -> None:
    bad = bytearray(message(1, 1, b"k", b"1"))
    bad[-1] ^= 1
    state = state_of(message(1, 0) + bytes(bad) + message(1, 2))
    assert [each.offset for each in decode_records(state, 100, True)] == [0]
    with pytest.raises(CorruptMessageError, match=r"offset 1 cannot be read.*ends before offset 2"):
        decode_records(state, 100, True)
