"""Moving replicas: phases A and B of Kafka's reassignment, and what administrators ask for (procedures, pure).

    replicas = target, then what is to go        adding = target - origin        removing = origin - target

Phase A, while the target isn't in sync: all of them are replicas, the leader learns it with a new epoch. Phase B, once
the target is in sync: the leader moves into the target if need be, the rest leaves the ISR and is deleted, and the
topic's node says only the target.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from kbroker.controller import znodes
from kbroker.controller.election import Strategy
from kbroker.controller.guarded_writes import write_states, write_topics
from kbroker.controller.instructions import DeleteNodes, SetNode, Steps
from kbroker.controller.pacing import chosen
from kbroker.controller.state import ControllerState, ReplicaStatus
from kbroker.controller.topic_deletion import TopicDeletion
from kbroker.controller.transitions import Transitions
from kbroker.controller.znode_operations import TooLarge
from kbroker.controller.znodes import PartitionState, ReplicaAssignment, TopicAssignment, TopicPartition
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Reassignment:
    """Moves replicas from broker to broker."""

    do: Transitions
    deletion: TopicDeletion
    legacy: dict[TopicPartition, tuple[int, ...]]
    """What /admin/reassign_partitions still holds."""

    # --- asked for ---

    def ask(self, partition: TopicPartition, target: tuple[int, ...] | None) -> Steps[KafkaError | None]:
        """Begin to move a partition to `target`; None takes a running move back. The refusal, if any."""
        try:
            assignment = self._checked(partition, target)
        except KafkaError as error:
            return error
        change = self._reorder
        if assignment.is_being_reassigned or partition in self.do.state.reassigning:
            change = self._run
        try:
            is_written = yield from change(partition, assignment)
        except TooLarge as error:  # of the first write, before anything was changed: later ones are smaller
            return KafkaError(ErrorCode.INVALID_REQUEST, f"The move does not fit into the topic's znode: {error}.")
        if not is_written:
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic's node is gone, or changes all the time."
            )
        return None

    def _checked(self, partition: TopicPartition, target: tuple[int, ...] | None) -> ReplicaAssignment:
        state = self.do.state
        current = state.assignment(partition)
        if current is None or state.is_being_deleted(partition.topic):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        if target is None:
            if not current.is_being_reassigned:
                raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
            wanted = current.reassign_to(current.origin)
        else:
            problem = self._problem(current, target)
            if problem:
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
            wanted = current.reassign_to(target)
        self._check_that_somebody_is_left(partition, wanted)
        return wanted

    def _check_that_somebody_is_left(self, partition: TopicPartition, wanted: ReplicaAssignment) -> None:
        """What the move drops at once must be neither the last in sync nor the last that can lead."""
        state = self.do.state
        known = state.leadership.get(partition)
        if known is None:
            return
        problem = None
        in_sync = [each for each in wanted.replicas if each in known.isr]
        if not in_sync:
            problem = f"None of the replicas left, {list(wanted.replicas)}, is in sync: records would be lost."
        elif known.leader not in wanted.replicas and not state.online(in_sync, partition):
            if not state.can_serve(known.leader, partition):
                return  # there is none now either
            problem = f"Of the replicas left, those in sync, {in_sync}, are away: there would be no leader."
        if problem:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)

    def _problem(self, current: ReplicaAssignment, target: tuple[int, ...]) -> str | None:
        if not target:
            return "Empty replica list specified in partition reassignment."
        if len(set(target)) < len(target):
            return f"Duplicate replica ids in partition reassignment replica list: {list(target)}"
        if any(each < 0 for each in target):
            return f"Invalid broker id in replica list: {list(target)}"
        dead = [each for each in target if each not in current.replicas and not self.do.state.is_live(each)]
        return f"Replica assignment has brokers that are not alive: {dead}" if dead else None

    # --- going on ---

    def resume(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Finish those whose target is in sync by now, begin the others again."""
        state = self.do.state
        for partition in sorted(set(partitions) & state.reassigning):
            assignment = state.assignment(partition)
            if assignment is not None:
                yield from self._run(partition, assignment)

    def maybe_complete(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Finish those whose target is in sync by now."""
        state = self.do.state
        for partition in sorted(set(partitions) & state.reassigning):
            assignment = state.assignment(partition)
            if assignment is not None and self._is_complete(partition, assignment):
                yield from self._run(partition, assignment)

    def _is_complete(self, partition: TopicPartition, assignment: ReplicaAssignment) -> bool:
        """The target is in sync, and one of it can lead."""
        state = self.do.state
        known = state.leadership.get(partition)
        is_in_sync = known is not None and set(assignment.target) <= set(known.isr)
        return is_in_sync and bool(state.online(assignment.target, partition))

    def _run(self, partition: TopicPartition, assignment: ReplicaAssignment) -> Steps[bool]:
        """Whether it goes on: not when the topic's node is gone."""
        if not (yield from self._take(partition, assignment)):
            return False
        self.do.state.reassigning.add(partition)
        self.deletion.mark_ineligible((partition.topic,))
        if self._is_complete(partition, assignment):
            yield from self._finish(partition, assignment)
        else:
            yield from self._begin(partition, assignment)
        return True

    def _take(self, partition: TopicPartition, assignment: ReplicaAssignment) -> Steps[bool]:
        """U1 to U3: the topic's node, memory, and the end of replicas that an overridden move had added."""
        state = self.do.state
        current = state.assignment(partition)
        assert current is not None, f"{partition} was checked before"
        if current == assignment:
            return True
        if not (yield from self._write_topic(partition, assignment)):
            return False
        dropped = [each for each in current.replicas if each not in assignment.replicas]
        state.set_assignment(partition, assignment)
        yield from self._let_go(partition, dropped)
        return True

    def _let_go(self, partition: TopicPartition, dropped: list[int]) -> Steps[None]:
        """Brokers that are no replicas any more lead no longer, are in sync no longer, and delete what they have."""
        known = self.do.state.leadership.get(partition)
        if known is not None and known.leader in dropped:
            yield from self.do.bring_online([partition], unclean=False)
        yield from self._drop_replicas(partition, dropped)

    def let_strangers_go(self) -> Steps[None]:
        """End what a controller has begun that wrote that a move is taken back, and died: `_take`, behind the write."""
        state = self.do.state
        strange = yield from chosen(state.leadership, lambda each: bool(self._strangers(each)))
        for partition in strange:
            assignment = state.assignment(partition)
            if assignment is None or state.is_being_deleted(partition.topic):
                continue
            try:
                self._check_that_somebody_is_left(partition, assignment)
            except KafkaError as error:
                log.warning("partition %s: brokers %s stay: %s", partition, self._strangers(partition), error.message)
                continue
            yield from self._let_go(partition, self._strangers(partition))

    def _strangers(self, partition: TopicPartition) -> list[int]:
        """Members of the ISR that are no replicas."""
        replicas, isr = self.do.state.replicas(partition), self.do.state.leadership[partition].isr
        return [] if isr == replicas else [each for each in isr if each not in replicas]

    def _write_topic(self, partition: TopicPartition, assignment: ReplicaAssignment) -> Steps[bool]:
        """Write the partition's replicas into the topic's node, which may hold newer partitions than we know."""
        state, name = self.do.state, partition.topic

        def change(_name: str, known: TopicAssignment) -> TopicAssignment:
            return replace(known, partitions={**known.partitions, partition.partition: assignment})

        written = yield from write_topics(state, {name: state.topic(name)}, change)
        return name in written

    def _drop_replicas(self, partition: TopicPartition, brokers: Iterable[int]) -> Steps[None]:
        """Stop and delete replicas for good, without waiting for their brokers' answers."""
        state = self.do.state
        replicas = [(partition, each) for each in brokers]
        if not replicas:
            return
        known = {each: state.replica_state(each) for each in replicas}
        unknown = [each for each, status in known.items() if status is ReplicaStatus.NON_EXISTENT]
        for each in unknown:
            state.replica_status[each] = ReplicaStatus.NEW
        yield from self.do.move_replicas(replicas, ReplicaStatus.OFFLINE)
        yield from self.do.move_replicas(replicas, ReplicaStatus.DELETION_STARTED)
        yield from self.do.move_replicas(replicas, ReplicaStatus.DELETION_SUCCESSFUL)
        yield from self.do.move_replicas(replicas, ReplicaStatus.NON_EXISTENT)

    def _begin(self, partition: TopicPartition, assignment: ReplicaAssignment) -> Steps[None]:
        """Phase A: a new leader epoch that knows all replicas; the added ones start to follow."""
        log.info("partition %s moves to brokers %s", partition, ", ".join(map(str, assignment.target)))
        added = assignment.adding_replicas
        others = [each for each in assignment.replicas if each not in added]
        yield from self._bump(partition, others, new=added)
        fresh = [
            (partition, each)
            for each in added
            if self.do.state.replica_state((partition, each)) is ReplicaStatus.NON_EXISTENT
        ]
        for each in fresh:
            self.do.state.replica_status[each] = ReplicaStatus.NEW

    def _bump(self, partition: TopicPartition, brokers: Collection[int], new: Collection[int] = ()) -> Steps[None]:
        """Write the state with the next leader epoch and tell it to the brokers."""
        state = self.do.state

        def decide(remaining: list[TopicPartition]) -> Steps[dict[TopicPartition, PartitionState]]:
            yield from ()
            known = {each: state.leadership[each] for each in remaining if each in state.leadership}
            return {
                each: replace(has, leader_epoch=has.leader_epoch + 1, controller_epoch=state.epoch)
                for each, has in known.items()
            }

        if (yield from write_states(state, [partition], decide)):
            batch = self.do.batch()
            batch.tell_leader_and_isr(brokers, partition)
            batch.tell_leader_and_isr(new, partition, is_new=True)
            yield from batch.send()

    def _finish(self, partition: TopicPartition, assignment: ReplicaAssignment) -> Steps[None]:
        """Phase B: only the target is left."""
        state = self.do.state
        added = [
            (partition, each)
            for each in assignment.adding_replicas
            if state.replica_state((partition, each)) is not ReplicaStatus.NON_EXISTENT
        ]
        yield from self.do.move_replicas(added, ReplicaStatus.ONLINE)
        target, removed = assignment.target, assignment.removing_replicas
        final = ReplicaAssignment(target)
        state.set_assignment(partition, final)  # the target is told that it is all there is
        known = state.leadership[partition]
        if known.leader in target and state.is_online(known.leader, partition):
            yield from self._bump(partition, target)
        elif not (yield from self.do.bring_online([partition], Strategy.REASSIGN)):
            state.set_assignment(partition, assignment)  # what leads now has to stay until somebody else can
            return
        yield from self._drop_replicas(partition, removed)
        yield from self._write_topic(partition, final)
        yield from self._over(partition)

    def _over(self, partition: TopicPartition) -> Steps[None]:
        state = self.do.state
        state.reassigning.discard(partition)
        moved_text = "partition %s is on brokers %s now; %d still move"
        log.info(moved_text, partition, ", ".join(map(str, state.replicas(partition))), len(state.reassigning))
        yield from self.forget_legacy([partition])
        yield from self.do.tell_metadata([partition])
        yield from self.deletion.resume_for({partition.topic})

    def _reorder(self, partition: TopicPartition, assignment: ReplicaAssignment) -> Steps[bool]:
        """The same replicas in another order: nothing to move, but another one is preferred."""
        if assignment == self.do.state.assignment(partition):
            return True
        if not (yield from self._write_topic(partition, assignment)):
            return False
        self.do.state.set_assignment(partition, assignment)
        yield from self._bump(partition, assignment.replicas)
        return True

    # --- the legacy node ---

    def ask_legacy(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> Steps[None]:
        """/admin/reassign_partitions: begin all that can be; those refused or done leave the node."""
        self.legacy = dict(targets)
        finished = []
        for partition, target in targets.items():
            refusal = yield from self.ask(partition, target)
            if refusal is not None:
                log.error("reassignment of %s refused: %s", partition, refusal.message)
            if refusal is not None or partition not in self.do.state.reassigning:
                finished.append(partition)
        yield from self.forget_legacy(finished, always=not targets)

    def forget_legacy(self, partitions: Iterable[TopicPartition], *, always: bool = False) -> Steps[None]:
        """Take partitions out of the legacy node; the node goes with the last one."""
        gone = [each for each in partitions if self.legacy.pop(each, None) is not None]
        if not gone and not always:
            return
        if self.legacy:
            yield SetNode(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments(self.legacy))
        else:
            yield DeleteNodes((znodes.REASSIGN_PARTITIONS,))


def list_reassignments(
    state: ControllerState, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """The moves under way, of all partitions (topics null) or of those asked for."""
    if request.topics is None:
        wanted = sorted(state.reassigning)
    else:
        wanted = [TopicPartition(topic.name, each) for topic in request.topics for each in topic.partition_indexes]
    answered = ListPartitionReassignmentsResponse
    topics: dict[str, list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment]] = {}
    for partition in wanted:
        assignment = state.assignment(partition)
        if assignment is None or not assignment.is_being_reassigned:
            continue
        topics.setdefault(partition.topic, []).append(
            answered.OngoingPartitionReassignment(
                partition_index=partition.partition,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding_replicas),
                removing_replicas=list(assignment.removing_replicas),
            )
        )
    return answered(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=[answered.OngoingTopicReassignment(name=name, partitions=each) for name, each in topics.items()],
    )
