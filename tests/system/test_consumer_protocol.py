"""Groups of the newer protocol (KIP-848) with librdkafka's members: sharing, patterns, kills of the broker."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbroker.controller.znodes import BrokerRegistration, Endpoint
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.dev.broker_process import BrokerProcess
from tests.fixtures.brokers import kill_and_expire
from tests.fixtures.zookeeper import ZooKeeperAddress
from tests.system.librdkafka import TIMEOUT, MakeMember, create_topic, members, poll_until, produce

pytestmark = pytest.mark.slow
confluent_kafka = pytest.importorskip("confluent_kafka")
admin_module = pytest.importorskip("confluent_kafka.admin")

PARTITIONS = 6
BROKER = {"group.consumer.heartbeat.interval.ms": "500"}


@pytest.fixture
def served(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """A broker whose members are quick to notice things."""
    return make_broker(properties=BROKER)


@pytest.fixture
def topic(served: BrokerProcess, topic_name: str) -> str:
    create_topic(served.bootstrap, topic_name, PARTITIONS)
    produce(served.bootstrap, topic_name, PARTITIONS, 100)
    return topic_name


@pytest.fixture
def member(served: BrokerProcess, topic: str) -> Iterator[MakeMember]:
    with members(served.bootstrap, topic, **{"group.protocol": "consumer"}) as make:
        yield make


def shares(*members: Any) -> list[int]:
    return [len(each.assignment()) for each in members]


def test_members_share_commit_and_take_over(served: BrokerProcess, topic: str, member: MakeMember) -> None:
    first = member()
    assert len(poll_until(lambda: shares(first) == [PARTITIONS], first)) <= 600
    committed = [confluent_kafka.TopicPartition(topic, partition, 100) for partition in range(PARTITIONS)]
    first.commit(offsets=committed, asynchronous=False)
    second = member()
    poll_until(lambda: shares(first, second) == [3, 3], first, second)
    admin = admin_module.AdminClient({"bootstrap.servers": served.bootstrap})
    described = admin.describe_consumer_groups([topic])[topic].result(TIMEOUT)
    assert (described.state.name, described.type.name, described.partition_assignor) == (
        "STABLE",
        "CONSUMER",
        "uniform",
    )
    assert [len(each.assignment.topic_partitions) for each in described.members] == [3, 3]
    listed = admin.list_consumer_groups().result(TIMEOUT).valid
    assert [(group.group_id, group.type.name) for group in listed] == [(topic, "CONSUMER")]
    first.close()
    poll_until(lambda: shares(second) == [PARTITIONS], second)
    assert [each.offset for each in second.committed(committed, TIMEOUT)] == [100] * PARTITIONS
    second.close()
    admin.delete_consumer_groups([topic])[topic].result(TIMEOUT)
    assert not admin.list_consumer_groups().result(TIMEOUT).valid


def test_a_group_goes_on_after_its_coordinator_was_killed(
    served: BrokerProcess, topic: str, member: MakeMember
) -> None:
    first, second = member(), member()
    poll_until(lambda: shares(first, second) == [3, 3], first, second)
    before = [first.memberid(), second.memberid()]
    kill_and_expire(served)
    served.start().wait_until_ready(TIMEOUT)
    first.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 7)], asynchronous=False)
    poll_until(lambda: shares(first, second) == [3, 3], first, second)
    assert [first.memberid(), second.memberid()] == before
    third = member()
    poll_until(lambda: shares(first, second, third) == [2, 2, 2], first, second, third)


def test_topics_that_appear_are_found_by_pattern(served: BrokerProcess, topic: str, member: MakeMember) -> None:
    consumer = member()
    consumer.subscribe([f"^{topic}.*"])
    poll_until(lambda: shares(consumer) == [PARTITIONS], consumer)
    create_topic(served.bootstrap, f"{topic}-later", 2)
    poll_until(lambda: shares(consumer) == [PARTITIONS + 2], consumer)


def test_a_classic_group_without_members_becomes_one_of_the_newer_protocol_and_back(
    topic: str, member: MakeMember
) -> None:
    partition = confluent_kafka.TopicPartition(topic, 1, 42)
    for protocol in ("classic", "consumer", "classic"):
        consumer = member(**{"group.protocol": protocol})
        poll_until(lambda consumer=consumer: shares(consumer) == [PARTITIONS], consumer)  # type: ignore[misc]
        if protocol == "classic":
            consumer.commit(offsets=[partition], asynchronous=False)
        assert [each.offset for each in consumer.committed([partition], TIMEOUT)] == [42]
        consumer.close()


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_members_are_moved_from_protocol_to_protocol_while_the_group_runs(member: MakeMember, assignor: str) -> None:
    classic = {
        "group.protocol": "classic",
        "partition.assignment.strategy": assignor,
        "heartbeat.interval.ms": 200,
        "session.timeout.ms": 30_000,
    }
    old, other = member(**classic), member(**classic)
    poll_until(lambda: shares(old, other) == [3, 3], old, other)
    new = member()
    poll_until(lambda: shares(old, other, new) == [2, 2, 2], old, other, new)
    old.close()
    poll_until(lambda: shares(other, new) == [3, 3], other, new)
    back = member(**classic)
    poll_until(lambda: shares(other, back, new) == [2, 2, 2], other, back, new)
    new.close()
    poll_until(lambda: shares(other, back) == [3, 3], other, back)


async def test_beside_a_broker_of_kafkas_the_newer_protocol_is_refused(
    served: BrokerProcess, topic: str, zookeeper: ZooKeeperAddress
) -> None:
    async def until_told(wanted: str | None) -> None:
        """Let members join until one is told this; None: until one may."""
        settings = {"bootstrap.servers": served.bootstrap, "group.id": topic, "group.protocol": "consumer"}
        deadline = time.monotonic() + TIMEOUT
        told: str | None = "nothing"
        while told != wanted and (wanted is None or wanted not in (told or "")):
            assert time.monotonic() < deadline, told
            consumer = confluent_kafka.Consumer(settings)
            consumer.subscribe([topic])
            message = None
            while message is None and not consumer.assignment() and time.monotonic() < deadline:
                message = await asyncio.to_thread(consumer.poll, 0.1)
            told = message.error().str() if message is not None and message.error() else None
            await asyncio.to_thread(consumer.close)

    await until_told(None)
    session = ZooKeeper(zookeeper.connect_string, 6000)
    await session.connect()
    await session.register_broker(BrokerRegistration(7, (Endpoint("PLAINTEXT", "127.0.0.1", 1),)))
    await until_told("ConsumerGroupHeartbeat fatal error: Broker: API version not supported")
    await session.close()
    await until_told(None)
