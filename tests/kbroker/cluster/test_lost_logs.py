"""Waiting to be left out of ISRs, on the znodes of a real ZooKeeper."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from kbroker.cluster.lost_logs import wait_until_left_out
from kbroker.controller.broker_store import NewTopic
from kbroker.controller.znodes import (
    BrokerRegistration,
    Endpoint,
    PartitionState,
    ReplicaAssignment,
    TopicPartition,
    encode_topic,
)
from kbroker.controller.zookeeper import ZooKeeper
from tests.fixtures.zookeeper import ZooKeeperAddress

LIMIT_S = 60.0
T0 = TopicPartition("t", 0)


@pytest.fixture
async def session(zookeeper: ZooKeeperAddress) -> AsyncIterator[ZooKeeper]:
    """Partition t-0 lies on brokers 1 and 2, of whom 2 is registered."""
    session = ZooKeeper(zookeeper.connect_string, 10_000)
    await session.connect()
    await session.ensure_top_level_paths()
    await session.register_broker(BrokerRegistration(2, (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)))
    await session.create_topics([NewTopic("t", os.urandom(16), {0: [1, 2]}, {})])
    yield session
    await session.close()


async def in_sync(session: ZooKeeper, *isr: int) -> None:
    """The state of t-0 as a controller writes it."""
    term = await session.elect_controller(2, 5)
    assert term is not None
    await session.create_partition_states(term, {T0: PartitionState(isr[0], 0, isr, term.epoch)})


def has_none(partition: TopicPartition) -> bool:
    return False


async def begun_to_wait(session: ZooKeeper, caplog: pytest.LogCaptureFixture) -> asyncio.Task[None]:
    """A member of the ISR that has said what it waits for."""
    await in_sync(session, 1, 2)
    waiting = asyncio.create_task(wait_until_left_out(session, 1, has_none, LIMIT_S))
    async with asyncio.timeout(LIMIT_S / 2):
        while "t-0" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return waiting


async def test_nothing_is_waited_for_where_no_log_is_missing(session: ZooKeeper) -> None:
    await in_sync(session, 1, 2)
    await wait_until_left_out(session, 1, lambda partition: partition == T0, LIMIT_S)
    await wait_until_left_out(session, 3, has_none, LIMIT_S)


async def test_a_member_of_the_isr_waits_until_it_is_left_out(
    session: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = await begun_to_wait(session, caplog)
    assert not waiting.done()
    await session.delete("/brokers/topics/t/partitions/0/state")
    await waiting
    assert "1 partition without a whole log here, though in the ISR: t-0" in caplog.text


async def test_a_member_that_is_alone_does_not_wait(session: ZooKeeper, caplog: pytest.LogCaptureFixture) -> None:
    await in_sync(session, 1)
    await wait_until_left_out(session, 1, has_none, 0.3)
    assert "without a whole log" not in caplog.text


async def test_a_topic_that_is_being_deleted_is_not_waited_for(
    session: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    await in_sync(session, 1, 2)
    await session.mark_topic_deleted("t")
    async with asyncio.timeout(LIMIT_S / 2):
        await wait_until_left_out(session, 1, has_none, LIMIT_S)
    assert "without a whole log" not in caplog.text


async def test_a_wait_ends_when_the_deletion_of_the_topic_begins(
    session: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = await begun_to_wait(session, caplog)
    async with asyncio.timeout(LIMIT_S / 2):
        await session.mark_topic_deleted("t")
        await waiting


async def test_a_topic_whose_deletion_waits_for_a_move_is_waited_for(
    session: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    await in_sync(session, 1, 2)
    topic = (await session.read_topics(["t"]))["t"]
    moving = replace(topic, partitions={0: ReplicaAssignment((1, 2, 3), adding_replicas=(3,))})
    await session.set("/brokers/topics/t", encode_topic(moving))
    await session.mark_topic_deleted("t")
    await wait_until_left_out(session, 1, has_none, 0.3)
    assert "registering all the same" in caplog.text


async def test_a_member_whose_fellows_are_gone_waits_for_them_to_come_back(session: ZooKeeper) -> None:
    await in_sync(session, 1, 3)
    waiting = asyncio.create_task(wait_until_left_out(session, 1, has_none, LIMIT_S))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    await session.delete("/brokers/topics/t/partitions/0/state")
    await session.delete("/controller")
    await in_sync(session, 3)
    await waiting


async def test_where_no_controller_is_at_work_the_wait_ends(
    session: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    await in_sync(session, 1, 2)
    await wait_until_left_out(session, 1, has_none, 0.3)
    assert "registering all the same" in caplog.text
