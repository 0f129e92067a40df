"""The automatic rebalance, and unclean elections turned on while nobody leads."""

from __future__ import annotations

from dataclasses import replace

from kbroker.controller import events
from kbroker.controller.znodes import TopicPartition
from tests.controller.play import Play

T0 = TopicPartition("t", 0)


def cluster(*replicas: tuple[int, ...]) -> Play:
    play = Play((1, 2))
    play.elect()
    play.create_topic("t", *replicas)
    play.tell_topics()
    play.answer_all()
    return play


def lead_elsewhere(play: Play, partition: TopicPartition, leader: int, isr: tuple[int, ...]) -> None:
    known = replace(play.states[partition], leader=leader, isr=isr)
    play.states[partition] = play.machine.state.leadership[partition] = known


def test_a_tenth_led_elsewhere_is_borne_and_more_is_not() -> None:
    play = cluster(*([(1, 2)] * 10))
    lead_elsewhere(play, T0, 2, (1, 2))
    play.tell(events.RebalanceDue())
    assert play.states[T0].leader == 2
    lead_elsewhere(play, TopicPartition("t", 1), 2, (1, 2))
    play.tell(events.RebalanceDue())
    assert {state.leader for state in play.states.values()} == {1}


def test_a_preferred_leader_out_of_sync_is_not_forced() -> None:
    play = cluster((1, 2))
    lead_elsewhere(play, T0, 2, (2,))
    play.tell(events.RebalanceDue())
    assert play.states[T0].leader == 2


def test_turning_unclean_elections_on_helps_at_once() -> None:
    for topic in "t", None:
        play = cluster((2, 1))
        lead_elsewhere(play, T0, 2, (2,))
        del play.brokers[2]
        play.tell_brokers()
        assert play.states[T0].leader == -1
        play.configs["t"] = {"unclean.leader.election.enable": "true"}
        play.tell(events.UncleanElectionEnabled(topic))
        assert (play.states[T0].leader, play.states[T0].leader_recovery_state) == (1, 1)
