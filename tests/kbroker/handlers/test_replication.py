from __future__ import annotations

from typing import Any

from kbroker.handlers.replication import leader_and_isr, stop_replica, update_metadata
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.replication import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from tests.fixtures.data_path import TOPIC, Played


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
    assert update_metadata(played.services, played.ctx(8), update).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


async def test_orders_for_an_earlier_life_of_the_broker_are_refused(played: Played) -> None:
    request = LeaderAndIsrRequest(controller_id=1, controller_epoch=1, broker_epoch=6, live_leaders=[])
    answer = await leader_and_isr(played.services, played.ctx(7), request)
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH


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
