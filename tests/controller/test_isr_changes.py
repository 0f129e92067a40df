"""AlterPartition: Kafka's checks in Kafka's order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbroker.controller import events
from kbroker.controller.isr_changes import WantedChange, judge
from kbroker.controller.znodes import PartitionState, TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.replication import AlterPartitionRequest
from tests.controller.play import Play

T0 = TopicPartition("t", 0)
WANTED = WantedChange(T0, leader=1, leader_epoch=0, isr=(1,), leader_recovery_state=0, partition_epoch=0)


@pytest.fixture
def play() -> Play:
    play = Play((1, 2, 3))
    play.elect()
    play.create_topic("t", (1, 2, 3))
    play.tell_topics()
    return play


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"partition": TopicPartition("t", 9)}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ({"isr": ()}, ErrorCode.INVALID_REQUEST),
        ({"isr": (2,)}, ErrorCode.INVALID_REQUEST),
        ({"isr": (1, 9)}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_changes_that_are_refused(play: Play, changes: dict[str, object], code: ErrorCode) -> None:
    assert judge(play.machine.state, replace(WANTED, **changes), 3) is code  # type: ignore[arg-type]


def test_a_leader_about_to_stop_takes_in_others_and_is_taken_in_nowhere(play: Play) -> None:
    state = play.machine.state
    state.leadership[T0] = replace(state.leadership[T0], isr=(1,))
    state.shutting_down.add(1)
    granted = judge(state, replace(WANTED, isr=(1, 2)), 3)
    assert isinstance(granted, PartitionState)
    assert granted.isr == (1, 2)
    state.shutting_down.add(3)
    assert judge(state, replace(WANTED, isr=(1, 2, 3)), 3) is ErrorCode.INELIGIBLE_REPLICA


def test_a_follower_that_was_heard_in_an_earlier_life_only_is_not_taken_in(play: Play) -> None:
    state = play.machine.state
    state.leadership[T0] = replace(state.leadership[T0], isr=(1,))
    wanted = replace(WANTED, isr=(1, 2))
    epoch = state.brokers[2].epoch
    assert isinstance(judge(state, replace(wanted, broker_epochs={1: -1, 2: epoch}), 3), PartitionState)
    assert judge(state, replace(wanted, broker_epochs={2: epoch - 1}), 3) is ErrorCode.INELIGIBLE_REPLICA


def test_old_versions_have_no_code_of_their_own_for_dead_brokers(play: Play) -> None:
    assert judge(play.machine.state, replace(WANTED, isr=(1, 9)), 1) is ErrorCode.OPERATION_NOT_ATTEMPTED


def test_a_change_that_was_made_already_is_granted_again(play: Play) -> None:
    known = play.machine.state.leadership[T0]
    again = replace(WANTED, isr=known.isr)
    assert judge(play.machine.state, again, 3) is known


def test_the_leader_epoch_stays(play: Play) -> None:
    judged = judge(play.machine.state, WANTED, 3)
    assert judged == PartitionState(1, 0, (1,), 1, 0)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_version_is_understood_and_answered(play: Play, version: int) -> None:
    request = AlterPartitionRequest
    changed = request.PartitionData(
        partition_index=0,
        leader_epoch=0,
        partition_epoch=0,
        **({"new_isr_with_epochs": [request.BrokerState(broker_id=1)]} if version >= 3 else {"new_isr": [1]}),
    )
    topic_id = play.topics["t"].topic_id
    topic = {"topic_id": topic_id} if version >= 2 else {"topic_name": "t"}
    asked = request(
        broker_id=1, broker_epoch=play.brokers[1].epoch, topics=[request.TopicData(partitions=[changed], **topic)]
    )
    play.tell(events.AlterPartitionCalled(1, asked, version))
    answer = play.responses[1].topics[0]
    partition = answer.partitions[0]
    assert (partition.error_code, list(partition.isr), partition.partition_epoch) == (ErrorCode.NONE, [1], 1)
    assert (answer.topic_id == topic_id) if version >= 2 else (answer.topic_name == "t")


def test_unknown_topic_ids_and_stale_brokers_are_told(play: Play) -> None:
    request = AlterPartitionRequest
    changed = request.PartitionData(partition_index=0, leader_epoch=0, partition_epoch=0)
    topics = [request.TopicData(topic_id=b"x" * 16, partitions=[changed])]
    epoch = play.brokers[1].epoch
    play.tell(events.AlterPartitionCalled(1, request(broker_id=1, broker_epoch=epoch, topics=topics), 3))
    assert play.responses[1].topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    play.tell(events.AlterPartitionCalled(2, request(broker_id=1, broker_epoch=epoch + 1, topics=topics), 3))
    assert play.responses[2].error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_notified_change_is_read_and_told_to_all(play: Play) -> None:
    play.states[T0] = theirs = PartitionState(1, 0, (1, 2), 1, 4)
    play.sent.clear()
    play.tell(events.IsrChangesNotified((T0, TopicPartition("unknown", 0)), ("/isr_change_notification/x",)))
    assert play.machine.state.leadership[T0] == theirs
    assert [order.broker_id for order in play.sent] == [1, 2, 3]


def test_a_change_is_written_under_the_present_controllers_epoch(play: Play) -> None:
    play.elect(2)
    judged = judge(play.machine.state, WANTED, 3)
    assert isinstance(judged, PartitionState)
    assert (play.states[T0].controller_epoch, judged.controller_epoch) == (1, 2)
