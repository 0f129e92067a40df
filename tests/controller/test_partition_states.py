"""Transitions of partitions: the table, and what each does."""

from __future__ import annotations

import itertools

import pytest

from kbroker.controller.partition_states import VALID_PREVIOUS, PartitionMoves
from kbroker.controller.request_batch import RequestBatch
from kbroker.controller.state import PartitionStatus
from kbroker.controller.znodes import TopicPartition
from tests.controller.play import Play

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(("before", "after"), list(itertools.product(PartitionStatus, PartitionStatus)))
def test_only_the_tables_transitions_happen(before: PartitionStatus, after: PartitionStatus) -> None:
    play = Play((1, 2))
    play.elect()
    state = play.machine.state
    moves = PartitionMoves(state, RequestBatch(state, 1, "PLAINTEXT"))
    state.partition_status[T0] = before
    if after is PartitionStatus.ONLINE:
        return
    moves.set_status([T0], after)
    assert state.status(T0) is (after if before in VALID_PREVIOUS[after] else before)


def test_a_partition_without_a_live_replica_stays_new_until_one_comes() -> None:
    play = Play((1,))
    play.elect()
    play.create_topic("t", (2, 3))
    play.tell_topics()
    assert play.machine.state.status(T0) is PartitionStatus.NEW
    assert not play.states
    play.register(3)
    play.tell_brokers()
    assert play.machine.state.status(T0) is PartitionStatus.ONLINE
    assert (play.states[T0].leader, play.states[T0].isr) == (3, (3,))


def test_a_state_of_a_later_controller_is_left_alone() -> None:
    play = Play((1, 2))
    play.elect()
    play.create_topic("t", (2, 1))
    play.tell_topics()
    theirs = play.states[T0] = play.states[T0].__class__(2, 9, (2, 1), 5, 7)
    del play.brokers[2]
    play.tell_brokers()
    assert play.states[T0] == theirs
    assert play.machine.state.status(T0) is PartitionStatus.OFFLINE


def test_the_default_lets_all_topics_elect_uncleanly_and_a_topic_may_forbid_it() -> None:
    for override, leader in ({}, 1), ({"unclean.leader.election.enable": "false"}, -1):
        play = Play((1, 2))
        play.config.unclean_leader_election_enable = True
        play.elect()
        play.create_topic("t", (2, 1))
        play.configs["t"] = override
        play.tell_topics()
        alone = play.states[T0].__class__(2, 0, (2,), 1, 0)
        play.states[T0] = play.machine.state.leadership[T0] = alone
        del play.brokers[2]
        play.tell_brokers()
        assert play.states[T0].leader == leader
