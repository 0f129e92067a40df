"""The machine as a whole: its manners, and random histories against its invariants."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbroker.controller import events
from kbroker.controller.instructions import Pause
from kbroker.controller.znode_operations import ZooKeeperError
from kbroker.controller.znodes import ReplicaAssignment, TopicAssignment, TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.reassignments import AlterPartitionReassignmentsRequest, ElectLeadersRequest
from kbroker.protocol.messages.replication import (
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tests.controller.play import Play

T0 = TopicPartition("t", 0)


def cluster(*replicas: tuple[int, ...], brokers: tuple[int, ...] = (1, 2, 3)) -> Play:
    play = Play(brokers)
    play.elect()
    play.create_topic("t", *replicas)
    play.tell_topics()
    play.answer_all()
    play.sent.clear()
    return play


def test_no_event_may_come_before_the_result_that_is_waited_for() -> None:
    play = cluster((1, 2))
    del play.brokers[2]
    instructions = play.machine.handle(events.BrokersListed(dict(play.brokers)))
    assert isinstance(instructions[-1], Pause)
    assert play.machine.is_busy
    with pytest.raises(AssertionError, match="came before the result"):
        play.machine.handle(events.RebalanceDue())


def test_the_end_of_a_term_ends_a_procedure_and_forgets_everything() -> None:
    play = cluster((1, 2))
    del play.brokers[2]
    play.machine.handle(events.BrokersListed(dict(play.brokers)))
    assert play.machine.handle(events.TermEnded()) == []
    assert not play.machine.is_busy
    assert play.machine.state.epoch == 0
    assert not play.machine.state.brokers


def test_leader_and_isr_comes_before_update_metadata_before_stop_replica() -> None:
    play = cluster((1, 2, 3))
    broker = play.brokers[2]
    request = ControlledShutdownRequest(broker_id=2, broker_epoch=broker.epoch)
    play.tell(events.ControlledShutdownCalled(1, request, 3))
    kinds = [type(order.request) for order in play.sent]
    last_batch = kinds[kinds.index(LeaderAndIsrRequest) :]
    order = (LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest)
    assert sorted(last_batch, key=order.index) == last_batch


def test_requests_carry_the_receivers_broker_epoch_and_our_controller_epoch() -> None:
    play = cluster((1, 2, 3))
    play.register(2)
    play.tell_brokers()
    assert play.sent
    for order in play.sent:
        assert order.request.broker_epoch == play.brokers[order.broker_id].epoch
        assert order.request.controller_epoch == 1
        assert order.request.controller_id == 1


def test_a_live_leader_outside_the_listener_is_left_out_of_the_live_leaders() -> None:
    play = cluster((1, 2))
    del play.brokers[2]
    play.tell_brokers()
    told = next(order.request for order in play.sent if isinstance(order.request, LeaderAndIsrRequest))
    assert [(each.broker_id, each.host_name, each.port) for each in told.live_leaders] == [(1, "host1", 9092)]


def test_a_topic_without_an_id_is_given_one() -> None:
    play = Play((1,))
    play.elect()
    play.topics["old"] = TopicAssignment(None, {0: ReplicaAssignment((1,))}, 0)
    play.tell_topics()
    assert play.topics["old"].topic_id == (1).to_bytes(16, "big")
    assert play.machine.state.topic_id("old") == (1).to_bytes(16, "big")


def test_partitions_added_during_a_deletion_are_taken_back() -> None:
    play = cluster((1, 2))
    del play.brokers[2]
    play.tell_brokers()
    play.marked.add("t")
    play.tell_deletions()
    wider = {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((1, 2))}
    play.topics["t"] = TopicAssignment(play.topics["t"].topic_id, wider, play.topics["t"].version + 1)
    play.tell(events.TopicsModified({"t": play.topics["t"]}))
    assert list(play.topics["t"].partitions) == [0]


def test_a_topic_whose_node_vanished_is_forgotten() -> None:
    play = cluster((1, 2))
    del play.topics["t"]
    play.tell_topics()
    assert not play.machine.state.assignments
    assert not play.machine.state.leadership


@pytest.mark.parametrize(
    ("epoch_shift", "version", "code"),
    [(0, 3, ErrorCode.NONE), (-1, 3, ErrorCode.STALE_BROKER_EPOCH), (1, 3, ErrorCode.NONE), (-1, 1, ErrorCode.NONE)],
)
def test_a_controlled_shutdown_from_an_earlier_life_is_refused(epoch_shift: int, version: int, code: ErrorCode) -> None:
    play = cluster((1, 2))
    request = ControlledShutdownRequest(broker_id=2, broker_epoch=play.brokers[2].epoch + epoch_shift)
    play.tell(events.ControlledShutdownCalled(7, request, version))
    assert play.responses[7].error_code == code


def test_a_controlled_shutdown_tells_what_the_broker_still_leads() -> None:
    play = cluster((2, 1), (1, 2))
    play.states[T0] = play.machine.state.leadership[T0] = replace(play.states[T0], isr=(2,))
    request = ControlledShutdownRequest(broker_id=2, broker_epoch=play.brokers[2].epoch)
    play.tell(events.ControlledShutdownCalled(7, request, 3))
    remaining = play.responses[7].remaining_partitions
    assert [(each.topic_name, each.partition_index) for each in remaining] == [("t", 0)]


@pytest.mark.parametrize(
    ("partition", "election_type", "code"),
    [
        (0, 0, ErrorCode.ELECTION_NOT_NEEDED),
        (1, 0, ErrorCode.NONE),
        (2, 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (9, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, 1, ErrorCode.ELECTION_NOT_NEEDED),
        (3, 1, ErrorCode.NONE),
    ],
)
def test_elections_asked_for(partition: int, election_type: int, code: ErrorCode) -> None:
    play = cluster((1, 2), (1, 2), (3, 1), (3, 1))
    moved = TopicPartition("t", 1)
    play.states[moved] = play.machine.state.leadership[moved] = replace(play.states[moved], leader=2)
    lost = TopicPartition("t", 3)
    play.states[lost] = play.machine.state.leadership[lost] = replace(play.states[lost], isr=(3,))
    del play.brokers[3]
    play.tell_brokers()
    topics = [ElectLeadersRequest.TopicPartitions(topic="t", partitions=[partition])]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=topics)
    play.tell(events.ElectLeadersCalled(5, request))
    held = play.responses[5]
    assert held.response.replica_election_results[0].partition_result[0].error_code == code
    elected = TopicPartition("t", partition)
    expected = {elected: play.states[elected].leader_epoch} if code is ErrorCode.NONE else {}
    assert held.leader_epochs == expected


@pytest.mark.parametrize("election_type", [2, -1])
def test_an_election_of_no_known_type_is_none(election_type: int) -> None:
    play = cluster((1, 2))
    play.states[T0] = play.machine.state.leadership[T0] = replace(play.states[T0], leader=2)
    topics = [ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])]
    play.tell(events.ElectLeadersCalled(5, ElectLeadersRequest(election_type=election_type, topic_partitions=topics)))
    response = play.responses[5].response
    assert response.error_code is ErrorCode.INVALID_REQUEST
    assert response.replica_election_results[0].partition_result[0].error_code is ErrorCode.INVALID_REQUEST
    assert play.states[T0].leader == 2


def test_a_failed_instruction_is_raised_in_the_procedure_that_gave_it() -> None:
    play = cluster((1, 2))
    play.create_topic("u", (1,))
    play.machine.handle(events.TopicsListed(frozenset(play.topics)))
    with pytest.raises(ZooKeeperError, match="no room"):
        play.machine.handle(events.Failed(ZooKeeperError("no room")))
    assert not play.machine.is_busy


def test_legacy_nodes_are_obeyed_and_removed() -> None:
    play = cluster((1, 2))
    play.tell(events.LegacyReassignmentsFound({T0: (2, 1), TopicPartition("unknown", 0): (1,)}))
    assert play.topics["t"].partitions[0].replicas == (2, 1)
    assert "delete /admin/reassign_partitions" in play.text()
    play.tell(events.LegacyElectionsFound((T0,)))
    assert play.states[T0].leader == 2
    assert "delete /admin/preferred_replica_election" in play.text()


@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ([1, 2], ErrorCode.NONE),
        ([3], ErrorCode.NONE),
    ],
)
def test_reassignments_asked_for(replicas: list[int] | None, code: ErrorCode) -> None:
    play = cluster((1, 2))
    play.tell(events.ReassignmentsCalled(5, reassignment(T0, replicas)))
    assert play.responses[5].responses[0].partitions[0].error_code == code


def reassignment(partition: TopicPartition, replicas: list[int] | None) -> AlterPartitionReassignmentsRequest:
    request = AlterPartitionReassignmentsRequest
    moved = request.ReassignablePartition(partition_index=partition.partition, replicas=replicas)
    return request(topics=[request.ReassignableTopic(name=partition.topic, partitions=[moved])])


def test_a_leader_that_has_registered_anew_unseen_leads_in_another_epoch() -> None:
    """Its disk may have kept less than its followers have copied: in the same epoch nobody could tell whose is true."""
    play = Play((1, 2))
    play.elect(1)
    play.create_topic("t", (1, 2), (2, 1))
    play.tell_topics()
    before = {partition: state.leader_epoch for partition, state in play.states.items()}
    play.zxid += 1
    play.states = {partition: replace(state, changed_at=play.zxid) for partition, state in play.states.items()}
    play.elect(1)
    assert {partition: state.leader_epoch for partition, state in play.states.items()} == before
    play.states = {partition: replace(state, changed_at=play.zxid) for partition, state in play.states.items()}
    play.register(2)
    play.elect(1)
    after = {partition: state.leader_epoch - before[partition] for partition, state in play.states.items()}
    assert after == {TopicPartition("t", 0): 0, TopicPartition("t", 1): 1}
