import asyncio
import contextlib
import random

import pytest

from kbroker.client import errors
from kbroker.client.admin import Admin
from kbroker.client.consumer import Consumer
from kbroker.client.producer import Producer
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.records.partitioner import partition_for_key
from kbroker.protocol.records.record import Record


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_what_is_sent_can_be_read(bootstrap: str, topic: str, compression: str) -> None:
    async with Producer(bootstrap, compression=compression) as producer:
        sent = [
            await producer.send(
                topic, b"v%d" % i, b"k%d" % i, headers=[("h", b"x"), ("n", None)], timestamp_ms=1000 + i
            )
            for i in range(1000)
        ]
        placed = [await delivery for delivery in sent]
    for i, metadata in enumerate(placed):
        assert metadata.partition == partition_for_key(b"k%d" % i, 3)
        assert metadata.timestamp == 1000 + i
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.subscribe([topic])
        records: list[Record] = []
        while len(records) < 1000:
            some = await consumer.poll(10)
            assert some
            records += some
    found = {(record.partition, record.offset): record for record in records}
    for i, metadata in enumerate(placed):
        record = found[metadata.partition, metadata.offset]
        assert (record.key, record.value) == (b"k%d" % i, b"v%d" % i)
        assert record.headers == (("h", b"x"), ("n", None))


@pytest.mark.parametrize("acks", ["all", 1, 0])
async def test_every_kind_of_acknowledgement_works(bootstrap: str, topic: str, acks: str | int) -> None:
    async with Producer(bootstrap, acks=acks) as producer:
        metadata = await producer.send_and_wait(topic, b"x", partition=1)
        assert metadata.offset == (-1 if acks == 0 else 0)


async def test_large_batches_with_a_slow_codec_keep_their_order(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap, compression="gzip") as producer:
        sent = [await producer.send(topic, b"%d" % i * 20, partition=0) for i in range(20_000)]
        assert [(await delivery).offset for delivery in sent] == list(range(20_000))


async def test_wrong_arguments_are_told_at_the_call(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap, max_request_size=2000) as producer:
        with pytest.raises(TypeError):
            await producer.send(topic, "text")
        with pytest.raises(TypeError):
            await producer.send(7, b"x")  # type: ignore[arg-type]
        with pytest.raises(errors.UnknownTopicOrPartitionError, match="has 3 partitions"):
            await producer.send(topic, b"x", partition=3)
        with pytest.raises(errors.MessageTooLargeError, match="max_request_size"):
            await producer.send(topic, b"x" * 3000)
        assert (await producer.send_and_wait(topic, b"x")).offset == 0


async def test_a_record_that_the_broker_refuses_does_not_stop_the_others(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap, max_request_size=5_000_000) as producer:
        before = await producer.send(topic, b"a", partition=0)
        await before
        bad = await producer.send(topic, b"x" * 4_000_000, partition=0)
        with pytest.raises(errors.MessageTooLargeError):
            await bad
        after = await producer.send(topic, b"b", partition=0)
        assert ((await before).offset, (await after).offset) == (0, 1)


async def test_a_full_buffer_holds_the_sender_back(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap, buffer_memory=100_000, batch_size=10_000) as producer:
        for _ in range(3000):
            await producer.send(topic, b"x" * 500)
            assert producer.statistics()["buffer-available-bytes"] > -2_000
        await producer.flush(30)
        assert producer.statistics()["record-acknowledged-total"] == 3000
        assert producer.statistics()["buffer-available-bytes"] == 100_000


async def test_a_topic_that_cannot_be_is_an_error_at_once(bootstrap: str) -> None:
    async with Producer(bootstrap, max_block_ms=30_000) as producer:
        with pytest.raises(errors.InvalidTopicError):
            await producer.send("no/such topic", b"x")


async def test_without_a_broker_the_buffer_fills_and_deliveries_time_out(bootstrap: str, topic: str) -> None:
    producer = Producer("127.0.0.1:1", max_block_ms=200)
    with pytest.raises((ConnectionError, TimeoutError)):
        await producer.send(topic, b"x")
    await producer.close(0.1)
    await producer.close()
    with pytest.raises(errors.ClientClosed):
        await producer.send(topic, b"x")


async def test_closing_leaves_no_task(bootstrap: str, topic: str) -> None:
    before = asyncio.all_tasks()
    async with Producer(bootstrap) as producer:
        await producer.send(topic, b"x")
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def until_refused(bootstrap: str, topic: str, size: int) -> None:
    """A broker hears of a topic's new configuration a little later."""
    async with Producer(bootstrap) as producer, asyncio.timeout(30):
        with contextlib.suppress(errors.MessageTooLargeError):
            while True:
                await (await producer.send(topic, bytes(size), partition=1))


@pytest.mark.parametrize("compression", ["none", "zstd"])
async def test_batches_that_are_too_large_for_the_topic_are_split(bootstrap: str, topic: str, compression: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.alter_configs("topic", topic, {"max.message.bytes": "5000"})
    await until_refused(bootstrap, topic, 6_000)
    rng = random.Random(7)
    values = [rng.randbytes(300) for _ in range(400)]
    async with Producer(bootstrap, batch_size=50_000, compression=compression) as producer:
        sent = [await producer.send(topic, value, partition=0) for value in values]
        sent.append(await producer.send(topic, rng.randbytes(20_000), partition=0))
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        assert isinstance(outcomes.pop(), errors.MessageTooLargeError), "what cannot be split is refused"
        assert [one.offset for one in outcomes if not isinstance(one, BaseException)] == list(range(400))
        statistics = producer.statistics()
        assert statistics["record-acknowledged-total"] == 400
        assert statistics["buffer-available-bytes"] == statistics["buffer-total-bytes"]
        assert statistics["batch-split-total"] > 0
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign([(topic, 0)])
        found: list[bytes | None] = []
        while len(found) < 400:
            found += [record.value for record in await consumer.poll(10)]
    assert found == values


async def test_a_callback_that_raises_disturbs_nobody(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard = []

    def broken(metadata: object, error: object) -> None:
        heard.append(metadata)
        raise ZeroDivisionError("mine")

    async with Producer(bootstrap) as producer:
        sent = [await producer.send(topic, b"x", partition=0, on_delivery=broken) for _ in range(3)]
        assert [(await delivery).offset for delivery in sent] == [0, 1, 2]
    assert len(heard) == 3
    assert "a delivery callback raised" in caplog.text


async def test_a_partitioner_of_ones_own_decides(bootstrap: str, topic: str) -> None:
    def by_length(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        return len(value or b"") % partitions

    async with Producer(bootstrap, partitioner=by_length) as producer:
        placed = [(await producer.send_and_wait(topic, b"x" * size, key=b"key")).partition for size in range(6)]
    assert placed == [0, 1, 2, 0, 1, 2]


async def test_closing_with_a_deadline_gives_up_what_cannot_be_sent(own_broker: BrokerProcess) -> None:
    producer = Producer(own_broker.bootstrap, request_timeout_ms=60_000)
    await producer.send_and_wait("t", b"x")
    await asyncio.to_thread(own_broker.pause)
    late = await producer.send("t", b"y")
    async with asyncio.timeout(20):
        await producer.close(0.3)
    with pytest.raises(errors.ClientClosed):
        await late
    await asyncio.to_thread(own_broker.resume)
