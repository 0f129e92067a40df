"""A coordinator that takes over neither tells nor carries out what the next one might not know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kbroker.cluster.topic_names import TRANSACTIONS_TOPIC
from kbroker.coordinator.transaction import COMPLETE_COMMIT, Answer
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.records.control import ControlType
from tests.kbroker.coordinator.coordinated import TIMEOUT, Coordinated, leading
from tests.kbroker.coordinator.test_transaction_coordinator import refused


@pytest.fixture
async def coordinated(tmp_path: Path) -> AsyncIterator[Coordinated]:
    """A producer's transaction is under way; then there is a follower, who does not ask for anything."""
    async with leading(tmp_path) as made:
        yield made


async def until_loading(coordinated: Coordinated) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not coordinated.transactions._owned.is_loading:  # noqa: ASYNC110 - nobody tells of that
            await asyncio.sleep(0.002)


async def end_alone(coordinated: Coordinated, producer: Answer) -> None:
    """The end of the transaction gets into the leader's log and no further; then the coordinator is gone."""
    partition = coordinated.transactions.partition_for("id")
    hosted = coordinated.played.replicas.replica(TRANSACTIONS_TOPIC, partition)
    assert hosted is not None
    await coordinated.lead(replicas=(1, 2))
    ending = asyncio.ensure_future(coordinated.end(producer))
    async with asyncio.timeout(TIMEOUT):
        while hosted.log.log_end_offset == hosted.state.high_watermark:  # noqa: ASYNC110 - nobody tells of appends
            await asyncio.sleep(0.002)
    await coordinated.transactions.stop()
    assert await ending is ErrorCode.NOT_COORDINATOR
    coordinated.transactions = coordinated.make_coordinator()
    coordinated.transactions.start()


async def test_what_may_still_be_lost_is_neither_told_nor_carried_out(coordinated: Coordinated) -> None:
    """Were this broker lost with what it alone has, the next coordinator would know nothing of it."""
    producer = await coordinated.began("id", 0)
    await end_alone(coordinated, producer)
    leading = asyncio.ensure_future(coordinated.lead(replicas=(1, 2)))
    await until_loading(coordinated)
    await asyncio.sleep(0.05)
    with refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        await coordinated.end(producer)
    assert coordinated.markers() == []
    await coordinated.lead(isr=(1,), replicas=(1, 2))
    await leading
    await coordinated.until_state(COMPLETE_COMMIT)
    assert coordinated.markers() == [(ControlType.COMMIT, 3)]


async def test_a_coordinator_that_waits_for_its_followers_can_be_stopped(coordinated: Coordinated) -> None:
    producer = await coordinated.began("id", 0)
    await end_alone(coordinated, producer)
    leading = asyncio.ensure_future(coordinated.lead(replicas=(1, 2)))
    await until_loading(coordinated)
    await asyncio.wait_for(coordinated.transactions.stop(), TIMEOUT)
    await leading
