"""Whole transitions: each sends what it collected, once."""

from __future__ import annotations

from kbroker.controller import events
from kbroker.controller.controller_config import ControllerConfig
from kbroker.controller.instructions import Send
from kbroker.controller.state import PartitionStatus, ReplicaStatus
from kbroker.controller.transitions import Transitions
from kbroker.controller.znodes import PartitionState, ReplicaAssignment, TopicAssignment, TopicPartition
from tests.controller.play import registration

T0 = TopicPartition("t", 0)


def transitions() -> Transitions:
    do = Transitions(1, ControllerConfig())
    do.state.epoch = 1
    do.state.brokers = {1: registration(1, 1)}
    do.state.add_topic("t", TopicAssignment(bytes(16), {0: ReplicaAssignment((1,))}))
    return do


def test_a_transition_ends_with_its_requests() -> None:
    do = transitions()
    do.set_partition_status([T0], PartitionStatus.NEW)
    steps = do.bring_online([T0])
    order = next(steps)
    state = PartitionState(1, 0, (1,), 1)
    orders = [steps.send(events.PartitionStatesWritten({T0: state}))]
    orders += list(steps)
    assert do.state.leadership[T0] == state
    assert [type(each) for each in (order, *orders)][1:] == [Send, Send]


def test_without_anything_to_do_nobody_is_told() -> None:
    do = transitions()
    assert list(do.elect_leaderless()) == []
    assert list(do.move_replicas([], ReplicaStatus.ONLINE)) == []
