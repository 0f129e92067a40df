import pytest

from kbroker.client import errors
from kbroker.client.consumer import Consumer
from kbroker.client.partition_state import Chunk, PartitionState
from kbroker.client.types import TopicPartition
from kbroker.protocol.records.builder import BatchBuilder


def batch(base_offset: int, count: int) -> bytearray:
    builder = BatchBuilder()
    for index in range(count):
        builder.append(None, b"%d" % (base_offset + index))
    return builder.build(base_offset=base_offset)


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
