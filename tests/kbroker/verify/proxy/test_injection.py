"""Faults between clients and a real broker, as people's tests inject them."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from kbroker import Admin, ErrorCode, Producer
from kbroker.client.connection import Connection
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.messages.groups import FindCoordinatorRequest
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.topics import DeleteTopicsRequest
from kbroker.verify.proxy.injection import Faults

TIMEOUT = 30.0


@pytest.fixture
def producer(faults: Faults) -> Iterator[Producer]:
    with Producer(faults.bootstrap, client_id="sufferer", request_timeout_ms=20_000) as producer:
        yield producer


def send(producer: Producer, topic: str, value: bytes) -> int:
    return int(producer.send(topic, value).result(TIMEOUT).offset)


async def connect(faults: Faults) -> Connection:
    host, port = faults.proxy.brokers()[1].split(":")
    return await Connection.open(host, int(port), timeout=TIMEOUT)


def stored(broker: BrokerProcess, topic: str) -> list[bytes | None]:
    """All values in the topic, read past the proxy."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "-"})
    try:
        partition = confluent_kafka.TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(partition, timeout=TIMEOUT)
        consumer.assign([partition])
        values: list[bytes | None] = []
        deadline = time.monotonic() + TIMEOUT
        while len(values) < end and time.monotonic() < deadline:
            values += [message.value() for message in consumer.consume(end, timeout=1.0) if not message.error()]
        return values
    finally:
        consumer.close()


def test_clients_reach_every_api_through_the_proxy(faults: Faults, producer: Producer, topic: str) -> None:
    assert send(producer, topic, b"x" * 900_000) == 0
    with Admin(faults.bootstrap) as admin:
        assert topic in admin.list_topics()
    (broker,) = faults.proxy.brokers().values()
    assert broker in faults.bootstrap.split(",")
    assert {link.broker for link in faults.proxy.links() if link.client_id == "sufferer"} == {1}


def test_what_is_cut_arrives_after_the_healing(faults: Faults, producer: Producer, topic: str) -> None:
    send(producer, topic, b"before")
    with faults.cut(client_id="suff*", broker=1, direction="to-broker") as cut:
        during = producer.send(topic, b"during")
        cut.wait()
        with Producer(faults.bootstrap, client_id="another") as other:
            assert send(other, topic, b"another's") == 1
        assert not during.done()
    assert during.result(TIMEOUT).offset == 2


def test_an_answer_that_is_cut_off_is_of_something_done(
    faults: Faults, producer: Producer, topic: str, broker: BrokerProcess
) -> None:
    send(producer, topic, b"0")
    with faults.cut(direction="to-client"):
        late = producer.send(topic, b"1")
        deadline = time.monotonic() + TIMEOUT
        while stored(broker, topic) != [b"0", b"1"]:
            assert time.monotonic() < deadline
        assert not late.done()
    assert late.result(TIMEOUT).offset == 1


def test_a_refused_client_comes_back_when_it_may(faults: Faults, producer: Producer, topic: str) -> None:
    send(producer, topic, b"before")
    with faults.refuse(client_id="sufferer") as refused:
        during = producer.send(topic, b"during")
        refused.wait()
        assert not during.done()
    assert during.result(TIMEOUT).offset == 1


def test_a_slow_broker_takes_its_time_with_each_request(faults: Faults, producer: Producer, topic: str) -> None:
    send(producer, topic, b"before")
    with faults.slow(broker=1, delay_ms=300) as slow:
        begin = time.monotonic()
        send(producer, topic, b"during")
        assert time.monotonic() - begin >= 0.3
    assert slow.happened >= 1
    assert not faults.slow(broker=2, delay_ms=3_600_000).happened
    send(producer, topic, b"after")


def test_healing_ends_a_delay_that_has_begun(faults: Faults, producer: Producer, topic: str) -> None:
    send(producer, topic, b"before")
    slow = faults.slow(delay_ms=3_600_000)
    during = producer.send(topic, b"during")
    slow.wait()
    slow.heal()
    assert during.result(TIMEOUT).offset == 1


def test_a_throttled_link_takes_as_long_as_its_bytes(faults: Faults, producer: Producer, topic: str) -> None:
    send(producer, topic, b"before")
    with faults.throttle(bytes_per_second=100_000, direction="to-broker") as slow:
        begin = time.monotonic()
        send(producer, topic, b"x" * 50_000)
        assert time.monotonic() - begin >= 0.4
    assert slow.happened


def test_a_reset_within_a_frame_costs_nothing_idempotent(
    faults: Faults, producer: Producer, topic: str, broker: BrokerProcess
) -> None:
    send(producer, topic, b"before")
    reset = faults.reset_after(bytes=50_000, client_id="sufferer", direction="to-broker")
    assert send(producer, topic, b"y" * 100_000) == 1
    assert reset.happened == 1
    assert stored(broker, topic) == [b"before", b"y" * 100_000]


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_a_lost_answer_makes_a_duplicate_only_without_idempotence(
    faults: Faults, topic: str, broker: BrokerProcess, is_idempotent: bool
) -> None:
    with Producer(faults.bootstrap, client_id="sufferer", enable_idempotence=is_idempotent) as producer:
        lost = faults.lose_answer("Produce", client_id="sufferer")
        offset = send(producer, topic, b"once")
    assert lost.happened == 1
    assert stored(broker, topic) == ([b"once"] if is_idempotent else [b"once", b"once"])
    assert offset == (0 if is_idempotent else 1)


async def test_an_answer_lost_silently_leaves_the_link_open(faults: Faults, topic: str, broker: BrokerProcess) -> None:
    lost = faults.lose_answer("DeleteTopics", silently=True)
    connection = await connect(faults)
    try:
        deleted = connection.send(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 3)
        await asyncio.wait_for(connection.send(MetadataRequest(topics=[]), 1), TIMEOUT)
        assert not deleted.done()
    finally:
        await connection.close()
    assert lost.happened == 1
    with Admin(broker.bootstrap) as admin:
        assert topic not in admin.list_topics()


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_produce_is_refused_with_and_without_effect(
    faults: Faults, topic: str, broker: BrokerProcess, is_stored: bool
) -> None:
    settings = {"bootstrap.servers": faults.bootstrap, "retry.backoff.ms": 10, "enable.idempotence": False}
    producer = confluent_kafka.Producer(settings)
    refused = faults.next_produce(error="NOT_LEADER_OR_FOLLOWER", stored=is_stored)
    producer.produce(topic, b"value", partition=0)
    assert producer.flush(TIMEOUT) == 0
    assert refused.happened == 1
    assert stored(broker, topic) == [b"value"] * (2 if is_stored else 1)


async def test_an_answer_says_what_the_test_wants(faults: Faults) -> None:
    faults.next_answer("FindCoordinator", error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    connection = await connect(faults)
    try:
        asked = FindCoordinatorRequest(coordinator_keys=["a", "b"])
        first, second = [await connection.request(asked, 4, timeout=TIMEOUT) for _ in range(2)]
    finally:
        await connection.close()
    assert {each.error_code for each in first.coordinators} == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
    assert ErrorCode.GROUP_AUTHORIZATION_FAILED not in {each.error_code for each in second.coordinators}


def test_a_held_produce_arrives_behind_the_one_that_was_sent_again(
    faults: Faults, topic: str, broker: BrokerProcess
) -> None:
    held = faults.hold_produce(client_id="sufferer")
    with Producer(faults.bootstrap, client_id="sufferer", enable_idempotence=False) as producer:
        assert send(producer, topic, b"first") == 0
        assert held.happened == 1
        deadline = time.monotonic() + TIMEOUT
        while stored(broker, topic) != [b"first", b"first"]:
            assert time.monotonic() < deadline


def test_a_held_produce_of_an_idempotent_producer_is_known_when_it_arrives(
    faults: Faults, producer: Producer, topic: str, broker: BrokerProcess
) -> None:
    held = faults.hold_produce(client_id="sufferer")
    assert send(producer, topic, b"first") == 0
    held.heal()  # that is: wait until it has arrived
    assert stored(broker, topic) == [b"first"]
    assert send(producer, topic, b"second") == 1


def test_a_held_produce_of_a_client_that_does_not_return_arrives_at_the_healing(
    faults: Faults, topic: str, broker: BrokerProcess
) -> None:
    held = faults.hold_produce()
    producer = confluent_kafka.Producer({"bootstrap.servers": faults.bootstrap, "message.send.max.retries": 0})
    errors: list[Any] = []
    producer.produce(topic, b"late", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(TIMEOUT)
    assert errors[0] is not None
    assert stored(broker, topic) == []
    held.heal()
    assert stored(broker, topic) == [b"late"]


def test_nothing_runs_before_something_is_asked_for(broker: BrokerProcess) -> None:
    faults = Faults(broker.bootstrap)
    faults.heal()
    faults.stop()
    assert proxy_threads() == 0
    with faults:
        assert faults.bootstrap != broker.bootstrap
        assert proxy_threads() == 1
    assert proxy_threads() == 0


def proxy_threads() -> int:
    return sum(thread.name == "proxy" for thread in threading.enumerate())


def test_what_is_no_fault_is_named(broker: BrokerProcess) -> None:
    faults = Faults(broker.bootstrap)
    with pytest.raises(ValueError, match="'Prodduce' is no API of Kafka's; Produce, Fetch"):
        faults.lose_answer("Prodduce")
    with pytest.raises(ValueError, match="'NOT_LEADER' is no error"):
        faults.next_produce(error="NOT_LEADER")
    with pytest.raises(ValueError, match="above 0"):
        faults.throttle(bytes_per_second=0)
    with pytest.raises(ValueError, match="above 0"):
        faults.reset_after(bytes=0)
    with faults, pytest.raises(TimeoutError, match="nothing that was asked"):
        faults.lose_answer("Produce").wait(0.01)
