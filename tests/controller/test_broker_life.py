"""Brokers that change: what `BrokerLife` makes of a listing. The transcripts show the whole of it."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace

import pytest

from kbroker.controller import events
from kbroker.controller.controller_config import ControllerConfig
from kbroker.controller.znodes import Endpoint, TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.replication import (
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    UpdateMetadataRequest,
)
from tests.controller.play import Play

T0 = TopicPartition("t", 0)


def cluster() -> Play:
    play = Play((1, 2))
    play.elect()
    play.create_topic("t", (1, 2))
    play.tell_topics()
    play.answer_all()
    play.text()
    play.sent.clear()
    return play


def test_the_same_listing_twice_changes_nothing() -> None:
    play = cluster()
    play.tell_brokers()
    assert play.text() == "brokers listed: 1@11 2@12"


def test_other_listeners_move_the_channel_and_are_told() -> None:
    play = cluster()
    moved = replace(play.brokers[2], endpoints=(Endpoint("PLAINTEXT", "elsewhere", 1),))
    play.brokers[2] = moved
    play.tell_brokers()
    assert "open channel to 2 at elsewhere:1" in play.text()
    assert all(isinstance(order.request, UpdateMetadataRequest) for order in play.sent)


def on_other_listeners(play: Play, broker_id: int) -> None:
    """The broker's registration has none of ours any more; the epoch stays."""
    play.brokers[broker_id] = replace(play.brokers[broker_id], endpoints=(Endpoint("OTHER", "h", 1),))


def test_a_broker_without_our_listener_counts_as_away_until_it_has_one(caplog: pytest.LogCaptureFixture) -> None:
    play = cluster()
    play.register(3)
    on_other_listeners(play, 3)
    play.tell_brokers()
    play.tell_brokers()
    assert [each.getMessage() for each in caplog.records if "broker 3" in each.getMessage()] == [
        "broker 3 has no listener PLAINTEXT: it counts as away until it has one like the other brokers"
    ]
    assert not play.machine.state.is_live(3)
    play.create_topic("u", (3, 2))
    play.tell_topics()
    assert play.states[TopicPartition("u", 0)].leader == 2
    play.register(3)
    play.tell_brokers()
    assert "open channel to 3" in play.text()
    assert play.machine.state.is_live(3)


def test_a_leader_that_loses_our_listener_is_followed_by_another() -> None:
    play = cluster()
    on_other_listeners(play, 1)
    play.tell_brokers()
    assert (play.states[T0].leader, play.states[T0].isr) == (2, (2,))


def test_a_new_controller_leaves_out_whom_it_cannot_reach() -> None:
    play = cluster()
    on_other_listeners(play, 1)
    play.elect(2)
    assert play.states[T0].leader == 2
    assert "open channel to 1" not in play.text()


def test_a_broker_needs_the_controllers_listener_and_that_of_the_followers() -> None:
    play = Play((1, 2), ControllerConfig(control_plane_listener_name="CONTROL"))
    control, plain = Endpoint("CONTROL", "control", 1), Endpoint("PLAINTEXT", "plain", 2)
    play.brokers[1] = replace(play.brokers[1], endpoints=(control, plain))
    play.elect()
    assert set(play.machine.state.brokers) == {1}
    play.create_topic("t", (1,))
    play.tell_topics()
    told = next(order.request for order in play.sent if isinstance(order.request, LeaderAndIsrRequest))
    assert [(each.host_name, each.port) for each in told.live_leaders] == [("plain", 2)]
    assert "open channel to 1 at control:1" in play.text()


def test_a_refused_leader_and_isr_is_left_at_that() -> None:
    play = cluster()
    answer = LeaderAndIsrResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, topics=[])
    play.register(3)
    play.tell_brokers()
    request = next(order.request for order in play.sent if order.broker_id == 2)
    play.tell(events.LeaderAndIsrAnswered(2, request, answer))
    assert not play.machine.state.offline_partitions


def test_an_answer_to_an_earlier_life_of_the_broker_says_nothing_of_this_one() -> None:
    play = cluster()
    play.lost_log_dirs[2] = {T0}
    play.tell(events.LogDirsFailed(frozenset({2})))
    late = play.answers.popleft()
    play.register(2)
    play.tell_brokers()
    play.tell(late)
    assert not play.machine.state.offline_partitions


def test_a_disk_that_is_back_is_online_again() -> None:
    play = cluster()
    play.lost_log_dirs[2] = {T0}
    play.tell(events.LogDirsFailed(frozenset({2}), ("/log_dir_event_notification/x",)))
    play.answer_all()
    assert play.machine.state.offline_partitions == {2: {T0}}
    assert play.states[T0].isr == (1,)
    play.lost_log_dirs.clear()
    play.tell(events.LogDirsFailed(frozenset({2})))
    play.answer_all()
    assert not play.machine.state.offline_partitions


def test_an_unknown_broker_cannot_shut_down() -> None:
    play = cluster()
    for epoch, code in (-1, ErrorCode.BROKER_NOT_AVAILABLE), (5, ErrorCode.UNKNOWN_SERVER_ERROR):
        request = ControlledShutdownRequest(broker_id=9, broker_epoch=epoch)
        play.tell(events.ControlledShutdownCalled(1, request, 3))
        assert play.responses[1].error_code == code


def test_a_broker_that_died_while_shutting_down_counts_again_when_it_is_back() -> None:
    play = cluster()
    request = ControlledShutdownRequest(broker_id=2, broker_epoch=play.brokers[2].epoch)
    play.tell(events.ControlledShutdownCalled(1, request, 3))
    assert not play.machine.state.is_live(2)
    play.register(2)
    play.tell_brokers()
    assert play.machine.state.is_live(2)


def test_a_broker_that_fell_behind_is_told_everything_anew() -> None:
    play = cluster()
    play.create_topic("u", (2, 1))
    play.tell_topics()
    play.answer_all()
    play.sent.clear()
    play.tell(events.BrokerFellBehind(2))
    told = [order.request for order in play.sent if order.broker_id == 2]
    assert isinstance(told[0], UpdateMetadataRequest), "the leaders' addresses come first"
    known = {topic.topic_name for each in told if isinstance(each, LeaderAndIsrRequest) for topic in each.topic_states}
    assert known == {"t", "u"}


def test_a_deletion_that_a_broker_never_heard_of_is_asked_for_again() -> None:
    play = cluster()
    play.marked.add("t")
    play.tell_deletions()
    play.answers = deque(each for each in play.answers if getattr(each, "broker_id", 0) != 2)
    play.answer_all()
    assert "t" in play.topics
    play.tell(events.BrokerFellBehind(2))
    play.answer_all()
    assert "t" not in play.topics


@pytest.mark.slow
def test_a_broker_back_in_a_large_cluster_is_told_in_few_requests() -> None:
    play = Play(tuple(range(1, 31)))
    play.elect()
    play.create_topic("t", *((1 + number % 30, 1 + (number + 1) % 30) for number in range(2_400)))
    play.tell_topics()
    play.answer_all()
    play.sent.clear()
    play.elect(2)
    sent = Counter((type(order.request).__name__, order.broker_id) for order in play.sent)
    assert {sent["LeaderAndIsrRequest", each] for each in play.brokers} == {1}
    assert {sent["UpdateMetadataRequest", each] for each in play.brokers} == {1 + 1}
    sizes = [sum(len(topic.partition_states) for topic in order.request.topic_states) for order in play.sent]
    assert max(sizes) == 2_400
