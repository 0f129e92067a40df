"""What brokers are told: which fields, to whom, in how many requests."""

from __future__ import annotations

import pytest

from kbroker.controller.instructions import Pause, Send
from kbroker.controller.pacing import PARTITIONS_PER_PAUSE
from kbroker.controller.request_batch import PARTITIONS_PER_UPDATE, RequestBatch
from kbroker.controller.state import ControllerState
from kbroker.controller.znodes import PartitionState, ReplicaAssignment, TopicAssignment, TopicPartition
from kbroker.protocol.codec import decode, encode
from kbroker.protocol.messages.replication import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from tests.controller.play import registration

T0 = TopicPartition("t", 0)


@pytest.fixture
def state() -> ControllerState:
    state = ControllerState()
    state.epoch = 5
    state.brokers = {1: registration(1, 11, "r1"), 2: registration(2, 12)}
    state.add_topic("t", TopicAssignment(b"i" * 16, {0: ReplicaAssignment((1, 2, 3), (3,), (2,))}))
    state.leadership[T0] = PartitionState(1, 7, (1, 2), 4, 9, 1)
    return state


def sent(batch: RequestBatch) -> list[Send]:
    return [order for order in batch.send() if isinstance(order, Send)]


def test_leader_and_isr_says_everything_of_a_partition(state: ControllerState) -> None:
    batch = RequestBatch(state, 1, "PLAINTEXT")
    batch.tell_leader_and_isr((2,), T0)
    batch.tell_leader_and_isr((2,), T0, is_new=True)
    batch.tell_leader_and_isr((2,), T0)
    order = sent(batch)[0]
    assert (order.broker_id, order.version) == (2, 7)
    request = decode(LeaderAndIsrRequest, encode(order.request, 7), 7)
    told = request.topic_states[0].partition_states[0]
    assert (request.controller_id, request.controller_epoch, request.broker_epoch, request.type) == (1, 5, 12, 0)
    assert bytes(request.topic_states[0].topic_id) == b"i" * 16
    assert (told.controller_epoch, told.leader, told.leader_epoch, told.partition_epoch) == (4, 1, 7, 9)
    assert (list(told.isr), list(told.replicas)) == ([1, 2], [1, 2, 3])
    assert (list(told.adding_replicas), list(told.removing_replicas)) == ([3], [2])
    assert told.is_new
    assert told.leader_recovery_state == 1
    assert [(each.broker_id, each.host_name, each.port) for each in request.live_leaders] == [(1, "host1", 9092)]


def test_all_brokers_metadata_hear_of_it_and_of_each_other(state: ControllerState) -> None:
    batch = RequestBatch(state, 1, "PLAINTEXT")
    batch.tell_leader_and_isr((2,), T0)
    orders = [order for order in sent(batch) if isinstance(order.request, UpdateMetadataRequest)]
    assert [order.broker_id for order in orders] == [1, 2]
    request = decode(UpdateMetadataRequest, encode(orders[0].request, 8), 8)
    told = request.topic_states[0].partition_states[0]
    assert (told.leader, told.zk_version, list(told.offline_replicas)) == (1, 9, [3])
    assert [(each.id, each.rack, each.endpoints[0].listener) for each in request.live_brokers] == [
        (1, "r1", "PLAINTEXT"),
        (2, None, "PLAINTEXT"),
    ]


def test_a_topic_being_deleted_leaves_the_metadata(state: ControllerState) -> None:
    state.topics_to_delete.add("t")
    batch = RequestBatch(state, 1, "PLAINTEXT")
    batch.tell_metadata([T0], [1])
    batch.tell_stop_replica(1, T0, delete=True)
    metadata, stop = sent(batch)
    told = metadata.request.topic_states[0].partition_states[0]
    assert (told.leader, told.leader_epoch, told.zk_version) == (-2, 0, 0)
    stopped = decode(StopReplicaRequest, encode(stop.request, 4), 4).topic_states[0].partition_states[0]
    assert (stopped.leader_epoch, stopped.delete_partition) == (-2, True)


def test_brokers_that_are_gone_and_partitions_without_a_state_are_left_out(state: ControllerState) -> None:
    batch = RequestBatch(state, 1, "PLAINTEXT")
    batch.tell_leader_and_isr((3,), T0)
    batch.tell_stop_replica(3, T0, delete=False)
    batch.tell_leader_and_isr((1,), TopicPartition("t", 9))
    orders = sent(batch)
    assert {type(order.request) for order in orders} == {UpdateMetadataRequest}
    assert len(orders[0].request.topic_states[0].partition_states) == 1


def test_long_work_pauses(state: ControllerState) -> None:
    count = 4 * PARTITIONS_PER_PAUSE
    state.add_topic("big", TopicAssignment(None, {number: ReplicaAssignment((1,)) for number in range(count)}))
    batch = RequestBatch(state, 1, "PLAINTEXT")
    for partition in state.partitions_of("big"):
        state.leadership[partition] = PartitionState(1, 0, (1,), 5)
        batch.tell_leader_and_isr((1,), partition)
    assert sum(isinstance(order, Pause) for order in batch.send()) >= 8


@pytest.mark.slow
def test_more_partitions_than_an_update_should_hold_are_told_of_in_several(state: ControllerState) -> None:
    every = ReplicaAssignment((1, 2))
    added = state.add_topic("u", TopicAssignment(b"u" * 16, dict.fromkeys(range(PARTITIONS_PER_UPDATE + 1), every)))
    for each in added:
        state.take(each, PartitionState(1, 0, (1, 2), 5))
    batch = RequestBatch(state, 1, "PLAINTEXT")
    batch.tell_metadata(added)
    told = [(each.broker_id, len(each.request.topic_states[0].partition_states)) for each in sent(batch)]
    assert told == [(1, PARTITIONS_PER_UPDATE), (2, PARTITIONS_PER_UPDATE), (1, 1), (2, 1)]
