import asyncio
import sys
from typing import Any

import pytest

from kbroker.client import blocking
from kbroker.client.admin import Admin
from kbroker.client.connection import Connection
from kbroker.client.consumer import Consumer
from kbroker.client.producer import Producer
from kbroker.client.types import RecordMetadata
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.schema import Message


@pytest.mark.slow
async def test_a_broker_killed_and_back_in_the_middle_costs_neither_order_nor_a_record(
    own_broker: BrokerProcess,
) -> None:
    bootstrap = own_broker.bootstrap
    async with Admin(bootstrap) as admin:
        await admin.create_topic("t", 2, 1)
    async with Producer(bootstrap, batch_size=2000, linger_ms=1) as producer:
        deliveries = []
        for i in range(20_000):
            deliveries.append(await producer.send("t", b"%d" % i, partition=i % 2))
            if i == 8_000:
                own_broker.kill()
                own_broker.start()
            if i % 100 == 0:
                await asyncio.sleep(0.001)
        own_broker.wait_until_ready(30)
        await producer.flush(60)
        assert producer.statistics()["retries"] > 0
        for delivery in deliveries:
            await delivery
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.subscribe(["t"])
        found: dict[int, list[int]] = {0: [], 1: []}
        while sum(map(len, found.values())) < 20_000:
            records = await consumer.poll(10)
            assert records, "records are missing"
            for record in records:
                found[record.partition].append(int(record.value or b""))
    assert found == {0: list(range(0, 20_000, 2)), 1: list(range(1, 20_000, 2))}


def test_batches_opened_by_one_thread_while_the_sender_takes_others_are_all_sent(
    broker: BrokerProcess, topic_name: str
) -> None:
    before = sys.getswitchinterval()
    with blocking.Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name, partitions=200)
    sys.setswitchinterval(1e-6)
    try:
        with blocking.Producer(broker.bootstrap, linger_ms=1) as producer:
            deliveries = [producer.send(topic_name, b"value", key=b"%d" % number) for number in range(30_000)]
            producer.flush(60)
    finally:
        sys.setswitchinterval(before)
    assert all(delivery.exception(0) is None for delivery in deliveries)


async def test_a_failing_sender_fails_the_records_instead_of_keeping_them_waiting(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Producer(broker.bootstrap) as producer:
        await producer.send_and_wait(topic_name, b"first")
        monkeypatch.setattr(producer.sender, "_send_ready", lambda: 1 // 0)
        delivery = await producer.send(topic_name, b"second")
        async with asyncio.timeout(10):
            with pytest.raises(ZeroDivisionError):
                await delivery


async def test_a_producer_without_an_id_asks_for_one_now_and_then_and_not_with_every_record(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def refuse() -> None:
        nonlocal asked
        asked += 1
        raise ConnectionError("nobody gives out producer ids")

    async with Producer(broker.bootstrap, retry_backoff_ms=100, linger_ms=0) as producer:
        with monkeypatch.context() as patched:
            patched.setattr(producer.sender, "_init_producer_id", refuse)
            deliveries = []
            for _ in range(50):
                deliveries.append(await producer.send(topic_name, b"value"))
                await asyncio.sleep(0.002)
        for delivery in deliveries:
            await delivery
    assert 1 <= asked < 40


async def test_callbacks_come_in_the_order_of_the_records_when_an_answer_is_lost(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    answered: list[int] = []
    lost: list[asyncio.Future[Any]] = []
    heard: list[tuple[int, int]] = []
    went = asyncio.Event()
    send = Connection.send

    def lose_the_first_answer(connection: Connection, message: Message, version: int) -> asyncio.Future[Any]:
        future = send(connection, message, version)
        if not isinstance(message, ProduceRequest):
            return future
        went.set()
        if not lost:
            lost.append(loop.create_future())
            return lost[0]
        if not lost[0].done():
            future.add_done_callback(lambda _: answered.append(len(heard)))
            future.add_done_callback(lambda _: lost[0].set_exception(ConnectionError("the answer is lost")))
        return future

    def note(metadata: RecordMetadata | None, error: Exception | None) -> None:
        assert metadata is not None, error
        heard.append((metadata.partition, metadata.offset))

    async with Producer(broker.bootstrap, linger_ms=0) as producer:
        await producer.send_and_wait(topic_name, b"0", partition=0)
        monkeypatch.setattr(Connection, "send", lose_the_first_answer)
        for number in (1, 2):
            await producer.send(topic_name, b"%d" % number, partition=0, on_delivery=note)
            await went.wait()
            went.clear()
        async with asyncio.timeout(30):
            await producer.flush()
    assert answered == [0], "the second batch was answered while the first one's answer was awaited"
    assert heard == [(0, 1), (0, 2)]
