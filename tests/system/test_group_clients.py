"""Groups of kafka-python and aiokafka, of all clients together, and over a restart of their coordinator."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.fixtures.brokers import kill_and_expire
from tests.system.kafka_python_members import until_it_knows

pytestmark = pytest.mark.slow
aiokafka = pytest.importorskip("aiokafka")
kafka = pytest.importorskip("kafka")
kafka_admin = pytest.importorskip("kafka.admin")
confluent_kafka = pytest.importorskip("confluent_kafka")

TIMEOUT = 60.0
PARTITIONS = 4


def create_topic(broker: BrokerProcess, name: str) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([kafka_admin.NewTopic(name, num_partitions=PARTITIONS, replication_factor=1)])
    admin.close()


def python_member(broker: BrokerProcess, topic: str) -> Any:
    """One that has subscribed to the topic and knows it."""
    member = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        group_id=topic,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        session_timeout_ms=30_000,
        metadata_max_age_ms=1000,  # whoever leads shares out what it has heard of
        partition_assignment_strategy=[kafka.coordinator.assignors.range.RangePartitionAssignor],
    )
    member.subscribe([topic])
    until_it_knows(member, topic, PARTITIONS)
    return member


def wait_for(condition: Callable[[], bool], *consumers: Any) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        for consumer in consumers:
            consumer.poll(timeout_ms=100)


def test_two_members_of_kafka_python_share_commit_and_take_over(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker, topic_name)
    with contextlib.closing(python_member(broker, topic_name)) as first:
        share_commit_and_take_over(broker, topic_name, first)


def share_commit_and_take_over(broker: BrokerProcess, topic_name: str, first: Any) -> None:
    wait_for(lambda: len(first.assignment()) == PARTITIONS, first)
    second = python_member(broker, topic_name)
    try:
        # Polling a member blocks while the group rebalances: each has its own thread, as in real life.
        done = threading.Event()

        def run() -> None:
            while not done.is_set():
                second.poll(timeout_ms=100)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            wait_for(lambda: len(first.assignment()) == 2 and len(second.assignment()) == 2, first)
            assert {each.partition for each in first.assignment() | second.assignment()} == set(range(PARTITIONS))
            partition = commit_once_stable(first)
        finally:
            done.set()
            thread.join(TIMEOUT)
        assert first.committed(partition) == 17
    finally:
        second.close()
    wait_for(lambda: len(first.assignment()) == PARTITIONS, first)
    assert first.committed(partition) == 17


def commit_once_stable(member: Any) -> Any:
    """Commit offset 17 of a partition that it holds: after another rebalance, where it joins once more just then."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        for partition in member.assignment():
            try:
                member.commit({partition: kafka.structs.OffsetAndMetadata(17, "note", -1)})
            except (kafka.errors.RebalanceInProgressError, kafka.errors.CommitFailedError):
                assert time.monotonic() < deadline
                break
            return partition
        member.poll(timeout_ms=100)


async def test_two_members_of_aiokafka_share_and_commit(broker: BrokerProcess, topic_name: str) -> None:
    await asyncio.to_thread(create_topic, broker, topic_name)

    def member() -> Any:
        return aiokafka.AIOKafkaConsumer(
            topic_name,
            bootstrap_servers=broker.bootstrap,
            group_id=topic_name,
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            session_timeout_ms=30_000,
        )

    async with member() as first:
        async with asyncio.timeout(TIMEOUT), member() as second:
            for _ in range(300):
                if len(first.assignment()) == len(second.assignment()) == 2:
                    break
                await asyncio.gather(first.getmany(timeout_ms=50), second.getmany(timeout_ms=50))
            assert len(first.assignment() | second.assignment()) == PARTITIONS
            partition = next(iter(first.assignment()))
            await first.commit({partition: aiokafka.structs.OffsetAndMetadata(17, "note")})
        for _ in range(300):
            if len(first.assignment()) == PARTITIONS:
                break
            await first.getmany(timeout_ms=50)
        assert len(first.assignment()) == PARTITIONS
        assert await first.committed(partition) == 17


def test_members_of_different_libraries_share_a_group(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker, topic_name)
    python = python_member(broker, topic_name)
    rdkafka = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic_name,
            "partition.assignment.strategy": "range",
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 30_000,
        }
    )
    rdkafka.subscribe([topic_name])
    try:

        def shared() -> bool:
            rdkafka.poll(0.1)
            return len(rdkafka.assignment()) == 2 and len(python.assignment()) == 2

        wait_for(shared, python)
        numbers = {each.partition for each in rdkafka.assignment()} | {each.partition for each in python.assignment()}
        assert numbers == set(range(PARTITIONS))
    finally:
        rdkafka.close()
        python.close()


def test_offsets_and_generation_outlive_their_coordinator(own_broker: BrokerProcess, topic_name: str) -> None:
    create_topic(own_broker, topic_name)
    rebalances: list[str] = []
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": own_broker.bootstrap,
            "group.id": topic_name,
            "group.instance.id": "one",
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 30_000,
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
        }
    )
    consumer.subscribe(
        [topic_name],
        on_assign=lambda *_: rebalances.append("assigned"),
        on_revoke=lambda *_: rebalances.append("revoked"),
        on_lost=lambda *_: rebalances.append("lost"),
    )
    try:
        deadline = time.monotonic() + TIMEOUT
        while len(consumer.assignment()) < PARTITIONS:
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        offsets = [confluent_kafka.TopicPartition(topic_name, 0, 17)]
        consumer.commit(offsets=offsets, asynchronous=False)
        kill_and_expire(own_broker)
        own_broker.start()
        own_broker.wait_until_ready(TIMEOUT)
        for _ in range(20):
            consumer.poll(0.1)
        offsets[0].offset = 18
        (committed,) = consumer.commit(offsets=offsets, asynchronous=False)
        assert committed.error is None
        assert consumer.committed([confluent_kafka.TopicPartition(topic_name, 0)], TIMEOUT)[0].offset == 18
        assert rebalances == ["assigned"]
    finally:
        consumer.close()
