"""The machine as a whole: its manners, and random histories against its invariants."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller import events
from controller.controller_config import ControllerConfig
from controller.instructions import WritePartitionStates
from controller.state import PartitionStatus
from controller.znodes import NO_LEADER, ReplicaAssignment, TopicAssignment, TopicPartition
from protocol.errors import ErrorCode
from protocol.messages.reassignments import AlterPartitionReassignmentsRequest, ElectLeadersRequest
from protocol.messages.replication import (
    AlterPartitionRequest,
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
    assert isinstance(instructions[-1], WritePartitionStates)
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
    play.topics["old"] = TopicAssignment(None, {0: ReplicaAssignment((1,))})
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
    play.topics["t"] = TopicAssignment(play.topics["t"].topic_id, wider)
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
    assert play.responses[5].replica_election_results[0].partition_result[0].error_code == code


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


# --- random histories ---

BROKERS = (1, 2, 3, 4)
STEPS = st.one_of(
    st.tuples(st.just("kill"), st.sampled_from(BROKERS)),
    st.tuples(st.just("start"), st.sampled_from(BROKERS)),
    st.tuples(st.just("elect"), st.sampled_from(BROKERS)),
    st.tuples(st.just("die in mid-procedure"), st.integers(0, 12)),
    st.tuples(st.just("shut down"), st.sampled_from(BROKERS)),
    st.tuples(st.just("alter"), st.integers(0, 3)),
    st.tuples(st.just("shrink"), st.integers(0, 3)),
    st.tuples(st.just("reassign"), st.permutations(BROKERS)),
    st.tuples(st.just("create"), st.permutations(BROKERS)),
    st.tuples(st.just("delete"), st.just(0)),
    st.tuples(st.just("conflict"), st.integers(0, 3)),
    st.tuples(st.just("lose a log directory"), st.integers(0, 3)),
    st.tuples(st.just("answer"), st.just(0)),
)


class History:
    """Plays steps, and keeps book of what must never be lost: some of the ISR that was last acknowledged by."""

    def __init__(self) -> None:
        self.play = Play(BROKERS, ControllerConfig())
        self.play.elect()
        self.play.create_topic("t", (1, 2, 3), (2, 3, 4), (3, 4, 1), (4, 1, 2))
        self.play.tell_topics()
        self.last_epochs: dict[TopicPartition, tuple[int, int]] = {}

    def step(self, kind: str, value: object) -> None:
        getattr(self, "do_" + kind.replace(" ", "_").replace("-", "_"))(value)
        self.check()

    def check(self) -> None:
        for partition, state in self.play.states.items():
            assert state.isr
            assert state.leader == NO_LEADER or state.leader in state.isr
            assert state.leader_recovery_state == 0, "an unclean election that nobody allowed"
            before = self.last_epochs.get(partition, (-1, -1))
            assert (state.leader_epoch, state.partition_epoch) >= before
            self.last_epochs[partition] = (state.leader_epoch, state.partition_epoch)
        self.last_epochs = {each: known for each, known in self.last_epochs.items() if each in self.play.states}

    def do_kill(self, broker_id: int) -> None:
        if len(self.play.brokers) > 1 and broker_id in self.play.brokers:
            del self.play.brokers[broker_id]
            self.play.tell_brokers()

    def do_start(self, broker_id: int) -> None:
        self.play.register(broker_id)
        self.play.lost_log_dirs.pop(broker_id, None)
        self.play.tell_brokers()

    def do_elect(self, broker_id: int) -> None:
        self.play.elect(broker_id)

    def do_die_in_mid_procedure(self, instructions: int) -> None:
        """The controller stops after some instructions of a broker's bounce; another one takes over."""
        self.play.register(min(self.play.brokers))
        orders = self.play.machine.handle(events.BrokersListed(dict(self.play.brokers)))
        while orders and instructions > 0:
            result = None
            for order in orders:
                result = self.play.carry_out(order)
                instructions -= 1
            if result is None:
                break
            orders = self.play.machine.handle(result)
        self.play.elect(max(self.play.brokers))

    def do_shut_down(self, broker_id: int) -> None:
        if broker_id in self.play.brokers:
            request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=self.play.brokers[broker_id].epoch)
            self.play.tell(events.ControlledShutdownCalled(1, request, 3))

    def do_alter(self, number: int) -> None:
        """The leader takes all live replicas into the ISR."""
        self.alter(TopicPartition("t", number), lambda leader, replicas: replicas)

    def do_shrink(self, number: int) -> None:
        self.alter(TopicPartition("t", number), lambda leader, replicas: (leader,))

    def alter(self, partition: TopicPartition, isr: object) -> None:
        known = self.play.states.get(partition)
        topic = self.play.topics.get(partition.topic)
        if known is None or topic is None or known.leader not in self.play.brokers:
            return
        live = tuple(each for each in topic.partitions[partition.partition].replicas if each in self.play.brokers)
        wanted = isr(known.leader, live)  # type: ignore[operator]
        if known.leader not in wanted:
            return
        request = AlterPartitionRequest
        changed = request.PartitionData(
            partition_index=partition.partition,
            leader_epoch=known.leader_epoch,
            new_isr_with_epochs=[request.BrokerState(broker_id=each) for each in wanted],
            partition_epoch=known.partition_epoch,
        )
        asked = request(
            broker_id=known.leader,
            broker_epoch=self.play.brokers[known.leader].epoch,
            topics=[request.TopicData(topic_id=topic.topic_id or bytes(16), partitions=[changed])],
        )
        self.play.tell(events.AlterPartitionCalled(1, asked, 3))

    def do_reassign(self, order: list[int]) -> None:
        self.play.tell(events.ReassignmentsCalled(1, reassignment(T0, order[:2])))

    def do_create(self, order: list[int]) -> None:
        if "u" not in self.play.topics:
            self.play.create_topic("u", tuple(order[:2]), tuple(order[2:]))
            self.play.tell_topics()

    def do_delete(self, _: int) -> None:
        if "u" in self.play.topics:
            self.play.marked.add("u")
            self.play.tell_deletions()

    def do_conflict(self, number: int) -> None:
        self.play.conflicts.add(TopicPartition("t", number))

    def do_lose_a_log_directory(self, number: int) -> None:
        partition = TopicPartition("t", number)
        broker_id = self.play.topics["t"].partitions[number].replicas[0]
        self.play.lost_log_dirs[broker_id] = {partition}
        self.play.tell(events.LogDirsFailed(frozenset({broker_id})))

    def do_answer(self, _: int) -> None:
        self.play.answer_all()

    def settle(self) -> None:
        """Everybody comes back and answers: then every partition has a leader, every deletion is done."""
        self.play.lost_log_dirs.clear()
        self.play.conflicts.clear()
        for broker_id in BROKERS:
            self.play.register(broker_id)
        self.play.tell_brokers()
        self.play.answer_all()
        self.check()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, max_size=25))
def test_every_history_keeps_the_invariants_and_settles(steps: list[tuple[str, object]]) -> None:
    history = History()
    for kind, value in steps:
        history.step(kind, value)
    history.settle()
    state = history.play.machine.state
    assert not state.topics_to_delete, "a deletion is left undone"
    for partition in state.partitions():
        assert state.status(partition) is PartitionStatus.ONLINE, f"{partition} has no leader"
        assert state.leadership[partition] == history.play.states[partition], f"{partition}: memory is not the tree"
        assert state.is_online(state.leadership[partition].leader, partition)
