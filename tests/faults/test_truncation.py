"""A log that was truncated under its readers by an unclean election: they are told, or go on where the logs agree."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kbroker import Admin as BlockingAdmin
from kbroker.client import errors
from kbroker.client.consumer import Consumer
from kbroker.client.producer import Producer
from kbroker.client.types import OffsetAndMetadata, TopicPartition
from tests.faults.cluster import TIMEOUT, FaultCluster, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

KEPT, LOST = 10, 5


async def write(cluster: FaultCluster, topic: str, prefix: str, count: int, **arguments: Any) -> None:
    async with Producer(cluster.bootstrap, linger_ms=0, **arguments) as producer:
        for number in range(count):
            value = f"{prefix}{number}".encode()
            async with asyncio.timeout(TIMEOUT):
                await producer.send_and_wait(topic, value, partition=0)


async def read(consumer: Consumer, count: int) -> list[str]:
    values: list[str] = []
    async with asyncio.timeout(TIMEOUT):
        while len(values) < count:
            values += [(record.value or b"").decode() for record in await consumer.poll(0.5)]
    return values


async def lead_without_the_last(cluster: FaultCluster, topic: str) -> None:
    """The leader takes LOST records alone; then it dies, and a follower without them leads."""
    leader = cluster.state(topic).leader
    followers = [broker for broker in cluster.brokers if broker != leader]
    await asyncio.to_thread(cluster.kill, *followers)

    def knows_it_leads_alone() -> bool:
        """Brokers are told of an ISR after the leader's orders, which begin its next leader epoch."""
        with BlockingAdmin(cluster.brokers[leader].bootstrap) as admin:
            return admin.describe_topics([topic])[topic].partitions[0].isr == (leader,)

    await asyncio.to_thread(until, knows_it_leads_alone, "the leader is alone")
    await write(cluster, topic, "lost", LOST, acks=1)


async def elect_uncleanly(cluster: FaultCluster, topic: str) -> None:
    leader = cluster.state(topic).leader
    await asyncio.to_thread(cluster.kill, leader)
    for broker_id, broker in cluster.brokers.items():
        if broker_id != leader:
            await asyncio.to_thread(lambda broker=broker: broker.start().wait_until_ready(TIMEOUT))  # type: ignore[misc]
    await asyncio.to_thread(cluster.until_led_by_another, topic, leader)


PATIENT: dict[str, Any] = {"request_timeout_ms": 3_000, "connect_timeout_ms": 1_000}


async def test_readers_of_records_that_are_gone_are_told_or_go_on_where_the_logs_agree(
    cluster: FaultCluster, topic_name: str
) -> None:
    settings = {"unclean_leader_election_enable": "true", "min_insync_replicas": "1"}
    cluster.create_topic(topic_name, [1], **settings)
    key = TopicPartition(topic_name, 0)
    await write(cluster, topic_name, "kept", KEPT)
    await lead_without_the_last(cluster, topic_name)
    async with (
        Consumer(cluster.bootstrap, auto_offset_reset="latest", **PATIENT) as going_on,
        Consumer(cluster.bootstrap, auto_offset_reset="none", **PATIENT) as strict,
        Consumer(cluster.bootstrap, auto_offset_reset="none", **PATIENT) as behind,
    ):
        for consumer in (going_on, strict, behind):
            await consumer.assign([key])
            consumer.seek(key, 0)
        expected = [f"kept{n}" for n in range(KEPT)] + [f"lost{n}" for n in range(LOST)]
        for consumer in (going_on, strict):
            assert await read(consumer, KEPT + LOST) == expected
        first = await behind.poll(TIMEOUT, 3)
        assert len(first) == 3
        await elect_uncleanly(cluster, topic_name)
        await write(cluster, topic_name, "new", LOST + 3)
        new = [f"new{n}" for n in range(LOST + 3)]

        assert await read(going_on, len(new)) == new, "it goes on where the logs part, not at the end"
        told = rf"{topic_name}-0.*the log was truncated: offset {KEPT + LOST - 1} .*agrees up to offset {KEPT}"
        for _ in range(2):
            with pytest.raises(errors.OffsetOutOfRangeError, match=told):
                await read(strict, 1)
        strict.seek(key, KEPT)
        assert await read(strict, len(new)) == new
        assert await read(behind, KEPT - 3 + len(new)) == expected[3:KEPT] + new, "what it had not got is no loss to it"


async def test_a_commit_of_records_that_are_gone_is_known_by_its_leader_epoch(
    cluster: FaultCluster, topic_name: str
) -> None:
    settings = {"unclean_leader_election_enable": "true", "min_insync_replicas": "1"}
    cluster.create_topic(topic_name, [1], **settings)
    key = TopicPartition(topic_name, 0)
    await write(cluster, topic_name, "kept", KEPT)
    options = {"group_id": topic_name, "enable_auto_commit": False, **PATIENT}
    await lead_without_the_last(cluster, topic_name)
    async with Consumer(cluster.bootstrap, auto_offset_reset="earliest", **PATIENT) as consumer:
        await consumer.assign([key])
        await read(consumer, KEPT + LOST)
        epoch = consumer._assignment.states[key].epoch_before(KEPT + LOST)
    assert epoch == cluster.state(topic_name).leader_epoch
    await elect_uncleanly(cluster, topic_name)
    await write(cluster, topic_name, "new", 2 * LOST)
    await asyncio.to_thread(cluster.mend)  # the group's offsets need three brokers
    async with Consumer(cluster.bootstrap, auto_offset_reset="none", **options) as consumer:
        async with asyncio.timeout(TIMEOUT):
            await consumer.commit({key: OffsetAndMetadata(KEPT + LOST, "", epoch)})
        await consumer.assign([key])
        with pytest.raises(errors.OffsetOutOfRangeError, match="the log was truncated"):
            await read(consumer, 1)
        consumer.seek(key, OffsetAndMetadata(KEPT))
        assert await read(consumer, 2 * LOST) == [f"new{n}" for n in range(2 * LOST)]
        await consumer.commit()
        committed = (await consumer.committed())[key]
        assert committed is not None
        assert (committed.offset, committed.leader_epoch) == (KEPT + 2 * LOST, cluster.state(topic_name).leader_epoch)
