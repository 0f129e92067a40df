import pytest

from kbroker.client import errors
from kbroker.client.consumer import Consumer
from kbroker.client.fetcher import Chunk, PartitionState, next_offset
from kbroker.client.types import TopicPartition
from protocol.records.builder import BatchBuilder


def batch(base_offset: int, count: int) -> bytearray:
    builder = BatchBuilder()
    for index in range(count):
        builder.append(None, b"%d" % (base_offset + index))
    return builder.build(base_offset=base_offset)


def test_the_next_offset_is_behind_the_last_whole_batch() -> None:
    assert next_offset(batch(5, 3) + batch(8, 2) + batch(10, 4)[:-1], 5) == 10


async def test_a_poisoned_batch_is_named_and_can_be_skipped() -> None:
    key = TopicPartition("t", 0)
    bad = batch(3, 2)
    bad[-1] ^= 1
    data = bytes(batch(0, 3) + bad + batch(5, 1))
    async with Consumer("127.0.0.1:1") as consumer:
        state = consumer._fetcher.states[key] = PartitionState(0)
        state.chunks.append(Chunk(key, data, None))
        assert [record.offset for record in await consumer.poll(1)] == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(errors.CorruptMessageError, match=r"t-0: offset 3 .* before offset 5"):
                await consumer.poll(1)
        state.move(5)
        state.chunks.append(Chunk(key, data, None))
        assert [record.offset for record in await consumer.poll(1)] == [5]


def test_a_preferred_replica_is_read_from_while_it_is_there_and_its_time_lasts() -> None:
    state = PartitionState(0)
    assert state.source(1, 7, {1, 2}, 5.0) == 1
    state.prefer(2, 7, 10.0)
    assert state.source(1, 7, {1, 2}, 5.0) == 2
    assert state.source(1, 7, {1}, 5.0) == 1
    assert state.source(1, 7, {1, 2}, 10.0) == 1
    assert state.source(3, 8, {1, 2, 3}, 5.0) == 3, "a new leader may choose otherwise"
