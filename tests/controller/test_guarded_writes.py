"""Changes that meet what others wrote: nothing of theirs is lost, and ours are made in the end, or given up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbroker.controller import events
from kbroker.controller.guarded_writes import ATTEMPTS
from kbroker.controller.instructions import Instruction, WritePartitionStates, WriteTopics
from kbroker.controller.znodes import ReplicaAssignment, TopicAssignment, TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.reassignments import AlterPartitionReassignmentsRequest
from tests.controller.play import Play

T0 = TopicPartition("t", 0)


class Meddling(Play):
    """Just before each write of a kind, somebody else writes."""

    def __init__(self) -> None:
        self.meddle: dict[type[Instruction], int] = {}
        super().__init__()
        self.elect()
        self.create_topic("t", (1, 2))
        self.tell_topics()
        self.answer_all()

    def carry_out(self, instruction: Instruction) -> events.Result | None:
        left = self.meddle.get(type(instruction), 0)
        if left:
            self.meddle[type(instruction)] = left - 1
            if isinstance(instruction, WriteTopics):
                self.add_partition()
            else:
                known = self.states[T0]
                self.states[T0] = replace(known, partition_epoch=known.partition_epoch + 1)
        return super().carry_out(instruction)

    def add_partition(self) -> None:
        topic = self.topics["t"]
        more = {**topic.partitions, len(topic.partitions): ReplicaAssignment((2, 3))}
        self.topics["t"] = TopicAssignment(topic.topic_id, more, topic.version + 1)

    def move(self, *target: int) -> ErrorCode:
        request = AlterPartitionReassignmentsRequest
        moved = request.ReassignablePartition(partition_index=0, replicas=list(target))
        asked = request(topics=[request.ReassignableTopic(name="t", partitions=[moved])])
        self.tell(events.ReassignmentsCalled(1, asked))
        return ErrorCode(self.responses[1].responses[0].partitions[0].error_code)


@pytest.mark.parametrize("target", [(3, 2), (2, 1)])
def test_partitions_added_while_a_move_begins_are_kept(target: tuple[int, ...]) -> None:
    play = Meddling()
    play.meddle[WriteTopics] = 2
    assert play.move(*target) is ErrorCode.NONE
    partitions = play.topics["t"].partitions
    assert sorted(partitions) == [0, 1, 2]
    assert partitions[0].target == target
    assert play.move(1, 2) is ErrorCode.NONE
    assert sorted(play.topics["t"].partitions) == [0, 1, 2]
    play.tell(events.TopicsModified({"t": play.topics["t"]}))
    assert TopicPartition("t", 2) in play.states


def test_partitions_added_while_a_move_ends_are_kept() -> None:
    play = Meddling()
    play.move(3, 2)
    play.meddle[WriteTopics] = 1
    known = play.states[T0]
    play.states[T0] = replace(known, isr=(1, 2, 3), partition_epoch=known.partition_epoch + 1)
    play.tell(events.IsrChangesNotified((T0,)))
    assert play.topics["t"].partitions == {0: ReplicaAssignment((3, 2)), 1: ReplicaAssignment((2, 3))}


def test_a_move_whose_end_could_not_be_written_ends_when_we_hear_what_others_wrote() -> None:
    play = Meddling()
    play.move(3, 2)
    play.meddle[WriteTopics] = ATTEMPTS
    known = play.states[T0]
    play.states[T0] = replace(known, isr=(1, 2, 3), partition_epoch=known.partition_epoch + 1)
    play.tell(events.IsrChangesNotified((T0,)))
    assert play.topics["t"].partitions[0].is_being_reassigned
    assert play.machine.state.reassigning == {T0}
    play.tell(events.TopicsModified({"t": play.topics["t"]}))
    assert play.topics["t"].partitions[0] == ReplicaAssignment((3, 2))
    assert len(play.topics["t"].partitions) == 1 + ATTEMPTS
    assert not play.machine.state.reassigning
    play.text()
    play.tell(events.TopicsModified({"t": play.topics["t"]}))
    assert "write" not in play.text()


def test_a_move_of_a_topic_whose_node_is_gone_is_refused() -> None:
    play = Meddling()
    del play.topics["t"]
    assert play.move(3, 2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not play.machine.state.reassigning


def test_a_move_is_refused_while_others_keep_writing() -> None:
    play = Meddling()
    play.meddle[WriteTopics] = ATTEMPTS
    assert play.move(3, 2) is not ErrorCode.NONE
    assert play.machine.state.replicas(T0) == (1, 2)


def test_an_election_is_held_again_over_a_newer_state() -> None:
    play = Meddling()
    play.meddle[WritePartitionStates] = ATTEMPTS - 1
    del play.brokers[1]
    play.tell_brokers()
    assert play.states[T0].leader == 2


def test_two_brokers_that_give_a_topic_an_id_agree_on_the_first() -> None:
    play = Meddling()
    play.topics["old"] = TopicAssignment(None, {0: ReplicaAssignment((1,))}, 0)

    class IdGivenElsewhere(type(play)):  # type: ignore[misc]
        def add_partition(self) -> None:
            self.topics["old"] = TopicAssignment(b"i" * 16, self.topics["old"].partitions, 1)

    play.__class__ = IdGivenElsewhere
    play.meddle[WriteTopics] = 1
    play.tell_topics()
    assert play.topics["old"].topic_id == play.machine.state.topic_id("old") == b"i" * 16
