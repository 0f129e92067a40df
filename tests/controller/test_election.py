"""Who becomes leader, by strategy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.controller.election import Elected, Strategy, elect, needs_unclean
from kbroker.controller.znodes import PartitionState, ReplicaAssignment

STATE = PartitionState(leader=1, leader_epoch=4, isr=(1, 2, 3), controller_epoch=1, partition_epoch=7)
REPLICAS = ReplicaAssignment((1, 2, 3, 4))


def hold(strategy: Strategy, state: PartitionState, online: set[int], **more: object) -> Elected | None:
    assignment = more.pop("assignment", REPLICAS)
    return elect(strategy, state, assignment, online.__contains__, controller_epoch=9, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("isr", "online", "leader", "new_isr"),
    [
        ((1, 2, 3), {2, 3, 4}, 2, (2, 3)),
        ((3, 2), {2, 3, 4}, 2, (3, 2)),
        ((3,), {2, 3}, 3, (3,)),
        ((1,), {2, 3}, None, None),
        ((1, 2), set(), None, None),
    ],
)
def test_an_offline_partition_is_led_by_the_first_replica_in_sync(
    isr: tuple[int, ...], online: set[int], leader: int | None, new_isr: tuple[int, ...] | None
) -> None:
    elected = hold(Strategy.OFFLINE, replace(STATE, isr=isr), online)
    if leader is None:
        assert elected is None
    else:
        assert elected is not None
        assert (elected.state.leader, elected.state.isr) == (leader, new_isr)
        assert (elected.state.leader_epoch, elected.state.controller_epoch) == (5, 9)
        assert elected.recipients == tuple(each for each in REPLICAS.replicas if each in online)


def test_unclean_takes_the_first_that_lives_and_makes_it_recover() -> None:
    state = replace(STATE, isr=(1,))
    elected = hold(Strategy.OFFLINE, state, {3, 4}, unclean_allowed=True)
    assert elected is not None
    assert (elected.state.leader, elected.state.isr, elected.state.leader_recovery_state) == (3, (3,), 1)
    assert hold(Strategy.UNCLEAN, state, {3, 4}) == elected
    assert hold(Strategy.UNCLEAN, state, set()) is None


def test_a_clean_election_keeps_the_recovery_state() -> None:
    elected = hold(Strategy.OFFLINE, replace(STATE, leader_recovery_state=1), {2}, unclean_allowed=True)
    assert elected is not None
    assert elected.state.leader_recovery_state == 1


def test_preferred_means_the_first_replica_or_nobody() -> None:
    elected = hold(Strategy.PREFERRED, replace(STATE, leader=2), {1, 2, 3})
    assert elected is not None
    assert (elected.state.leader, elected.state.isr, elected.recipients) == (1, (1, 2, 3), (1, 2, 3, 4))
    assert hold(Strategy.PREFERRED, STATE, {2, 3}) is None
    assert hold(Strategy.PREFERRED, replace(STATE, isr=(2, 3), leader=2), {1, 2, 3}) is None


def test_a_reassignment_elects_in_its_target() -> None:
    moving = ReplicaAssignment((4, 3, 1), (4,), (1,))
    elected = hold(Strategy.REASSIGN, replace(STATE, isr=(1, 3, 4)), {1, 3}, assignment=moving)
    assert elected is not None
    assert (elected.state.leader, elected.state.isr, elected.recipients) == (3, (1, 3, 4), (4, 3))


def test_a_controlled_shutdown_leaves_the_isr_to_those_who_stay() -> None:
    elected = hold(Strategy.CONTROLLED_SHUTDOWN, STATE, {2, 3}, serving={1, 2, 3}, shutting_down={1})
    assert elected is not None
    assert (elected.state.leader, elected.state.isr, elected.recipients) == (2, (2, 3), (1, 2, 3))
    alone = replace(STATE, isr=(1,))
    assert hold(Strategy.CONTROLLED_SHUTDOWN, alone, set(), serving={1}, shutting_down={1}) is None


@pytest.mark.slow
@given(
    st.sampled_from(Strategy),
    st.permutations((1, 2, 3, 4)),
    st.sets(st.integers(1, 4)),
    st.lists(st.integers(1, 4), min_size=1, unique=True).map(tuple),
)
def test_a_leader_is_always_in_its_isr_and_the_epoch_one_higher(
    strategy: Strategy, replicas: list[int], online: set[int], isr: tuple[int, ...]
) -> None:
    state = replace(STATE, isr=isr, leader=isr[0])
    elected = hold(strategy, state, online, assignment=ReplicaAssignment(tuple(replicas)), serving=online)
    if elected is not None:
        assert elected.state.leader in elected.state.isr
        assert elected.state.leader_epoch == 5
        assert elected.state.partition_epoch == state.partition_epoch
        assert strategy is Strategy.UNCLEAN or set(elected.state.isr) <= set(isr)


def test_unclean_is_only_thought_of_when_nobody_in_sync_lives() -> None:
    assert needs_unclean(STATE, {4}.__contains__)
    assert not needs_unclean(STATE, {3}.__contains__)
