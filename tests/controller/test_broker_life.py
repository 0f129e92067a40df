"""Brokers that change: what `BrokerLife` makes of a listing. The transcripts show the whole of it."""

from __future__ import annotations

from dataclasses import replace

from kbroker.controller import events
from kbroker.controller.znodes import Endpoint, TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.replication import (
    ControlledShutdownRequest,
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


def test_a_broker_without_the_listener_gets_no_channel() -> None:
    play = cluster()
    play.register(3)
    play.brokers[3] = replace(play.brokers[3], endpoints=(Endpoint("OTHER", "h", 1),))
    play.tell_brokers()
    assert "open channel to 3" not in play.text()


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
