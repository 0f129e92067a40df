import asyncio
import copy
import os
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from kbroker.client import blocking, errors
from kbroker.client import sender as sender_module
from kbroker.client.admin import Admin
from kbroker.client.client_config import ProducerConfig
from kbroker.client.connection import Connection
from kbroker.client.consumer import Consumer
from kbroker.client.delivery import Delivery
from kbroker.client.producer import Producer
from kbroker.client.sender import Sender
from kbroker.client.types import RecordMetadata, TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.schema import Message
from tests.fixtures.brokers import MakeCluster, kill_and_expire
from tests.kbroker.client.played_network import TOPIC, Fate, PlayedNetwork, topic_with_leaders

LIMIT_S = 60.0


@asynccontextmanager
async def playing(network: PlayedNetwork, **arguments: Any) -> AsyncIterator[Sender]:
    """A sender on a played network."""
    usual = {"bootstrap": "played:1", "linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5}
    network.sender = sender = Sender(ProducerConfig.read(usual | arguments), cast(Any, network))
    sender.learn(TOPIC)
    async with asyncio.timeout(LIMIT_S):
        try:
            yield sender
        finally:
            await sender.close(0.1)


def send(sender: Sender, value: bytes, partition: int | None = 0) -> Delivery:
    delivery = sender.accumulator.append(TOPIC, value, None, partition, 1, ())
    assert delivery is not None
    return delivery


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
                kill_and_expire(own_broker)
                own_broker.start()
            if i % 100 == 0:
                await asyncio.sleep(0.001)
        own_broker.wait_until_ready(30)
        await producer.flush(60)
        assert producer.statistics()["record-retry-total"] > 0
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


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_who_wants_no_answers_hears_all_the_same_that_another_broker_leads(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    key = TopicPartition("t", 0)
    async with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap, acks=0, linger_ms=0) as producer:
        await admin.create_topic("t", assignments={0: [1, 2]})
        await producer.send_and_wait("t", b"before")
        deadline = time.monotonic() + LIMIT_S
        await admin.alter_reassignments({key: [2, 1]})
        while (await admin.describe_topics(["t"]))["t"].partitions[0].leader != 2:
            assert time.monotonic() < deadline
            if not await admin.list_reassignments([key]):
                await admin.elect_leaders([key])
            await asyncio.sleep(0.05)
        before = (await admin.list_offsets([key]))[key].offset
        while (await admin.list_offsets([key]))[key].offset == before:
            assert time.monotonic() < deadline, "all that was sent after the move is lost"
            await producer.send_and_wait("t", b"after")
            await asyncio.sleep(0.02)


@pytest.mark.slow
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
        async with asyncio.timeout(20):
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
            patched.setattr(producer.sender._identity, "_ask", refuse)
            deliveries = []
            begun = time.monotonic()
            for _ in range(50):
                deliveries.append(await producer.send(topic_name, b"value"))
                await asyncio.sleep(0.002)
            took_s = time.monotonic() - begun
        for delivery in deliveries:
            await delivery
    assert 1 <= asked <= 2 + took_s / 0.08, "each pause is a tenth of a second, or a fifth of that less"


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


async def test_a_topic_that_nobody_has_written_to_for_long_is_forgotten_and_may_be_written_to_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sender_module, "IDLE_S", 0.0)
    network = PlayedNetwork([])
    async with playing(network, retry_backoff_ms=0) as sender:
        await send(sender, b"0")
        network.answers_may_go.clear()
        waiting = send(sender, b"1", 1)
        await sender._refresh()
        assert set(sender.accumulator.topics) == {TOPIC}, "a record is on its way"
        network.answers_may_go.set()
        await waiting
        await asyncio.sleep(0.01)
        await sender._refresh()
        assert sender.accumulator.topics == {}
        sender.learn(TOPIC)
        assert (await send(sender, b"2")).offset == 1
        assert (await send(sender, b"3", 1)).offset == 1
    assert network.logs == {0: [b"0", b"2"], 1: [b"1", b"3"]}, "no batch was taken for one sent before"


async def test_records_expire_in_time_though_no_producer_id_can_be_had() -> None:
    network = PlayedNetwork([])
    network.id_errors.extend([OSError("nobody gives out producer ids")] * 100_000)
    async with playing(network, delivery_timeout_ms=200) as sender:
        with pytest.raises(errors.DeliveryTimeout, match=r"t-0: .*delivery_timeout_ms=200 .*nobody gives out"):
            await send(sender, b"x")
    assert network.producer_ids > 1


async def test_a_refused_producer_id_fails_what_waits_at_once_and_the_next_record_asks_again() -> None:
    network = PlayedNetwork([])
    network.id_errors.append(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    async with playing(network) as sender:
        with pytest.raises(errors.ClusterAuthorizationFailedError, match="enable_idempotence"):
            await send(sender, b"x")
        assert network.producer_ids == 1
        assert (await send(sender, b"y")).offset == 0


async def test_a_record_in_flight_fails_when_its_time_is_over_and_the_next_one_stays_behind_it() -> None:
    network = PlayedNetwork([])
    async with playing(network, delivery_timeout_ms=300) as sender:
        await send(sender, b"0")
        network.answers_may_go.clear()
        late = send(sender, b"1")
        with pytest.raises(errors.DeliveryTimeout):
            await late
        assert sender.requests_in_flight == 1, "its request was not answered"
        behind = send(sender, b"2")
        await asyncio.sleep(0.01)
        assert len(network.logs[0]) == 2, "it is not known yet what became of the one before"
        network.answers_may_go.set()
        assert (await behind).offset == 2
    assert network.logs[0] == [b"0", b"1", b"2"]


async def test_a_broker_that_lost_what_it_acknowledged_gets_what_follows_in_a_new_epoch() -> None:
    network = PlayedNetwork([])
    async with playing(network) as sender:
        await send(sender, b"0")
        state = network.states[0]
        before = copy.deepcopy(state, {id(state.transactions._lock): threading.Lock()})
        await send(sender, b"1")
        network.states[0] = before
        network.logs[0].pop()
        following = [send(sender, b"%d" % number) for number in range(2, 9)]
        assert [(await delivery).offset for delivery in following] == list(range(1, 8))
        assert sender.statistics.failed_records == 0
    assert network.logs[0] == [b"0", *(b"%d" % number for number in range(2, 9))]


class Unbuildable:
    """What a batch is made by that fails when it is to be made."""

    size = 100

    def build(self, *arguments: object) -> bytearray:
        raise MemoryError("no room")


async def test_a_batch_that_cannot_be_made_fails_alone() -> None:
    network = PlayedNetwork([])
    async with playing(network, linger_ms=20) as sender:
        bad, good = send(sender, b"bad"), send(sender, b"good", 1)
        bad._batch.builder = cast(Any, Unbuildable())
        with pytest.raises(errors.BatchNotBuilt, match=r"t-0 .*was not sent: MemoryError"):
            await bad
        assert (await good).offset == 0
        assert (await send(sender, b"after")).offset == 0
    assert network.logs[0] == [b"after"]


async def test_records_without_a_key_go_to_partitions_that_have_a_leader() -> None:
    network = PlayedNetwork([])
    network.topics = {TOPIC: topic_with_leaders([-1, 1])}
    async with playing(network, batch_size=200) as sender:
        sent = [send(sender, b"x" * 80, None) for _ in range(50)]
        assert {(await delivery).partition for delivery in sent} == {1}
        network.topics = {TOPIC: topic_with_leaders([1, -1])}
        await network.refresh(None)
        assert (await send(sender, b"x", None)).partition == 0


async def test_a_partition_that_nobody_tells_of_keeps_no_other_from_being_written() -> None:
    """As the controller cannot read its state: the next ones have their numbers all the same."""
    network = PlayedNetwork([])
    topic = topic_with_leaders([1, 1])
    del topic.partitions[0]
    network.topics = {TOPIC: topic}
    async with playing(network) as sender:
        assert (await send(sender, b"x", 1)).partition == 1
        assert (await send(sender, b"x", None)).partition == 1


async def test_records_without_a_key_fill_one_batch_at_a_time() -> None:
    async with playing(PlayedNetwork([]), batch_size=1_000, linger_ms=1_000) as sender:
        for _ in range(60):
            send(sender, b"x" * 90, None)
            queues = sender.accumulator.topics[TOPIC].queues
            assert sum(queue.open is not None for queue in queues) == 1


async def test_after_the_sender_failed_records_are_refused_and_told_why() -> None:
    network = PlayedNetwork([])
    async with playing(network) as sender:
        network.leader = cast(Any, lambda topic, partition: 1 // 0)  # type: ignore[method-assign]
        with pytest.raises(ZeroDivisionError):
            await send(sender, b"x")
        with pytest.raises(errors.ClientClosed, match=r"the producer has failed .*ZeroDivision.*make another"):
            send(sender, b"y")


async def test_flushing_twice_at_a_time_waits_for_the_same_records() -> None:
    network = PlayedNetwork([Fate.ANSWERED_LATER])
    async with playing(network, linger_ms=10_000) as sender:
        delivery = send(sender, b"x")
        await asyncio.gather(sender.flush(), sender.flush())
        assert delivery.done()


async def test_where_no_thread_can_be_started_batches_are_compressed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    network = PlayedNetwork([])
    async with playing(network, compression="zstd", batch_size=100_000) as sender:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        values = [os.urandom(40_000) for _ in range(4)]
        sent = [send(sender, value) for value in values]
        assert [(await delivery).offset for delivery in sent] == [0, 1, 2, 3]
    assert network.logs[0] == values
