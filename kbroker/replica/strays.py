"""Replicas that were moved to other brokers while nobody could tell us (pure).

A controller orders the deletion of a replica that moved once, and does not wait for the answer: we may be away, or it
may die. But the metadata of a partition, which every controller sends to all brokers, names its replicas: a broker that
is none of them any more, nor in the ISR, may let go of what it holds, as if the order had come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kbroker.protocol.messages.replication import (
    EPOCH_BEING_DELETED,
    LEADER_BEING_DELETED,
    StopReplicaRequest,
    UpdateMetadataRequest,
)


def stop_moved_replicas(
    request: UpdateMetadataRequest, broker_id: int, holds: Callable[[str, int], bool]
) -> StopReplicaRequest | None:
    """The order to delete what `holds` says is here and the metadata says should not be; None when all is well."""
    topics: dict[str, list[Any]] = {}
    for topic in request.topic_states:
        for each in topic.partition_states:
            is_ours = not each.replicas or broker_id in each.replicas or broker_id in each.isr
            if not is_ours and holds(topic.topic_name, each.partition_index):
                epoch = EPOCH_BEING_DELETED if each.leader == LEADER_BEING_DELETED else each.leader_epoch
                topics.setdefault(topic.topic_name, []).append(_state(each.partition_index, epoch, delete=True))
    return _order(request.controller_id, request.controller_epoch, topics) if topics else None


def stop_gone_topics(
    controller_id: int, controller_epoch: int, partitions: Iterable[tuple[str, int]]
) -> StopReplicaRequest:
    """The order to host partitions no more whose topics are gone from ZooKeeper; their files stay."""
    topics: dict[str, list[Any]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(_state(partition, EPOCH_BEING_DELETED, delete=False))
    return _order(controller_id, controller_epoch, topics)


def _state(partition: int, leader_epoch: int, *, delete: bool) -> Any:
    return StopReplicaRequest.StopReplicaPartitionState(
        partition_index=partition, leader_epoch=leader_epoch, delete_partition=delete
    )


def _order(controller_id: int, controller_epoch: int, topics: dict[str, list[Any]]) -> StopReplicaRequest:
    return StopReplicaRequest(
        controller_id=controller_id,
        is_kraft_controller=False,
        controller_epoch=controller_epoch,
        broker_epoch=-1,
        topic_states=[
            StopReplicaRequest.StopReplicaTopicState(topic_name=name, partition_states=states)
            for name, states in topics.items()
        ],
    )
