"""What a consumer hands over of what was fetched, without a broker."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator

import pytest

from kbroker.client import errors
from kbroker.client.consumer import Consumer
from kbroker.client.partition_state import Chunk, PartitionState
from kbroker.client.types import TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.record import Record

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(base_offset: int, count: int) -> bytes:
    builder = BatchBuilder(1 << 16)
    for number in range(count):
        assert builder.append(None, b"%d" % (base_offset + number), [], 1)
    return bytes(builder.build(base_offset=base_offset))


@pytest.fixture
async def consumer() -> AsyncIterator[Consumer]:
    async with Consumer("127.0.0.1:1") as consumer:
        yield consumer


def filled(consumer: Consumer, key: TopicPartition, *batches: bytes) -> PartitionState:
    state = consumer._assignment.begin(key, offset=0)
    for data in batches:
        state.add(Chunk(data))
    return state


async def polled(consumer: Consumer, limit: int) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in await consumer.poll(1, limit)]


async def test_a_poll_takes_what_there_is_of_several_partitions_up_to_its_limit(consumer: Consumer) -> None:
    filled(consumer, A, batch(0, 3))
    filled(consumer, B, batch(0, 3))
    assert await polled(consumer, 5) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert await polled(consumer, 5) == [(1, 2)]
    assert await consumer.poll(0) == []


async def test_what_a_small_poll_leaves_is_not_decoded_again(consumer: Consumer) -> None:
    state = filled(consumer, A, batch(0, 100))
    for offset in range(100):
        assert await polled(consumer, 1) == [(0, offset)]
        assert not state.chunks, "the batch was decoded with the first record"


async def test_an_iterator_goes_on_after_polling_and_polling_after_an_iterator(consumer: Consumer) -> None:
    filled(consumer, A, batch(0, 6))
    assert await polled(consumer, 2) == [(0, 0), (0, 1)]
    async for record in consumer:
        if record.offset == 3:
            break
    assert consumer.positions == {A: 4}
    assert await polled(consumer, 10) == [(0, 4), (0, 5)]


async def test_what_is_wrong_with_a_partition_is_told_behind_its_records(consumer: Consumer) -> None:
    state = filled(consumer, A, batch(0, 2))
    state.stop(errors.error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic="t"))
    assert await polled(consumer, 10) == [(0, 0), (0, 1)]
    with pytest.raises(errors.TopicAuthorizationFailedError):
        await consumer.poll(1)
    assert state in consumer._assignment.hungry, "and tried again"


async def test_batches_begin_where_records_ended(consumer: Consumer) -> None:
    filled(consumer, A, batch(0, 6))
    assert await polled(consumer, 2) == [(0, 0), (0, 1)]
    assert consumer._assignment.records_ahead == 4
    task = asyncio.create_task(consumer.next_batch(timeout=0.01))
    assert await task is None
    state = consumer._assignment.states[A]
    assert (state.offset, consumer._assignment.records_ahead) == (2, 0), "fetched again from there"
    state.add(Chunk(batch(0, 6)))
    found = await consumer.next_batch(timeout=20)
    assert found is not None
    assert found["offset"].to_pylist() == [2, 3, 4, 5]


async def test_a_closing_consumer_ends_the_call_that_waits(consumer: Consumer) -> None:
    waiting = asyncio.create_task(consumer.poll(30))
    await asyncio.sleep(0.01)
    await consumer.close()
    with pytest.raises(errors.ClientClosed):
        await waiting


async def test_waking_up_ends_one_call_and_only_one(consumer: Consumer) -> None:
    filled(consumer, A, batch(0, 1))
    consumer.wakeup()
    await asyncio.sleep(0)
    with pytest.raises(errors.WokenUp):
        await consumer.poll(1)
    assert await polled(consumer, 1) == [(0, 0)]


@pytest.mark.parametrize("part", ["key", "value"])
async def test_what_a_deserializer_does_not_take_is_told_behind_what_is_before_it(part: str) -> None:
    builder = BatchBuilder(1 << 16)
    for data in (b"[1]", None, b"[", b"[2]"):
        key, value = (data, b"v") if part == "key" else (b"k", data)
        assert builder.append(key, value, [], 1)
    records = bytes(builder.build())
    functions = {f"{part}_deserializer": json.loads}
    async with Consumer("127.0.0.1:1", **functions) as consumer:
        state = filled(consumer, A, records)
        assert [getattr(record, part) for record in await consumer.poll(1)] == [[1], None]
        for _ in range(2):
            state.add(Chunk(records))
            with pytest.raises(errors.DeserializationError, match=f"t-0 at offset 2: the {part}: .*seek to 3") as told:
                await consumer.poll(1)
            assert isinstance(told.value.__cause__, json.JSONDecodeError)
        consumer.seek(A, 3)
        state.add(Chunk(records))
        assert [getattr(record, part) for record in await consumer.poll(1)] == [[2]]


async def test_an_iterator_ends_where_another_thread_has_just_forgotten_what_was_there(consumer: Consumer) -> None:
    class Forgotten(deque[Record]):
        def __bool__(self) -> bool:
            return True  # a moment ago

    assert list(consumer.reader._each(Forgotten())) == []
