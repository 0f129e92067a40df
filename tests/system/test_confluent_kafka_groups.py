"""librdkafka's Python client as a member of groups: sharing, static members, commits, administration."""

from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.system.librdkafka import TIMEOUT, MakeMember, create_topic, members, poll_until, produce

pytestmark = pytest.mark.slow
confluent_kafka = pytest.importorskip("confluent_kafka")
admin_module = pytest.importorskip("confluent_kafka.admin")

PARTITIONS = 4
ASSIGNORS = ("range", "roundrobin", "cooperative-sticky")


@pytest.fixture
def admin(broker: BrokerProcess) -> Any:
    return admin_module.AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def topic(broker: BrokerProcess, admin: Any, topic_name: str) -> Iterator[str]:
    create_topic(broker.bootstrap, topic_name, PARTITIONS)
    yield topic_name
    admin.delete_topics([topic_name])[topic_name].result(TIMEOUT)


@pytest.fixture
def member(broker: BrokerProcess, topic: str) -> Iterator[MakeMember]:
    timing = {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 200}
    with members(broker.bootstrap, topic, **timing) as make:
        yield make


def partitions_of(consumer: Any) -> set[int]:
    return {assigned.partition for assigned in consumer.assignment()}


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_two_members_share_a_topic_and_one_takes_over(
    member: MakeMember, broker: BrokerProcess, topic: str, assignor: str
) -> None:
    produce(broker.bootstrap, topic, PARTITIONS, 10)
    settings = {"partition.assignment.strategy": assignor}
    first = member(**settings)
    read = poll_until(lambda: len(partitions_of(first)) == PARTITIONS, first)
    second = member(**settings)
    read += poll_until(lambda: len(partitions_of(first)) == len(partitions_of(second)) == 2, first, second)
    assert partitions_of(first) | partitions_of(second) == set(range(PARTITIONS))
    second.close()
    read += poll_until(lambda: len(partitions_of(first)) == PARTITIONS, first)
    seen = {(message.partition(), message.value()) for message in read}

    def all_read() -> bool:
        seen.update((message.partition(), message.value()) for message in first.consume(100, timeout=0.1))
        return len(seen) == 10 * PARTITIONS

    poll_until(all_read)


def test_a_committed_offset_is_where_the_next_member_begins(
    member: MakeMember, broker: BrokerProcess, topic: str
) -> None:
    produce(broker.bootstrap, topic, PARTITIONS, 10)
    first = member()
    poll_until(lambda: len(partitions_of(first)) == PARTITIONS, first)
    offsets = [
        confluent_kafka.TopicPartition(topic, partition, 4 + partition, metadata="half-way")
        for partition in range(PARTITIONS)
    ]
    for committed in first.commit(offsets=offsets, asynchronous=False):
        assert committed.error is None
    known = first.committed([confluent_kafka.TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    assert [(each.offset, each.metadata) for each in known] == [(4 + p, "half-way") for p in range(PARTITIONS)]
    first.close()
    second = member()
    messages: list[Any] = []

    def enough() -> bool:
        messages.extend(second.consume(100, timeout=0.1))
        return len(messages) >= 4 * 10 - (4 + 5 + 6 + 7)

    poll_until(enough)
    firsts = {message.partition(): message.offset() for message in reversed(messages)}
    assert firsts == {partition: 4 + partition for partition in range(PARTITIONS)}


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    member: MakeMember, admin: Any, topic: str
) -> None:
    first = member(**{"group.instance.id": "one"})
    second = member(**{"group.instance.id": "two"})
    poll_until(lambda: len(partitions_of(first)) == len(partitions_of(second)) == 2, first, second)
    before = partitions_of(second)
    second.close()
    again = member(**{"group.instance.id": "two"})
    poll_until(lambda: len(partitions_of(again)) == 2, first, again)
    assert partitions_of(again) == before
    assert partitions_of(first) == set(range(PARTITIONS)) - before


def test_a_second_consumer_of_the_same_instance_fences_the_first(member: MakeMember) -> None:
    first = member(**{"group.instance.id": "one"})
    poll_until(lambda: len(partitions_of(first)) == PARTITIONS, first)
    second = member(**{"group.instance.id": "one"})
    poll_until(lambda: len(partitions_of(second)) == PARTITIONS, second)
    errors: list[Any] = []

    def fenced() -> bool:
        try:
            message = first.poll(0.1)
        except confluent_kafka.KafkaException as error:
            return bool(error.args[0].fatal())
        if message is not None and message.error() is not None:
            errors.append(message.error().code())
        return confluent_kafka.KafkaError._FATAL in errors or confluent_kafka.KafkaError.FENCED_INSTANCE_ID in errors

    poll_until(fenced)


def test_groups_are_listed_described_altered_and_deleted(member: MakeMember, admin: Any, topic: str) -> None:
    consumer = member(**{"client.id": "reader"})
    poll_until(lambda: len(partitions_of(consumer)) == PARTITIONS, consumer)
    described = admin.describe_consumer_groups([topic])[topic].result(TIMEOUT)
    assert described.state == confluent_kafka.ConsumerGroupState.STABLE
    assert described.partition_assignor == "range"
    (only,) = described.members
    assert (only.client_id, only.host) == ("reader", "/127.0.0.1")
    assert {assigned.partition for assigned in only.assignment.topic_partitions} == set(range(PARTITIONS))
    stable = {confluent_kafka.ConsumerGroupState.STABLE}
    listed = admin.list_consumer_groups(states=stable).result(TIMEOUT)
    assert topic in {group.group_id for group in listed.valid}
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        admin.delete_consumer_groups([topic])[topic].result(TIMEOUT)
    assert refused.value.args[0].code() == confluent_kafka.KafkaError.NON_EMPTY_GROUP
    consumer.close()
    wanted = [confluent_kafka.TopicPartition(topic, 1, 17)]
    request = confluent_kafka.ConsumerGroupTopicPartitions(topic, wanted)
    altered = admin.alter_consumer_group_offsets([request])[topic].result(TIMEOUT)
    assert altered.topic_partitions[0].error is None
    asked = confluent_kafka.ConsumerGroupTopicPartitions(topic)
    found = admin.list_consumer_group_offsets([asked])[topic].result(TIMEOUT)
    assert [(each.partition, each.offset) for each in found.topic_partitions] == [(1, 17)]
    admin.delete_consumer_groups([topic])[topic].result(TIMEOUT)
    with pytest.raises(confluent_kafka.KafkaException) as gone:
        admin.delete_consumer_groups([topic])[topic].result(TIMEOUT)
    assert gone.value.args[0].code() == confluent_kafka.KafkaError.GROUP_ID_NOT_FOUND
