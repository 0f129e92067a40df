"""A group's coordinator is killed while it rebalances, and while offsets are committed: members go on, commits stay."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kbroker.client.consumer import Consumer
from kbroker.client.types import TopicPartition
from kbroker.protocol.java_hash import partition_for
from tests.faults.cluster import TIMEOUT, FaultCluster
from tests.kbroker.client.group.members import Diary, poll_until, shares

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

OFFSETS = "__consumer_offsets"
GROUP = "g"
KINDS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": "range"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "newer protocol": {"group_protocol": "consumer"},
}
SESSION_MS = 30_000
"""Of the members: far longer than a failover takes, so who is lost was lost by it."""
REQUEST_MS = 20_000
"""A failover and a machine that stands still take longer than 5 s together."""


def member(cluster: FaultCluster, **arguments: Any) -> Consumer:
    defaults = {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 500,
        "session_timeout_ms": SESSION_MS,
    }
    return Consumer(cluster.bootstrap, group_id=GROUP, request_timeout_ms=REQUEST_MS, **{**defaults, **arguments})


async def kill_coordinator(cluster: FaultCluster) -> int:
    """Kill the broker that coordinates the group; returns once another one does."""
    partition = partition_for(GROUP, len(cluster.partitions(OFFSETS)))
    coordinator = cluster.state(OFFSETS, partition).leader
    await asyncio.to_thread(cluster.kill, coordinator)
    await asyncio.to_thread(cluster.until_led_by_another, OFFSETS, coordinator, [partition])
    return coordinator


@pytest.mark.parametrize("kind", list(KINDS))
async def test_the_coordinator_is_killed_in_the_middle_of_a_rebalance(
    cluster: FaultCluster, topic_name: str, kind: str
) -> None:
    cluster.create_topic(topic_name, [1, 2, 3])
    in_the_middle, go_on = asyncio.Event(), asyncio.Event()

    class Holding(Diary):
        async def on_revoked(self, partitions: Any) -> None:  # type: ignore[override]
            self.entries.append(("revoked", tuple(partitions)))
            in_the_middle.set()
            await go_on.wait()

    diary = Holding()
    async with member(cluster, **KINDS[kind]) as first, member(cluster, **KINDS[kind]) as second:
        await first.subscribe([topic_name], listener=diary)
        await poll_until(lambda: len(first.assignment()) == 3, first)
        await asyncio.to_thread(cluster.until_whole, OFFSETS)
        await second.subscribe([topic_name])
        await poll_until(in_the_middle.is_set, first, second)
        killed = await kill_coordinator(cluster)
        go_on.set()
        await poll_until(lambda: shares(first, second) == [1, 2], first, second)
        assert sorted(first.assignment() + second.assignment()) == [(topic_name, p) for p in range(3)]
        assert diary.count("lost") == 0
        await asyncio.to_thread(cluster.brokers[killed].start)
        async with asyncio.timeout(TIMEOUT):
            await first.commit({first.assignment()[0]: 1})
            await second.commit({second.assignment()[0]: 1})


@pytest.mark.parametrize("kind", list(KINDS))
async def test_the_coordinator_is_killed_while_offsets_are_committed(
    cluster: FaultCluster, topic_name: str, kind: str
) -> None:
    cluster.create_topic(topic_name, [1, 2, 3])
    acknowledged: dict[TopicPartition, int] = {}
    sent: dict[TopicPartition, int] = {}
    enough = 0

    async def commit_on_and_on(consumer: Consumer) -> None:
        number = 0
        while number < enough:
            number += 1
            offsets = dict.fromkeys(consumer.assignment(), number)
            sent.update(offsets)
            async with asyncio.timeout(TIMEOUT):
                await consumer.commit(offsets)  # again and again for request_timeout_ms, then an error
            acknowledged.update(offsets)
            await consumer.poll(0)

    diaries = Diary(), Diary()
    async with member(cluster, **KINDS[kind]) as first, member(cluster, **KINDS[kind]) as second:
        for consumer, diary in zip((first, second), diaries, strict=True):
            await consumer.subscribe([topic_name], listener=diary)
        await poll_until(lambda: shares(first, second) == [1, 2], first, second)
        await asyncio.to_thread(cluster.until_whole, OFFSETS)
        epochs = [consumer.group_metadata().generation_id for consumer in (first, second)]
        enough = 1 << 30
        committing = [asyncio.create_task(commit_on_and_on(consumer)) for consumer in (first, second)]
        for _ in range(2):
            await until_more(acknowledged, 50, committing)
            killed = await kill_coordinator(cluster)
            await until_more(acknowledged, 50, committing)
            await asyncio.to_thread(lambda killed=killed: cluster.brokers[killed].start().wait_until_ready(TIMEOUT))  # type: ignore[misc]
            await asyncio.to_thread(cluster.until_whole, OFFSETS)
        enough = 0
        await asyncio.gather(*committing)
        assert [consumer.group_metadata().generation_id for consumer in (first, second)] == epochs
        assert not any(diary.count("lost") for diary in diaries)
    async with member(cluster) as observer:
        found = await observer.committed(list(acknowledged))
    for key, number in acknowledged.items():
        stored = found[key]
        assert stored is not None
        assert number <= stored.offset <= sent[key], f"{key}: {number} was acknowledged, {stored.offset} is found"


async def until_more(acknowledged: dict[TopicPartition, int], count: int, working: list[asyncio.Task[None]]) -> None:
    """Wait until each partition's commits have gone on."""
    before = dict(acknowledged)
    async with asyncio.timeout(TIMEOUT):
        while len(acknowledged) < 3 or min(n - before.get(key, 0) for key, n in acknowledged.items()) < count:
            for task in working:
                if task.done():
                    task.result()
            await asyncio.sleep(0.05)
