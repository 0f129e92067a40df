"""Groups and offsets in one data directory, kept by Apache Kafka 3.9.2 and by our broker in turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.groups import DescribeGroupsRequest, OffsetCommitRequest, OffsetFetchRequest
from tests.fixtures.brokers import MakeBroker
from tests.kbroker.asking import asking

pytestmark = pytest.mark.slow
confluent_kafka = pytest.importorskip("confluent_kafka")
admin_module = pytest.importorskip("confluent_kafka.admin")

TIMEOUT = 60.0
Partition = confluent_kafka.TopicPartition
STARTING = (confluent_kafka.KafkaError.NOT_COORDINATOR, confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS)


def write_with_kafka(bootstrap: str) -> None:
    """A static member of `members`, plain offsets of `simple`, and `exact` with transactions of both outcomes."""
    admin = admin_module.AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([admin_module.NewTopic("t", 4, 1)])["t"].result(TIMEOUT)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "members", "group.instance.id": "one", "client.id": "reader"}
    )
    consumer.subscribe(["t"])
    for _ in range(300):
        consumer.poll(0.1)
        if len(consumer.assignment()) == 4:
            break
    consumer.commit(offsets=[Partition("t", 2, 22, metadata="note")], asynchronous=False)
    consumer.close()
    simple = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "simple"})
    simple.commit(offsets=[Partition("t", 0, 7)], asynchronous=False)
    exact = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "exact"})
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx"})
    producer.init_transactions(TIMEOUT)
    for offset, end in ((30, producer.commit_transaction), (31, producer.abort_transaction)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([Partition("t", 1, offset)], exact.consumer_group_metadata(), TIMEOUT)
        end(TIMEOUT)
    simple.close()
    exact.close()


async def fetched(ask: Any, group_id: str) -> dict[int, tuple[int, str]]:
    """What is committed, from a broker that may have to read it first."""
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=None)
    deadline = time.monotonic() + TIMEOUT
    while True:
        (found,) = (await ask(OffsetFetchRequest(groups=[group], require_stable=True), 9)).groups
        if found.error_code not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            break
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    assert found.error_code is ErrorCode.NONE
    return {p.partition_index: (p.committed_offset, p.metadata) for topic in found.topics for p in topic.partitions}


def asked_until_coordinated(consumer: Any) -> list[Any]:
    """What is committed: a broker that has just started may not yet be the coordinator it names."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            return list(consumer.committed([Partition("t", number) for number in range(4)], TIMEOUT))
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() not in STARTING or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def committed(bootstrap: str, group_id: str) -> dict[int, int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group_id})
    try:
        found = asked_until_coordinated(consumer)
        return {each.partition: each.offset for each in found if each.offset >= 0}
    finally:
        consumer.close()


async def test_each_goes_on_with_what_the_other_wrote(
    kafka_in_turn: Callable[[str], str], make_broker: MakeBroker, tmp_path: Path
) -> None:
    write_with_kafka(kafka_in_turn("start"))
    kafka_in_turn("stop")
    broker = make_broker(properties={"log.dirs": str(tmp_path / "data")})
    async with asking(broker) as ask:
        # The client sends the text with its final nought.
        assert await fetched(ask, "members") == {2: (22, "note\0")}
        assert await fetched(ask, "simple") == {0: (7, "")}
        assert await fetched(ask, "exact") == {1: (30, "")}
        (group,) = (await ask(DescribeGroupsRequest(groups=["members"]), 5)).groups
        assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
        (member,) = group.members
        assert (member.client_id, member.client_host, member.group_instance_id) == ("reader", "/127.0.0.1", "one")
        assert bytes(member.member_assignment)
        position = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=3, committed_offset=44, committed_metadata=None
        )
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[position])
        stored = await ask(OffsetCommitRequest(group_id="simple", member_id="", topics=[topic]), 8)
        assert stored.topics[0].partitions[0].error_code is ErrorCode.NONE
    broker.stop(TIMEOUT)
    bootstrap = kafka_in_turn("start")
    assert committed(bootstrap, "simple") == {0: 7, 3: 44}
    assert committed(bootstrap, "members") == {2: 22}
    assert committed(bootstrap, "exact") == {1: 30}
