import asyncio
from typing import Any

import pytest

from kbroker.client import errors
from kbroker.client.admin import Admin
from kbroker.client.consumer import Consumer
from kbroker.client.producer import Producer
from kbroker.client.types import TopicPartition


async def fill(bootstrap: str, topic: str, count: int) -> None:
    async with Producer(bootstrap, batch_size=2000) as producer:
        for i in range(count):
            await producer.send(topic, b"%d" % i, partition=0, timestamp_ms=10_000 + i)


@pytest.mark.slow
async def test_seeking_goes_where_it_says(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 500)
    first = TopicPartition(topic, 0)
    async with Consumer(bootstrap) as consumer:
        await consumer.assign([first])
        await consumer.seek_to_beginning()
        assert (await consumer.poll(10, 5))[4].offset == 4
        assert await consumer.position(first) == 5
        assert (await consumer.poll(10, 1))[0].offset == 5
        consumer.seek(first, 400)
        assert (await consumer.poll(10, 1))[0].offset == 400
        await consumer.seek_to_timestamp(10_123)
        assert (await consumer.poll(10, 1))[0].timestamp == 10_123
        assert await consumer.lag() == {first: 500 - 124}
        await consumer.seek_to_end()
        assert await consumer.poll(0.3) == []
        found = await consumer.offsets_for_times({first: 10_400, TopicPartition(topic, 1): 0})
        assert found[TopicPartition(topic, 1)] is None
        assert (await consumer.beginning_offsets([first]), await consumer.end_offsets([first])) == (
            {first: 0},
            {first: 500},
        )


async def test_partitions_are_added_and_taken_away_one_by_one(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 100)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.incremental_assign([first])
        assert consumer.current_lag(first) is None, "nobody has said how far it reaches"
        assert len(await consumer.poll(10, 40)) == 40
        assert consumer.current_lag(first) == 60
        await consumer.incremental_assign([second])
        assert consumer.assignment() == [first, second]
        assert (await consumer.position(first), await consumer.position(second)) == (40, 0)
        with pytest.raises(errors.NotAssigned):
            await consumer.incremental_unassign([(topic, 2)])
        await consumer.incremental_unassign([first])
        assert consumer.assignment() == [second]
        assert (await consumer.list_topics())[topic] == [0, 1, 2]
        await consumer.subscribe([topic])
        with pytest.raises(errors.IllegalState, match=r"unsubscribe\(\) first"):
            await consumer.incremental_assign([first])


async def test_a_paused_partition_delivers_nothing(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 100)
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign([(topic, 0)])
        consumer.pause((topic, 0))
        assert await consumer.poll(0.3) == []
        consumer.resume((topic, 0))
        assert len(await consumer.poll(10)) > 0


async def test_columns_hold_what_records_hold(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 1000)
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.subscribe([topic])
        batches: list[Any] = []
        async with asyncio.timeout(30):
            while sum(batch.num_rows for batch in batches) < 1000:
                batches += [batch async for batch in consumer.batches(max_rows=300, timeout=0.5)]
    assert max(batch.num_rows for batch in batches) <= 300
    for batch in batches:
        batch.validate(full=True)
    assert [value for batch in batches for value in batch["value"].to_pylist()] == [b"%d" % i for i in range(1000)]
    assert batches[0].schema.names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip


async def test_a_partition_with_nothing_new_does_not_hold_up_another(bootstrap: str, topic: str) -> None:
    """The broker keeps a request for an empty partition; one that comes to have room must not wait for its end."""
    await fill(bootstrap, topic, 5000)
    options = {"fetch_max_wait_ms": 25_000, "max_partition_fetch_bytes": 1}
    async with Consumer(bootstrap, auto_offset_reset="earliest", **options) as consumer:
        await consumer.assign([(topic, 0), (topic, 1)])
        read = 0
        while read < 5000:
            found = await consumer.poll(10, 500)
            assert found, f"no record in 10 s behind offset {read}"
            read += len(found)
            await asyncio.sleep(0.05)  # so that as much as may be is fetched ahead


async def test_an_offset_that_does_not_exist_is_an_error_without_a_reset_policy(bootstrap: str, topic: str) -> None:
    async with Consumer(bootstrap, auto_offset_reset="none") as consumer:
        await consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 10**9)
        with pytest.raises(errors.OffsetOutOfRangeError, match=f"{topic}-0"):
            await consumer.poll(10)


async def test_without_a_reset_policy_a_seek_may_come_late_but_not_after_polling(bootstrap: str, topic: str) -> None:
    async with Consumer(bootstrap, auto_offset_reset="none") as consumer:
        await consumer.assign([(topic, 0)])
        await asyncio.sleep(0.1)
        consumer.seek((topic, 0), 0)
        assert await consumer.poll(0.1) == []
        await consumer.assign([(topic, 0), (topic, 1)])
        with pytest.raises(errors.OffsetOutOfRangeError, match=f"{topic}-1"):
            await consumer.poll(10)


@pytest.mark.slow
async def test_unknown_topics_and_wrong_arguments_are_told(bootstrap: str, topic: str) -> None:
    async with Consumer(bootstrap) as consumer:
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            await consumer.subscribe([topic + "-not-there"])
        with pytest.raises(TypeError, match="list of topics"):
            await consumer.subscribe(topic)
        with pytest.raises(errors.NotAssigned, match="not assigned"):
            consumer.seek((topic, 0), 1)
        for time_ms in (-1, -7):
            with pytest.raises(ValueError, match="milliseconds since 1970"):
                await consumer.offsets_for_times({(topic, 0): time_ms})


async def test_cancelling_and_closing_leave_no_task(bootstrap: str, topic: str) -> None:
    before = asyncio.all_tasks()
    async with Consumer(bootstrap) as consumer:
        await consumer.subscribe([topic])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await consumer.poll(60)
    await consumer.close()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    with pytest.raises(errors.ClientClosed):
        await consumer.poll()


async def test_a_closed_consumer_keeps_no_memory_and_its_batches_live_on(bootstrap: str, topic: str) -> None:
    value = bytes(range(250)) * 400
    async with Producer(bootstrap) as producer:
        for _ in range(5):
            await producer.send_and_wait(topic, value, partition=0)
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign([(topic, 0)])
        pool = consumer.cluster.pool
        batch = await consumer.next_batch(timeout=10)
        assert pool._buffers
    assert batch is not None
    assert not pool._buffers
    assert batch["value"].to_pylist() == [value] * batch.num_rows


@pytest.mark.slow
async def test_partitions_added_to_a_subscribed_topic_are_read_from_their_beginning(bootstrap: str, topic: str) -> None:
    async with Consumer(bootstrap, metadata_max_age_ms=200) as consumer, Producer(bootstrap) as producer:
        await consumer.subscribe([topic])
        async with Admin(bootstrap) as admin:
            await admin.create_partitions({topic: 4})
        async with asyncio.timeout(20):
            while len(await producer.partitions_for(topic)) < 4:
                await producer.cluster.refresh([topic])
            await producer.send_and_wait(topic, b"new", partition=3)
            assert [(r.partition, r.value) for r in await consumer.poll(15)] == [(3, b"new")]


async def test_all_topics_are_asked_for_until_a_broker_answers(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Consumer(bootstrap, retry_backoff_ms=1) as consumer:
        any_connection = consumer.cluster.any_connection
        left = [ConnectionRefusedError()] * 2

        async def away_at_first(besides: Any = None) -> Any:
            if left:
                raise left.pop()
            return await any_connection(besides)

        monkeypatch.setattr(consumer.cluster, "any_connection", away_at_first)
        await consumer.subscribe(pattern=topic)
        assert {key.topic for key in consumer.assignment()} == {topic}
        left.append(ConnectionRefusedError())
        assert topic in await consumer.list_topics()


async def test_a_topic_deleted_under_a_consumer_ends_nothing(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 10)
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.subscribe([topic])
        assert len(await consumer.poll(10)) > 0
        async with Admin(bootstrap) as admin:
            await admin.delete_topic(topic)
            async with asyncio.timeout(20):
                assert await consumer.poll(0.5) == []
            async with asyncio.timeout(20):
                while topic in await admin.list_topics():  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            await admin.create_topic(topic, 3)
        await fill(bootstrap, topic, 10)
        async with asyncio.timeout(20):
            assert len(await consumer.poll(15)) > 0
