"""DescribeProducers, on a leader and on a follower."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from kbroker.handlers.producer_states import describe_producers
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.transactions import DescribeProducersRequest
from kbroker.replica.turns import finished
from tests.fixtures.data_path import TOPIC, TOPIC_ID, Played
from tests.kbroker.asking import told
from tests.kbroker.handlers.test_transactions import PRODUCER, append, in_transaction, marker, write


async def describe(played: Played, *partitions: int, topic: str = TOPIC) -> list[Any]:
    wanted = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=list(partitions))
    answer = describe_producers(played.services, played.ctx(0), DescribeProducersRequest(topics=[wanted]))
    response = told(await asyncio.wait_for(answer, 20) if isinstance(answer, Awaitable) else answer, 0)
    (found,) = response.topics
    assert found.name == topic
    return list(found.partitions)


async def states(played: Played, partition: int = 0) -> list[tuple[int, ...]]:
    (found,) = await describe(played, partition)
    assert (found.partition_index, found.error_code, found.error_message) == (partition, ErrorCode.NONE, None)
    return [
        (
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in found.active_producers
    ]


async def test_it_tells_what_is_known_of_a_producer_and_its_transaction(played: Played) -> None:
    await played.lead()
    assert await states(played) == []
    append(played, in_transaction(sequence=0))
    append(played, in_transaction(sequence=1))
    assert await states(played) == [(PRODUCER, 0, 1, 1_000, -1, 0)]
    await write(played, marker(0, coordinator_epoch=3))
    assert await states(played) == [(PRODUCER, 0, 1, played.now, 3, -1)]
    await write(played, marker(0, epoch=1, coordinator_epoch=4))
    assert await states(played) == [(PRODUCER, 1, -1, played.now, 4, -1)]


async def test_followers_tell_it_too(played: Played) -> None:
    await played.lead(replicas=(1, 2))
    append(played, in_transaction())
    await played.lead(leader=2, leader_epoch=1, partition_epoch=1, replicas=(1, 2), is_new=False)
    assert await states(played) == [(PRODUCER, 0, 0, 1_000, -1, 0)]


async def test_what_is_not_here_has_its_error(played: Played) -> None:
    await played.lead()
    played.tell(TOPIC, TOPIC_ID, [1], leader=2)
    codes = [each.error_code for each in await describe(played, 0, 1, 9)]
    assert codes == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    (unknown,) = await describe(played, 0, topic="no-such-topic")
    assert unknown.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (invalid,) = await describe(played, 0, topic="not a name")
    assert invalid.error_code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "not a name" in invalid.error_message


async def test_a_partition_that_is_named_often_is_told_once(played: Played) -> None:
    await played.lead()
    assert [each.partition_index for each in await describe(played, 9, 0, 9, 0, 0)] == [9, 0]
    wanted = DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[0, 9])
    request = DescribeProducersRequest(topics=[wanted, wanted])
    (topic,) = told(await finished(describe_producers(played.services, played.ctx(0), request)), 0).topics
    assert [each.partition_index for each in topic.partitions] == [0, 9]


@pytest.mark.slow
async def test_many_producers_leave_others_their_turns(played: Played) -> None:
    await played.lead()
    log = played.replicas.hosted[TOPIC, 0].log
    for producer_id in range(20_000):
        log.producers.state.changeable(producer_id).begin_epoch(0)
    turns = 0

    async def beat() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(beat())
    found = await states(played)
    beating.cancel()
    assert [each[0] for each in found] == list(range(20_000))
    assert turns > 3
