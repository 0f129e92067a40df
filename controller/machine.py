"""The controller's decisions: an event in, instructions out. No I/O, no clock, no chance.

    machine.handle(BrokersListed({2: …, 3: …}))      broker 1 is gone
        → [CloseChannel(1), WritePartitionStates({orders-0: leader 2, ISR [2]})]
    machine.handle(PartitionStatesWritten({orders-0: …, partition epoch 8}))
        → [Send(2, LeaderAndIsr), Send(2, UpdateMetadata), …]

Each kind of event has a procedure: a generator that yields instructions. `handle` collects them up to the first that
has a result; the procedure goes on when that result is handed in as an event. Meanwhile no other event may come: what
one procedure decides is never mixed with another's. Only TermEnded may come at any time; it ends all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kbroker.controller import events
from kbroker.controller.admin_elections import AdminElections
from kbroker.controller.broker_life import BrokerLife
from kbroker.controller.controller_config import ControllerConfig
from kbroker.controller.election import Strategy
from kbroker.controller.guarded_writes import write_topics
from kbroker.controller.instructions import (
    WITHOUT_RESULT,
    Answer,
    DeleteNodes,
    ForgetTopics,
    Instruction,
    Pause,
    ReadTopics,
    Steps,
)
from kbroker.controller.isr_changes import IsrChanges
from kbroker.controller.pacing import PARTITIONS_PER_PAUSE, portions
from kbroker.controller.reassignment import Reassignment
from kbroker.controller.state import ControllerState, PartitionStatus, Replica, ReplicaStatus
from kbroker.controller.topic_deletion import TopicDeletion
from kbroker.controller.transitions import Transitions
from kbroker.controller.wording import count, few
from kbroker.controller.znodes import PREFERRED_ELECTION, PartitionState, TopicAssignment, TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kbroker.protocol.messages.replication import AlterPartitionResponse

log = logging.getLogger(__name__)

_RESULTS = (
    events.Done,
    events.Failed,
    events.PartitionStatesWritten,
    events.TopicsWritten,
    events.PartitionStatesRead,
    events.TopicsRead,
    events.TopicConfigsRead,
)


class Machine:
    """All of the controller's logic. `new_topic_id` gives ids to topics that old brokers made without one."""

    def __init__(self, broker_id: int, config: ControllerConfig, new_topic_id: Callable[[], bytes]) -> None:
        self._new_topic_id = new_topic_id
        self._procedure: Steps[None] | None = None
        self._do = Transitions(broker_id, config)
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._do.state = ControllerState()
        self._deletion = TopicDeletion(self._do)
        self._reassignment = Reassignment(self._do, self._deletion, {})
        self._brokers = BrokerLife(self._do, self._deletion, self._reassignment)
        self._isr_changes = IsrChanges(self._do)
        self._elections = AdminElections(self._do)

    @property
    def state(self) -> ControllerState:
        """What the controller knows. Not to be changed from outside."""
        return self._do.state

    @property
    def unclean_elections(self) -> int:
        """How many leaders were made of replicas that were not in sync, in all terms."""
        return self._do.unclean_elections

    @property
    def is_busy(self) -> bool:
        """Whether a procedure waits for a result."""
        return self._procedure is not None

    def handle(self, event: events.Event) -> list[Instruction]:
        """Take an event; the instructions to carry out, in order. Only the last of them can have a result."""
        if isinstance(event, events.TermEnded):
            self._abandon()
            self._start_afresh()
            return []
        if isinstance(event, _RESULTS):
            assert self._procedure is not None, f"nobody waits for {event}"
            return self._run(event)
        assert self._procedure is None, f"{event} came before the result that is waited for"
        self._procedure = _PROCEDURES[type(event)](self, event)
        return self._run(None)

    def _abandon(self) -> None:
        if self._procedure is not None:
            self._procedure.close()
            self._procedure = None

    def _run(self, result: events.Result | None) -> list[Instruction]:
        assert self._procedure is not None
        instructions: list[Instruction] = []
        try:
            while True:
                if isinstance(result, events.Failed):
                    instruction = self._procedure.throw(result.error)
                else:
                    instruction = self._procedure.send(result)
                instructions.append(instruction)
                if not isinstance(instruction, WITHOUT_RESULT):
                    return instructions
                result = None
        except StopIteration:
            self._procedure = None
        except BaseException:
            self._procedure = None
            raise
        return instructions

    # --- failover ---

    def _elected(self, event: events.ControllerElected) -> Steps[None]:
        """Take the cluster over as ZooKeeper describes it, then tell all brokers (Kafka's `onControllerFailover`)."""
        state, snapshot = self.state, event.snapshot
        state.epoch = event.epoch
        state.brokers.update(self._brokers.reachable(snapshot.brokers))
        yield from self._add_topics((yield from self._with_ids(snapshot.topics)))
        for number, (partition, known) in enumerate(snapshot.partition_states.items(), 1):
            if state.assignment(partition) is not None:
                state.take(partition, known)
            if number % PARTITIONS_PER_PAUSE == 0:
                yield Pause()
        for broker in state.brokers.values():
            yield from self._brokers.open_channel(broker)
        self._tell_story()
        yield from self._take_deletions(snapshot.topics_to_delete)
        yield from self._do.tell_metadata()
        yield from self._start()
        self._reassignment.legacy = {}
        yield from self._reassignment.let_strangers_go()
        if snapshot.reassignments:
            yield from self._reassignment.ask_legacy(snapshot.reassignments)
        yield from self._reassignment.resume(state.reassigning)
        yield from self._deletion.resume(state.topics_to_delete)
        if snapshot.preferred_elections:
            yield from self._legacy_elections(events.LegacyElectionsFound(snapshot.preferred_elections))

    def _tell_story(self) -> None:
        state = self.state
        away = state.holders() - set(state.brokers)
        topics, partitions = len(state.assignments), sum(map(len, state.assignments.values()))
        log.info(
            "found %s and %s; brokers there: %s; away: %s",
            count(topics, "topic"),
            count(partitions, "partition"),
            few(sorted(state.brokers)),
            few(sorted(away)) or "-",
        )

    def _with_ids(self, topics: dict[str, TopicAssignment]) -> Steps[dict[str, TopicAssignment]]:
        """The topics with those given ids that have none."""
        nameless = {name: topic for name, topic in topics.items() if topic.topic_id is None}
        if not nameless:
            return topics
        named = yield from write_topics(
            self.state,
            nameless,
            lambda _, known: None if known.topic_id else replace(known, topic_id=self._new_topic_id()),
        )
        return {**topics, **named}

    def _add_topics(self, topics: dict[str, TopicAssignment]) -> Steps[list[TopicPartition]]:
        """Take topics over; those of their partitions that were unknown."""
        added = []
        since_pause = 0
        for name, topic in topics.items():
            added += self.state.add_topic(name, topic)
            since_pause += 1 + len(topic.partitions)
            if since_pause >= PARTITIONS_PER_PAUSE:
                since_pause = 0
                yield Pause()
        return added

    def _take_deletions(self, marked: frozenset[str]) -> Steps[None]:
        """Topics marked before our term. Those with a dead broker or a running move have to wait."""
        state = self.state
        known = {name for name in marked if name in state.assignments}
        if not self._do.config.delete_topic_enable:
            known = set()
        refused = sorted(marked - known)
        if refused:
            yield DeleteNodes(tuple(f"/admin/delete_topics/{name}" for name in refused))
        state.topics_to_delete.update(known)
        for name in known:
            if any(not state.is_online(broker_id, each) for each, broker_id in state.replicas_of(name)):
                state.deletion_ineligible.add(name)
        state.deletion_ineligible.update({each.topic for each in state.reassigning} & known)

    def _start(self) -> Steps[None]:
        """Leaders first where there is none: these partitions are out of service. Then everybody hears of the rest.

        A broker that has just started hears of its first topics by that: of whole ones, as clients that were told of a
        part would take it for all that there is.
        """
        online, offline = yield from self._judge()
        elected = yield from self._do.elect_leaderless(whole_topics=True)
        batch = self._do.batch()
        for number, (partition, replicas) in enumerate(online.items(), 1):
            if partition not in elected and partition in self.state.leadership:
                batch.tell_leader_and_isr(replicas, partition)
            if number % PARTITIONS_PER_PAUSE == 0:
                yield Pause()
        yield from batch.send()
        yield from self._do.move_replicas(offline, ReplicaStatus.OFFLINE)

    def _judge(self) -> Steps[tuple[dict[TopicPartition, Sequence[int]], list[Replica]]]:
        """Say where all stand; where each partition's replicas are online, and the replicas that are not."""
        state = self.state
        online: dict[TopicPartition, Sequence[int]] = {}
        offline = []
        replica_status, is_online = state.replica_status, ReplicaStatus.ONLINE
        for number, partition in enumerate(state.partitions(), 1):
            if number % PARTITIONS_PER_PAUSE == 0:
                yield Pause()
            replicas = state.replicas(partition)
            online[partition] = there = state.online(replicas, partition)
            for broker_id in there:
                replica_status[partition, broker_id] = is_online
            if there is not replicas:
                away = [(partition, each) for each in replicas if each not in there]
                replica_status.update(dict.fromkeys(away, ReplicaStatus.DELETION_INELIGIBLE))
                offline += away
            state.set_status(partition, self._judged(partition))
        return online, offline

    def _judged(self, partition: TopicPartition) -> PartitionStatus:
        known = self.state.leadership.get(partition)
        if known is None:
            return PartitionStatus.NEW
        if self.state.is_online(known.leader, partition) and not self._is_leader_of_another_life(known):
            return PartitionStatus.ONLINE
        return PartitionStatus.OFFLINE

    def _is_leader_of_another_life(self, known: PartitionState) -> bool:
        """Whether the leader has registered since the partition's state was written, unseen by any controller.

        It may have lost what it had not synced, and its followers may have that: it must not go on in its epoch.
        """
        return 0 <= known.changed_at < self.state.brokers[known.leader].epoch

    # --- brokers ---

    def _brokers_listed(self, event: events.BrokersListed) -> Steps[None]:
        yield from self._brokers.listed(event.brokers)

    def _log_dirs_failed(self, event: events.LogDirsFailed) -> Steps[None]:
        yield from self._brokers.log_dirs_failed(event.broker_ids)
        if event.paths:
            yield DeleteNodes(event.paths)

    def _leader_and_isr_answered(self, event: events.LeaderAndIsrAnswered) -> Steps[None]:
        if self.state.is_of_this_life(event.broker_id, event.request):
            yield from self._brokers.leader_and_isr_answered(event.broker_id, event.response)

    def _stop_replica_answered(self, event: events.StopReplicaAnswered) -> Steps[None]:
        if self.state.is_of_this_life(event.broker_id, event.request):
            yield from self._deletion.stop_replica_answered(event.broker_id, event.request, event.response)

    def _broker_fell_behind(self, event: events.BrokerFellBehind) -> Steps[None]:
        yield from self._brokers.tell_anew(event.broker_id)

    def _controlled_shutdown(self, event: events.ControlledShutdownCalled) -> Steps[None]:
        response = yield from self._brokers.shut_down(event.request, event.version)
        yield Answer(event.call, response)

    # --- topics ---

    def _topics_listed(self, event: events.TopicsListed) -> Steps[None]:
        """New topics get their partitions; topics that went without our doing are forgotten."""
        state = self.state
        gone = sorted(set(state.assignments) - event.names)
        if gone:
            yield ForgetTopics(tuple(gone))
            for name in gone:
                state.remove_topic(name)
        new = sorted(event.names - set(state.assignments))
        if not new:
            return
        read: events.TopicsRead = yield ReadTopics(tuple(new))
        created = yield from self._add_topics((yield from self._with_ids(read.topics)))
        topics, partitions = count(len(read.topics), "new topic"), count(len(created), "partition")
        log.info("%s with %s: %s", topics, partitions, few(sorted(read.topics)))
        yield from self._create_partitions(created)

    def _create_partitions(self, partitions: list[TopicPartition]) -> Steps[None]:
        """New, then Online: the state nodes are made, and the brokers told."""
        for portion in portions(partitions, self._do.at_once()):
            replicas = [(each, broker_id) for each in portion for broker_id in self.state.replicas(each)]
            self._do.set_partition_status(portion, PartitionStatus.NEW)
            yield from self._do.move_replicas(replicas, ReplicaStatus.NEW)
            yield from self._do.bring_online(portion, unclean=False)
            yield from self._do.move_replicas(replicas, ReplicaStatus.ONLINE)

    def _topics_modified(self, event: events.TopicsModified) -> Steps[None]:
        """Partitions were added; during a deletion that is taken back."""
        state = self.state
        created = []
        restored = {}
        for name, topic in event.topics.items():
            if name not in state.assignments:
                continue
            new = {number: each for number, each in topic.partitions.items() if number not in state.assignments[name]}
            state.topic_versions[name] = topic.version
            if not new:
                continue
            if state.is_being_deleted(name):
                restored[name] = topic
            else:
                created += state.add_topic(name, replace(topic, partitions=new))
        if restored:
            yield from write_topics(
                state, restored, lambda name, known: replace(known, partitions=dict(state.assignments[name]))
            )
        if created:
            yield from self._create_partitions(created)
        yield from self._reassignment.finish_unwritten(event.topics.keys())

    def _deletions_listed(self, event: events.TopicDeletionsListed) -> Steps[None]:
        yield from self._deletion.ask(event.names - self.state.topics_to_delete)

    # --- ISR, reassignment, elections ---

    def _isr_changes_notified(self, event: events.IsrChangesNotified) -> Steps[None]:
        yield from self._isr_changes.reread(event.partitions)
        yield from self._reassignment.maybe_complete(event.partitions)
        if event.paths:
            yield DeleteNodes(event.paths)

    def _alter_partition(self, event: events.AlterPartitionCalled) -> Steps[None]:
        refusal = self._isr_changes.refusal(event.request)
        if refusal is not None:
            yield Answer(event.call, AlterPartitionResponse(throttle_time_ms=0, error_code=refusal, topics=[]))
            return
        response, partitions = yield from self._isr_changes.alter(event.request, event.version)
        yield Answer(event.call, response)
        yield from self._reassignment.maybe_complete(partitions)

    def _legacy_reassignments(self, event: events.LegacyReassignmentsFound) -> Steps[None]:
        yield from self._reassignment.ask_legacy(event.targets)

    def _reassignments_called(self, event: events.ReassignmentsCalled) -> Steps[None]:
        request: AlterPartitionReassignmentsRequest = event.request
        answered = AlterPartitionReassignmentsResponse
        targets = {
            TopicPartition(topic.name, each.partition_index): None if each.replicas is None else tuple(each.replicas)
            for topic in request.topics
            for each in topic.partitions
        }
        refused = yield from self._reassignment.ask(targets)
        responses = []
        for topic in request.topics:
            partitions = []
            for number, each in enumerate(topic.partitions, 1):
                refusal = refused.get(TopicPartition(topic.name, each.partition_index))
                partitions.append(
                    answered.ReassignablePartitionResponse(
                        partition_index=each.partition_index,
                        error_code=refusal.code if refusal else ErrorCode.NONE,
                        error_message=refusal.message if refusal else None,
                    )
                )
                if number % PARTITIONS_PER_PAUSE == 0:
                    yield Pause()
            responses.append(answered.ReassignableTopicResponse(name=topic.name, partitions=partitions))
        yield Answer(
            event.call, answered(throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, responses=responses)
        )

    def _legacy_elections(self, event: events.LegacyElectionsFound) -> Steps[None]:
        yield from self._elections.elect(Strategy.PREFERRED, event.partitions)
        yield DeleteNodes((PREFERRED_ELECTION,))

    def _elect_leaders(self, event: events.ElectLeadersCalled) -> Steps[None]:
        answer = yield from self._elections.asked(event.request)
        yield Answer(event.call, answer)

    def _rebalance_due(self, event: events.RebalanceDue) -> Steps[None]:
        yield from self._elections.rebalance()

    def _unclean_enabled(self, event: events.UncleanElectionEnabled) -> Steps[None]:
        yield from self._elections.unclean_enabled(event.topic)


_PROCEDURES: dict[type[Any], Callable[[Machine, Any], Steps[None]]] = {
    events.ControllerElected: Machine._elected,
    events.BrokersListed: Machine._brokers_listed,
    events.LogDirsFailed: Machine._log_dirs_failed,
    events.LeaderAndIsrAnswered: Machine._leader_and_isr_answered,
    events.StopReplicaAnswered: Machine._stop_replica_answered,
    events.BrokerFellBehind: Machine._broker_fell_behind,
    events.ControlledShutdownCalled: Machine._controlled_shutdown,
    events.TopicsListed: Machine._topics_listed,
    events.TopicsModified: Machine._topics_modified,
    events.TopicDeletionsListed: Machine._deletions_listed,
    events.IsrChangesNotified: Machine._isr_changes_notified,
    events.AlterPartitionCalled: Machine._alter_partition,
    events.LegacyReassignmentsFound: Machine._legacy_reassignments,
    events.ReassignmentsCalled: Machine._reassignments_called,
    events.LegacyElectionsFound: Machine._legacy_elections,
    events.ElectLeadersCalled: Machine._elect_leaders,
    events.RebalanceDue: Machine._rebalance_due,
    events.UncleanElectionEnabled: Machine._unclean_enabled,
}
