"""Deletions that are refused, fail, wait. The transcripts show those that go well."""

from __future__ import annotations

from dataclasses import replace

from kbroker.controller import events
from kbroker.controller.controller_config import ControllerConfig
from kbroker.controller.state import ReplicaStatus
from kbroker.controller.znodes import TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.reassignments import AlterPartitionReassignmentsRequest
from kbroker.protocol.messages.replication import StopReplicaResponse
from tests.controller.play import Play

T0 = TopicPartition("t", 0)


def deleting(config: ControllerConfig | None = None) -> Play:
    play = Play((1, 2), config)
    play.elect()
    play.create_topic("t", (1, 2))
    play.tell_topics()
    play.answer_all()
    play.marked.add("t")
    play.tell_deletions()
    return play


def test_a_mark_is_removed_where_deletion_is_turned_off() -> None:
    play = deleting(ControllerConfig(delete_topic_enable=False))
    assert not play.marked
    assert not play.machine.state.topics_to_delete
    play.marked.add("t")
    play.elect(2)
    assert not play.marked


def test_a_replica_that_could_not_be_deleted_waits_for_its_broker_to_start_again() -> None:
    play = deleting()
    while play.answers:
        event = play.answers.popleft()
        if isinstance(event, events.StopReplicaAnswered) and event.broker_id == 2:
            failed = StopReplicaResponse.StopReplicaPartitionError(
                topic_name="t", partition_index=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR
            )
            response = StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=[failed])
            event = events.StopReplicaAnswered(2, event.request, response)
        play.tell(event)
    assert play.machine.state.replica_state((T0, 2)) is ReplicaStatus.DELETION_INELIGIBLE
    assert play.machine.state.deletion_ineligible == {"t"}
    play.register(2)
    play.tell_brokers()
    play.answer_all()
    assert not play.topics


def test_a_broker_that_dies_during_a_deletion_delays_it() -> None:
    play = deleting()
    del play.brokers[2]
    play.tell_brokers()
    play.answer_all()
    assert "t" in play.topics
    play.register(2)
    play.tell_brokers()
    play.answer_all()
    assert not play.topics


def test_an_answer_to_an_earlier_request_proves_nothing() -> None:
    play = deleting()
    stop_only = [each for each in play.answers if isinstance(each, events.StopReplicaAnswered)][:2]
    topics = [topic for event in stop_only for topic in event.request.topic_states]
    assert not any(each.delete_partition for topic in topics for each in topic.partition_states)
    for event in stop_only:
        play.tell(event)
    assert play.machine.state.replica_state((T0, 1)) is ReplicaStatus.DELETION_STARTED


def waiting_for_broker_2() -> Play:
    """A topic that is marked, and waits for a broker that is away."""
    play = Play((1, 2, 3, 4))
    play.elect()
    play.create_topic("t", (1, 2, 3))
    play.tell_topics()
    play.answer_all()
    return play


def test_nobody_is_elected_for_a_topic_that_is_to_be_deleted() -> None:
    play = waiting_for_broker_2()
    play.marked.add("t")
    del play.brokers[1]
    play.elect(2)
    play.answer_all()
    assert play.states[T0].leader == -1
    play.register(1)
    play.tell_brokers()
    play.answer_all()
    assert not play.topics


def test_a_move_that_a_deletion_waits_for_still_gets_its_leaders() -> None:
    play = waiting_for_broker_2()
    request = AlterPartitionReassignmentsRequest
    moved = request.ReassignablePartition(partition_index=0, replicas=[4, 2])
    play.tell(events.ReassignmentsCalled(1, request(topics=[request.ReassignableTopic(name="t", partitions=[moved])])))
    play.marked.add("t")
    play.tell_deletions()
    del play.brokers[1]
    play.tell_brokers()
    known = play.states[T0]
    assert known.leader == 2
    play.states[T0] = replace(known, isr=(2, 4), partition_epoch=known.partition_epoch + 1)
    play.tell(events.IsrChangesNotified((T0,)))
    play.answer_all()
    assert not play.topics
