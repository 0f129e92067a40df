"""What was moved away unnoticed is let go of, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kbroker.protocol.messages.replication import UpdateMetadataRequest
from kbroker.replica.strays import stop_gone_topics, stop_moved_replicas

US = 1


def metadata(replicas: Sequence[int], isr: Sequence[int], leader: int = 2) -> UpdateMetadataRequest:
    state = UpdateMetadataRequest.UpdateMetadataPartitionState(
        partition_index=4,
        controller_epoch=3,
        leader=leader,
        leader_epoch=9,
        isr=list(isr),
        zk_version=0,
        replicas=list(replicas),
        offline_replicas=[],
    )
    topic = UpdateMetadataRequest.UpdateMetadataTopicState(topic_name="t", topic_id=bytes(16), partition_states=[state])
    return UpdateMetadataRequest(
        controller_id=2, controller_epoch=3, broker_epoch=7, topic_states=[topic], live_brokers=[]
    )


@pytest.mark.parametrize(
    ("replicas", "isr", "is_held"),
    [
        ((1, 2), (2,), True),
        ((2, 3), (1, 2), True),  # a move is not over: we may be the only one who has it all
        ((), (2,), True),  # the controller does not know the replicas
        ((2, 3), (2, 3), False),
    ],
)
def test_what_is_ours_or_not_here_is_left_alone(replicas: Sequence[int], isr: Sequence[int], is_held: bool) -> None:
    assert stop_moved_replicas(metadata(replicas, isr), US, lambda topic, partition: is_held) is None


@pytest.mark.parametrize(("leader", "epoch"), [(2, 9), (-1, 9), (-2, -2)])
def test_a_replica_that_moved_away_is_deleted_unless_it_is_of_a_later_epoch(leader: int, epoch: int) -> None:
    order = stop_moved_replicas(metadata((2, 3), (2, 3), leader), US, lambda topic, partition: True)
    assert order is not None
    assert (order.controller_epoch, order.broker_epoch) == (3, -1)
    (topic,) = order.topic_states
    (state,) = topic.partition_states
    assert (topic.topic_name, state.partition_index) == ("t", 4)
    assert (state.leader_epoch, state.delete_partition) == (epoch, True)


def test_a_topic_that_is_gone_keeps_its_files() -> None:
    order = stop_gone_topics(2, 3, [("t", 0), ("t", 1), ("u", 0)])
    assert [(topic.topic_name, len(topic.partition_states)) for topic in order.topic_states] == [("t", 2), ("u", 1)]
    assert not any(each.delete_partition for topic in order.topic_states for each in topic.partition_states)
