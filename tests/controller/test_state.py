"""What the controller knows, and the invariants that its check asserts."""

from __future__ import annotations

from collections.abc import Sized
from itertools import pairwise

import pytest

from kbroker.controller import state as state_module
from kbroker.controller.state import ControllerState, PartitionStatus
from kbroker.controller.znodes import PartitionState, ReplicaAssignment, TopicAssignment, TopicPartition
from tests.controller.play import registration

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def state() -> ControllerState:
    state = ControllerState()
    state.epoch = 1
    state.brokers = {1: registration(1, 1), 2: registration(2, 2)}
    state.add_topic("t", TopicAssignment(b"i" * 16, {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 3))}))
    state.leadership[T0] = PartitionState(1, 0, (1, 2), 1)
    return state


def test_partitions_are_found_by_broker_also_after_a_move(state: ControllerState) -> None:
    assert state.partitions_on(2) == [T0, T1]
    state.set_assignment(T0, ReplicaAssignment((1, 3)))
    assert state.partitions_on(2) == [T1]
    assert set(state.replicas_on((3, 1))) == {(T0, 1), (T0, 3), (T1, 3)}
    assert state.holders() == {1, 2, 3}
    state.check()


def test_a_replica_is_online_when_its_broker_and_its_disk_are(state: ControllerState) -> None:
    assert state.online((1, 2, 3), T0) == [1, 2]
    state.offline_partitions[1] = {T0}
    assert state.online((1, 2, 3), T0) == [2]
    assert state.is_online(1, T1)
    state.shutting_down.add(2)
    assert state.online((1, 2, 3), T0) == []


def test_only_unknown_partitions_of_a_topic_are_new(state: ControllerState) -> None:
    wider = {number: ReplicaAssignment((1, 2)) for number in range(3)}
    assert state.add_topic("t", TopicAssignment(None, wider)) == [TopicPartition("t", 2)]
    assert state.topic_id("t") == b"i" * 16


def test_a_removed_topic_leaves_nothing(state: ControllerState) -> None:
    state.topics_to_delete.add("t")
    state.set_status(T0, PartitionStatus.ONLINE)
    state.remove_topic("t")
    for left in (state.assignments, state.leadership, state.partition_status, state.topics_to_delete):
        assert not left
    assert state.partitions_on(1) == []
    assert state.topic_id("t") == bytes(16)
    state.check()


def test_what_a_large_cluster_leaves_is_forgotten_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "FORGOTTEN_AT_ONCE", 7)
    state = ControllerState()
    for name in "abc":
        topic = TopicAssignment(name.encode() * 16, {number: ReplicaAssignment((1, 2)) for number in range(10)})
        for each in state.add_topic(name, topic):
            state.take(each, PartitionState(1, 0, (1, 2), 1))
            state.set_status(each, PartitionStatus.NEW)
            state.reassigning.add(each)
    state.offline_partitions[2] = set(state.partitions())

    def entries() -> int:
        tables: list[Sized] = [state.leadership, state.partition_status, state.leaderless, state.reassigning]
        tables += [*state.offline_partitions.values(), *state.assignments.values()]
        return sum(map(len, [*tables, state.partitions_on(1), state.partitions_on(2)]))

    left = [entries()]
    left += [entries() for _ in state.forget()]
    left.append(entries())
    assert left[0] == 8 * 30
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= 7
    tables = ("assignments", "topic_ids", "_names", "topic_versions", "_on_broker")
    assert not any(getattr(state, name) for name in tables)


@pytest.mark.parametrize(
    "wrong",
    [
        PartitionState(3, 0, (1, 2), 1),
        PartitionState(1, 0, (), 1),
        PartitionState(1, 0, (1, 1), 1),
        PartitionState(1, 0, (1,), 2),
    ],
)
def test_check_finds_a_wrong_state(state: ControllerState, wrong: PartitionState) -> None:
    state.check()
    state.leadership[T0] = wrong
    with pytest.raises(AssertionError, match="t-0"):
        state.check()


def test_a_partition_whose_leader_is_taken_away_waits_for_an_election(state: ControllerState) -> None:
    state.set_status(T0, PartitionStatus.ONLINE)
    state.take(T0, PartitionState(1, 0, (1,), 1))
    assert T0 not in state.leaderless
    state.take(T0, PartitionState(-1, 1, (1,), 1))
    assert state.status(T0) is PartitionStatus.OFFLINE
    assert T0 in state.leaderless
