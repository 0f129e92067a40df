"""Transitions of replicas: the table, and the ISR they leave."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from kbroker.controller.replica_states import VALID_PREVIOUS, ReplicaMoves
from kbroker.controller.request_batch import RequestBatch
from kbroker.controller.state import ReplicaStatus
from kbroker.controller.znodes import PartitionState, ReplicaAssignment, TopicAssignment, TopicPartition
from tests.controller.play import Play

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(("before", "after"), list(itertools.product(ReplicaStatus, ReplicaStatus)))
def test_only_the_tables_transitions_happen(before: ReplicaStatus, after: ReplicaStatus) -> None:
    play = Play((1, 2))
    play.elect()
    state = play.machine.state
    state.add_topic("t", TopicAssignment(None, {0: ReplicaAssignment((1, 2))}))
    if before is not ReplicaStatus.NON_EXISTENT:
        state.replica_status[T0, 2] = before
    moves = ReplicaMoves(state, RequestBatch(state, 1, "PLAINTEXT"))
    assert list(moves.move([(T0, 2)], after)) == []
    assert state.replica_state((T0, 2)) is (after if before in VALID_PREVIOUS[after] else before)


def go_offline(play: Play, gone: int) -> list[TopicPartition]:
    """Play the transition; the partitions whose ISR it says that the replica has left."""
    state = play.machine.state
    moves = ReplicaMoves(state, RequestBatch(state, 1, "PLAINTEXT"))
    steps = moves.move([(T0, gone)], ReplicaStatus.OFFLINE)
    result = None
    while True:
        try:
            result = play.carry_out(steps.send(result))
        except StopIteration as done:
            return list(done.value.get(gone, []))


@pytest.mark.parametrize(
    ("isr", "leader", "gone", "new_isr", "new_leader"),
    [
        ((1, 2), 1, 2, (1,), 1),
        ((1, 2), 1, 1, (2,), -1),
        ((1,), 1, 1, (1,), -1),
        ((1,), 1, 2, (1,), 1),
    ],
)
def test_an_offline_replica_leaves_the_isr_but_where_nobody_else_of_it_is_there(
    isr: tuple[int, ...], leader: int, gone: int, new_isr: tuple[int, ...], new_leader: int
) -> None:
    play = Play((1, 2))
    play.elect()
    play.create_topic("t", (1, 2))
    play.tell_topics()
    state = play.machine.state
    known = PartitionState(leader, 3, isr, 1, 0)
    play.states[T0] = state.leadership[T0] = known
    left = go_offline(play, gone)
    assert left == [T0] * (new_isr != isr)
    assert (play.states[T0].isr, play.states[T0].leader) == (new_isr, new_leader)
    assert play.states[T0].leader_epoch == (3 if known.isr == new_isr and leader == new_leader else 4)


def test_replicas_in_sync_that_are_all_gone_stay_in_the_isr_and_the_first_that_is_back_leads() -> None:
    play = Play((1, 2, 3))
    play.create_topic("t", (1, 2, 3))
    play.elect(3)
    play.tell_topics()
    del play.brokers[1]
    play.tell_brokers()
    assert play.states[T0].isr == (2, 3)
    del play.brokers[2], play.brokers[3]
    play.register(4)
    play.elect(4)
    assert (play.states[T0].leader, play.states[T0].isr) == (-1, (2, 3))
    play.register(1)
    play.tell_brokers()
    assert (play.states[T0].leader, play.states[T0].isr) == (-1, (2, 3)), "it was not in sync"
    play.register(3)
    play.tell_brokers()
    assert (play.states[T0].leader, play.states[T0].isr) == (3, (3,))


def test_a_replica_in_sync_whose_log_directory_is_lost_is_not_there() -> None:
    play = Play((1, 2, 3))
    play.create_topic("t", (1, 2))
    play.elect(3)
    play.tell_topics()
    play.machine.state.offline_partitions[2] = {T0}
    del play.brokers[1]
    play.tell_brokers()
    assert (play.states[T0].leader, play.states[T0].isr) == (-1, (1, 2))


def test_who_is_no_replica_any_more_leaves_the_isr_and_inherits_nothing() -> None:
    play = Play((1, 2, 3))
    play.create_topic("t", (1, 2))
    play.elect(3)
    play.tell_topics()
    del play.brokers[1], play.brokers[2]
    play.tell_brokers()
    known = PartitionState(-1, 3, (1, 4), 1, play.states[T0].partition_epoch)
    play.states[T0] = play.machine.state.leadership[T0] = known
    play.machine.state.replica_status[T0, 4] = ReplicaStatus.ONLINE
    go_offline(play, 1)
    assert play.states[T0].isr == (1, 4), "nobody of its replicas is there"
    go_offline(play, 4)
    assert play.states[T0].isr == (1,)
    play.states[T0] = play.machine.state.leadership[T0] = replace(
        known, partition_epoch=play.states[T0].partition_epoch
    )
    play.register(4)
    play.tell_brokers()
    go_offline(play, 1)
    assert play.states[T0].isr == (1, 4), "who is there is a stranger"
