"""Moves of replicas that are interrupted, replaced, listed. The transcripts show those that go well."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest

from kbroker.controller import events
from kbroker.controller.instructions import Instruction, WriteTopics
from kbroker.controller.reassignment import list_reassignments
from kbroker.controller.state import PartitionStatus
from kbroker.controller.znode_operations import TooLarge
from kbroker.controller.znodes import PartitionState, ReplicaAssignment, TopicPartition
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
)
from kbroker.protocol.messages.replication import StopReplicaRequest
from kbroker.replica.turns import at_once
from tests.controller.play import Play

T0 = TopicPartition("t", 0)


def moving(target: list[int]) -> Play:
    play = Play((1, 2, 3, 4))
    play.elect()
    play.create_topic("t", (1, 2))
    play.tell_topics()
    move(play, target)
    play.answer_all()
    return play


def led_by_the_added(play: Play, isr: tuple[int, ...]) -> None:
    """Broker 3, which the move added, has become the leader."""
    known = play.states[T0]
    play.states[T0] = PartitionState(3, known.leader_epoch + 1, isr, 1, known.partition_epoch + 1)
    play.tell(events.IsrChangesNotified((T0,)))


def move(play: Play, *targets: list[int] | None) -> list[ErrorCode]:
    """Ask for targets of the topic's first partitions; what is answered for each."""
    request = AlterPartitionReassignmentsRequest
    moved = [
        request.ReassignablePartition(partition_index=each, replicas=target) for each, target in enumerate(targets)
    ]
    asked = request(topics=[request.ReassignableTopic(name="t", partitions=moved)])
    play.tell(events.ReassignmentsCalled(1, asked))
    return [each.error_code for each in play.responses[1].responses[0].partitions]


def test_a_move_is_listed_while_it_lasts() -> None:
    play = moving([3, 2])
    everything = ListPartitionReassignmentsRequest(timeout_ms=1, topics=None)
    listed = at_once(list_reassignments(play.machine.state, everything)).topics[0]
    each = listed.partitions[0]
    assert (listed.name, each.replicas, each.adding_replicas, each.removing_replicas) == ("t", [3, 2, 1], [3], [1])
    asked = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(name="t", partition_indexes=[1])
    other = ListPartitionReassignmentsRequest(timeout_ms=1, topics=[asked])
    steps = 1_000
    asked.partition_indexes = [1] * steps
    listing = list_reassignments(play.machine.state, other)
    for _ in range(steps):
        next(listing)  # others have their turns in between
    assert list(at_once(listing).topics) == []


def in_sync(play: Play, *partitions: TopicPartition) -> None:
    """What was added follows by now."""
    for each in partitions:
        known = play.states[each]
        replicas = play.topics["t"].partitions[each.partition].replicas
        play.states[each] = replace(known, isr=tuple(sorted(replicas)), partition_epoch=known.partition_epoch + 1)
    play.tell(events.IsrChangesNotified(partitions))
    play.answer_all()


def test_a_topics_node_is_written_once_for_all_moves_that_begin_and_once_for_those_that_end_together() -> None:
    play = Play((1, 2, 3, 4))
    play.elect()
    play.create_topic("t", *((1, 2),) * 5)
    play.tell_topics()
    moved, reordered = [TopicPartition("t", each) for each in (0, 1, 3)], TopicPartition("t", 2)
    before = dict(play.states)
    play.text()
    codes = move(play, [3, 2], [3, 4], [2, 1], [4, 1], [9, 1])
    assert codes == [ErrorCode.NONE] * 4 + [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert play.text().count("write topics") == 1
    play.answer_all()
    assert play.topics["t"].partitions == {
        0: ReplicaAssignment((3, 2, 1), (3,), (1,)),
        1: ReplicaAssignment((3, 4, 1, 2), (3, 4), (1, 2)),
        2: ReplicaAssignment((2, 1)),
        3: ReplicaAssignment((4, 1, 2), (4,), (2,)),
        4: ReplicaAssignment((1, 2)),
    }
    assert play.machine.state.reassigning == set(moved)
    bumped = {each: play.states[each].leader_epoch - before[each].leader_epoch for each in before}
    assert bumped == dict.fromkeys([*moved, reordered], 1) | {TopicPartition("t", 4): 0}
    play.text()
    in_sync(play, *moved)
    text = play.text()
    assert text.count("write topics") == 1
    assert "tell 1 StopReplica t-0 delete; t-1 delete" in text
    assert [play.topics["t"].partitions[each].replicas for each in range(5)] == [(3, 2), (3, 4), (2, 1), (4, 1), (1, 2)]
    assert [(play.states[each].leader, set(play.states[each].isr)) for each in moved] == [
        (3, {2, 3}),
        (3, {3, 4}),
        (1, {1, 4}),
    ]
    assert not play.machine.state.reassigning


def test_moves_that_do_not_fit_into_the_topics_node_are_refused_and_those_that_do_begin() -> None:
    class Full(Play):
        def carry_out(self, instruction: Instruction) -> events.Result | None:
            topic = isinstance(instruction, WriteTopics) and instruction.topics.get("t")
            if topic and len(topic.partitions[1].replicas) > 2:
                return events.Failed(TooLarge("1,048,577 bytes"))
            return super().carry_out(instruction)

    play = Full((1, 2, 3))
    play.elect()
    play.create_topic("other", (1, 2))
    play.create_topic("t", (1, 2), (1, 2))
    play.tell_topics()
    request = AlterPartitionReassignmentsRequest
    moved = [request.ReassignablePartition(partition_index=each, replicas=[3, 2]) for each in (0, 1)]
    play.tell(
        events.ReassignmentsCalled(
            1,
            request(
                topics=[
                    request.ReassignableTopic(name="t", partitions=moved),
                    request.ReassignableTopic(name="other", partitions=moved[:1]),
                ]
            ),
        )
    )
    full, other = play.responses[1].responses
    assert [each.error_code for each in full.partitions] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert "The move does not fit into the topic's znode: 1,048,577 bytes" in full.partitions[1].error_message
    assert [each.error_code for each in other.partitions] == [ErrorCode.NONE]
    assert play.machine.state.reassigning == {T0, TopicPartition("other", 0)}
    assert play.machine.state.replicas(TopicPartition("t", 1)) == (1, 2)


def test_moves_taken_back_together_end_what_each_had_added() -> None:
    play = Play((1, 2, 3, 4))
    play.elect()
    play.create_topic("t", (1, 2), (2, 1), (1, 2))
    play.tell_topics()
    move(play, [3, 4], [3, 4], [3, 4])
    play.answer_all()
    led_by_the_added(play, (3, 2))
    play.text()
    assert move(play, None, None) == [ErrorCode.NONE] * 2
    play.answer_all()
    assert play.text().count("write topics") == 2, "one to take them back, one when that is over"
    partitions = play.topics["t"].partitions
    assert [partitions[each].replicas for each in range(3)] == [(1, 2), (2, 1), (3, 4, 1, 2)]
    assert (play.states[T0].leader, play.states[T0].isr) == (2, (2,))
    assert play.states[TopicPartition("t", 1)].leader == 2
    assert play.machine.state.reassigning == {T0, TopicPartition("t", 2)}, "broker 1 is not in sync yet"


def test_another_target_replaces_a_move_and_drops_what_it_had_added() -> None:
    play = moving([3, 2])
    play.text()
    move(play, [4, 2])
    assert play.topics["t"].partitions[0] == ReplicaAssignment((4, 2, 1), (4,), (1,))
    assert "tell 3 StopReplica t-0 delete" in play.text()


def test_a_new_controller_finishes_a_move() -> None:
    play = moving([3, 2])
    known = play.states[T0]
    play.states[T0] = PartitionState(1, known.leader_epoch, (1, 2, 3), 1, known.partition_epoch + 1)
    play.elect(2)
    play.answer_all()
    assert play.topics["t"].partitions[0] == ReplicaAssignment((3, 2))
    assert set(play.states[T0].isr) == {2, 3}
    assert play.states[T0].leader == 3
    assert not play.machine.state.reassigning


def taken_back_on_paper(isr: tuple[int, ...]) -> Play:
    """The controller died when it had written that the move is taken back, and nothing else."""
    play = moving([3, 2])
    led_by_the_added(play, isr)
    topic = play.topics["t"]
    play.topics["t"] = replace(topic, partitions={0: ReplicaAssignment((1, 2))}, version=topic.version + 1)
    play.sent.clear()
    return play


def test_a_new_controller_ends_what_a_move_that_was_taken_back_has_left() -> None:
    play = taken_back_on_paper(isr=(1, 3))
    play.elect(2)
    play.answer_all()
    assert (play.states[T0].leader, play.states[T0].isr) == (1, (1,))
    stopped = [order.request for order in play.sent if isinstance(order.request, StopReplicaRequest)]
    assert [each.delete_partition for each in stopped[-1].topic_states[0].partition_states] == [True]


def test_a_new_controller_lets_a_stranger_lead_that_alone_has_everything() -> None:
    play = taken_back_on_paper(isr=(3,))
    before = play.states[T0]
    play.elect(2)
    play.answer_all()
    assert play.states[T0] == before
    assert not any(isinstance(order.request, StopReplicaRequest) for order in play.sent)


def test_a_topic_that_moves_is_deleted_when_the_move_is_over() -> None:
    play = moving([3, 2])
    play.marked.add("t")
    play.tell_deletions()
    play.answer_all()
    assert "t" in play.topics
    known = play.states[T0]
    play.states[T0] = PartitionState(1, known.leader_epoch, (1, 2, 3), 1, known.partition_epoch + 1)
    play.tell(events.IsrChangesNotified((T0,)))
    play.answer_all()
    assert "t" not in play.topics


@pytest.mark.parametrize("target", [None, [4, 2]])
def test_a_move_whose_added_replica_leads_keeps_a_leader_when_it_is_taken_back(target: list[int] | None) -> None:
    play = moving([3, 4])
    led_by_the_added(play, (3, 2))
    move(play, target)
    play.answer_all()
    assert play.responses[1].responses[0].partitions[0].error_code == ErrorCode.NONE
    assert (play.states[T0].leader, play.states[T0].isr) == (2, (2,))
    assert play.machine.state.status(T0) is PartitionStatus.ONLINE


def test_a_move_is_not_taken_back_while_those_left_in_sync_are_away() -> None:
    play = moving([3, 4])
    del play.brokers[2]
    play.tell_brokers()
    known = play.states[T0]
    led_by_the_added(play, (3, 2))
    move(play, None)
    answer = play.responses[1].responses[0].partitions[0]
    assert answer.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "no leader" in answer.error_message
    assert play.states[T0].leader == 3
    assert known.leader == 1


def test_a_partition_online_without_a_leader_is_found_by_the_check() -> None:
    play = moving([3, 2])
    leadership = play.machine.state.leadership
    leadership[T0] = replace(leadership[T0], leader=-1)
    with pytest.raises(AssertionError, match="t-0 is online and has no leader"):
        play.machine.state.check()


@pytest.mark.slow
def test_what_is_refused_is_freed_without_the_garbage_collector() -> None:
    """Which looks for circles of errors and their tracebacks once a minute: thousands may be refused in a request."""
    play = moving([3, 2])
    gc.collect()
    gc.disable()
    before = sum(type(each) is KafkaError for each in gc.get_objects())
    try:
        assert set(move(play, *[[1]] * 50)[1:]) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        left = sum(type(each) is KafkaError for each in gc.get_objects()) - before
    finally:
        gc.enable()
    assert left < 25, "those of others may come and go"


def test_moves_in_the_legacy_node_that_are_refused_alike_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    play = moving([3, 2])
    targets: dict[TopicPartition, tuple[int, ...]] = {TopicPartition("t", number): (1,) for number in range(1, 101)}
    play.tell(events.LegacyReassignmentsFound(targets))
    refused = [line for line in caplog.messages if "refused" in line]
    assert refused == ["reassignment of t-1, t-2, t-3 and 97 more refused: The partition does not exist."]
