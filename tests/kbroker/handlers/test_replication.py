from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from kbroker.handlers.replication import leader_and_isr, stop_replica, update_metadata
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.replication import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from kbroker.replica.turns import PORTION
from tests.fixtures.data_path import TOPIC, TOPIC_ID, Played


def stop_request(partition: int = 0, leader_epoch: int = -2, delete: bool = True, controller_epoch: int = 1) -> Any:
    request = StopReplicaRequest
    return request(
        controller_id=1,
        controller_epoch=controller_epoch,
        broker_epoch=7,
        topic_states=[
            request.StopReplicaTopicState(
                topic_name=TOPIC,
                partition_states=[
                    request.StopReplicaPartitionState(
                        partition_index=partition, leader_epoch=leader_epoch, delete_partition=delete
                    )
                ],
            )
        ],
    )


async def test_orders_of_an_older_controller_are_refused(played: Played) -> None:
    played.tell(TOPIC, bytes(16), [0], controller_epoch=5)
    request = LeaderAndIsrRequest(controller_id=1, controller_epoch=4, broker_epoch=7, live_leaders=[])
    answer = await leader_and_isr(played.services, played.ctx(7), request)
    assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    stopped = await stop_replica(played.services, played.ctx(4), stop_request(controller_epoch=4))
    assert stopped.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    update = UpdateMetadataRequest(controller_id=1, controller_epoch=4, broker_epoch=7, live_brokers=[])
    told: Any = update_metadata(played.services, played.ctx(8), update)
    assert told.error_code == ErrorCode.STALE_CONTROLLER_EPOCH


async def test_orders_for_an_earlier_life_of_the_broker_are_refused(played: Played) -> None:
    request = LeaderAndIsrRequest(controller_id=1, controller_epoch=1, broker_epoch=6, live_leaders=[])
    answer = await leader_and_isr(played.services, played.ctx(7), request)
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH


def large_update(partitions: int, controller_epoch: int = 1) -> UpdateMetadataRequest:
    state = UpdateMetadataRequest.UpdateMetadataPartitionState
    states = [
        state(partition_index=each, controller_epoch=1, leader=1, leader_epoch=0, isr=[1], zk_version=0, replicas=[1])
        for each in range(partitions)
    ]
    topic = UpdateMetadataRequest.UpdateMetadataTopicState(topic_name=TOPIC, topic_id=TOPIC_ID, partition_states=states)
    return UpdateMetadataRequest(
        controller_id=1, controller_epoch=controller_epoch, broker_epoch=7, topic_states=[topic], live_brokers=[]
    )


async def test_metadata_of_very_many_partitions_comes_in_portions_and_wakes_when_all_are_there(played: Played) -> None:
    known: list[int] = []

    def note(cache: Any) -> bool:
        known.append(len(cache.topics[TOPIC].partitions) if TOPIC in cache.topics else 0)
        return False

    waiting = asyncio.create_task(played.metadata.wait_for(note, 60))
    await asyncio.sleep(0)
    steps = list(played.replicas.update_metadata_in_turns(large_update(3 * PORTION + 1)))
    assert len(steps) == 4
    assert played.metadata.updates == 4
    assert known == [0, 3 * PORTION + 1], "looked at before, and when all was told"
    waiting.cancel()


async def test_a_newer_controller_ends_the_metadata_of_its_predecessor(played: Played) -> None:
    telling = played.replicas.update_metadata_in_turns(large_update(3 * PORTION))
    next(telling)
    played.tell(TOPIC, TOPIC_ID, [0], leader=2, controller_epoch=2)
    with pytest.raises(StopIteration) as end:
        next(telling)
    assert end.value.value.error_code is ErrorCode.STALE_CONTROLLER_EPOCH
    assert len(played.metadata.topics[TOPIC].partitions) == PORTION
    assert played.metadata.topics[TOPIC].partitions[0].leader == 2


async def test_a_large_update_of_the_metadata_is_taken_over_in_turns(played: Played) -> None:
    ctx = played.ctx(8)
    ctx.is_large = True
    answer: Any = update_metadata(played.services, ctx, large_update(2 * PORTION))
    answer = await answer if isinstance(answer, Awaitable) else answer
    assert answer.error_code is ErrorCode.NONE
    assert played.metadata.updates > 1
    assert len(played.metadata.topics[TOPIC].partitions) == 2 * PORTION


async def test_a_stopped_and_deleted_replica_is_gone_from_disk(played: Played) -> None:
    await played.lead()
    answer = await stop_replica(played.services, played.ctx(4), stop_request())
    assert [each.error_code for each in answer.partition_errors] == [0]
    assert played.replicas.replica(TOPIC, 0) is None
    assert played.logs.get(TOPIC, 0) is None
    assert played.changes[-1] == ([], [(TOPIC, 0)])


async def test_stopping_with_an_older_leader_epoch_is_fenced(played: Played) -> None:
    await played.lead(leader_epoch=3)
    answer = await stop_replica(played.services, played.ctx(4), stop_request(leader_epoch=2))
    assert [each.error_code for each in answer.partition_errors] == [ErrorCode.FENCED_LEADER_EPOCH]
    answer = await stop_replica(played.services, played.ctx(4), stop_request(partition=9))
    assert [each.error_code for each in answer.partition_errors] == [0]
