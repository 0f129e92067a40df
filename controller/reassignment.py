"""Moving replicas: phases A and B of Kafka's reassignment, and what administrators ask for (procedures, pure).

    replicas = target, then what is to go        adding = target - origin        removing = origin - target

Phase A, while the target isn't in sync: all of them are replicas, the leader learns it with a new epoch. Phase B, once
the target is in sync: the leader moves into the target if need be, the rest leaves the ISR and is deleted, and the
topic's node says only the target.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter

from kbroker.controller import znodes
from kbroker.controller.election import Strategy
from kbroker.controller.guarded_writes import write_states, write_topics
from kbroker.controller.instructions import DeleteNodes, Pause, SetNode, Steps
from kbroker.controller.pacing import PARTITIONS_PER_PAUSE, chosen, portions
from kbroker.controller.state import ControllerState, Replica, ReplicaStatus
from kbroker.controller.topic_deletion import TopicDeletion
from kbroker.controller.transitions import Transitions
from kbroker.controller.wording import few
from kbroker.controller.znode_operations import TooLarge
from kbroker.controller.znodes import PartitionState, ReplicaAssignment, TopicAssignment, TopicPartition
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

log = logging.getLogger(__name__)

Assignments = Mapping[TopicPartition, ReplicaAssignment]


MOVES_AT_ONCE = 200
"""Of one topic: what a controller that dies in between leaves half done, and how long the first waits for the last."""


@dataclass(slots=True)
class Reassignment:
    """Moves replicas from broker to broker."""

    do: Transitions
    deletion: TopicDeletion
    legacy: dict[TopicPartition, tuple[int, ...]]
    """What /admin/reassign_partitions still holds."""

    # --- asked for ---

    def ask(self, targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> Steps[dict[TopicPartition, KafkaError]]:
        """Begin to move partitions to their targets; None takes a running move back. Those refused, and why.

        A topic's node holds all its partitions: it is written once for many of them.
        """
        wanted: dict[str, dict[TopicPartition, ReplicaAssignment]] = {}
        refused: dict[TopicPartition, KafkaError] = {}
        for number, (partition, target) in enumerate(targets.items(), 1):
            try:
                assignment = self._checked(partition, target)
                wanted.setdefault(partition.topic, {})[partition] = assignment
            except KafkaError as error:
                # Its traceback holds this frame, and that all errors: only the garbage collector would free them.
                refused[partition] = error.with_traceback(None)
            if number % PARTITIONS_PER_PAUSE == 0:
                yield Pause()
        for name, moves in _in_portions(wanted):
            refused |= yield from self._change(name, moves)
        return refused

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
        for name, moves in _in_portions(self._moving(partitions)):
            yield from self._run(name, moves)

    def maybe_complete(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Finish those whose target is in sync by now."""
        for name, moves in _in_portions(self._moving(partitions)):
            yield from self._finish(name, (yield from self._complete(moves)))

    def finish_unwritten(self, names: Collection[str]) -> Steps[None]:
        """Finish again what has its target alone, but others kept writing to the topic's node, which still says a move.

        Whoever reads it there, as the next controller or CreatePartitions, would take it to be under way.
        """
        state = self.do.state
        ended = yield from chosen(state.reassigning, lambda each: each.topic in names and self._is_unwritten(each))
        yield from self.maybe_complete(ended)

    def _is_unwritten(self, partition: TopicPartition) -> bool:
        assignment = self.do.state.assignment(partition)
        return assignment is not None and not assignment.is_being_reassigned

    def _moving(self, partitions: Iterable[TopicPartition]) -> dict[str, dict[TopicPartition, ReplicaAssignment]]:
        """Those that move, by topic."""
        state = self.do.state
        moves: dict[str, dict[TopicPartition, ReplicaAssignment]] = {}
        for partition in sorted(set(partitions) & state.reassigning):
            assignment = state.assignment(partition)
            if assignment is not None:
                moves.setdefault(partition.topic, {})[partition] = assignment
        return moves

    def _complete(self, moves: Assignments) -> Steps[dict[TopicPartition, ReplicaAssignment]]:
        """Those whose target is in sync, and one of it can lead."""
        complete = yield from chosen(moves, lambda partition: self._is_complete(partition, moves[partition]))
        return {each: moves[each] for each in complete}

    def _is_complete(self, partition: TopicPartition, assignment: ReplicaAssignment) -> bool:
        state = self.do.state
        known = state.leadership.get(partition)
        is_in_sync = known is not None and set(assignment.target) <= set(known.isr)
        return is_in_sync and bool(state.online(assignment.target, partition))

    def _change(self, name: str, wanted: Assignments) -> Steps[dict[TopicPartition, KafkaError]]:
        """U1 to U3: the topic's node, memory, and the end of replicas that an overridden move had added.

        Then on, where replicas move; where they are in another order only, another one is preferred. Those refused.
        """
        state = self.do.state
        changed = {each: assignment for each, assignment in wanted.items() if assignment != state.assignment(each)}
        try:
            if changed and not (yield from self._write_topic(name, changed)):
                text = "The topic's node is gone, or changes all the time."
                return dict.fromkeys(wanted, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))
        except TooLarge as error:  # before anything was changed: later writes are smaller
            if len(wanted) == 1:
                text = f"The move does not fit into the topic's znode: {error}."
                return dict.fromkeys(wanted, KafkaError(ErrorCode.INVALID_REQUEST, text))
            refused: dict[TopicPartition, KafkaError] = {}
            for each, assignment in wanted.items():  # some may fit; what is taken back makes room
                refused |= yield from self._change(name, {each: assignment})
            return refused
        moves = {
            each: assignment
            for each, assignment in wanted.items()
            if assignment.is_being_reassigned or each in state.reassigning
        }
        dropped = [
            (each, broker_id)
            for each, assignment in changed.items()
            for broker_id in state.replicas(each)
            if broker_id not in assignment.replicas
        ]
        for each, assignment in changed.items():
            state.set_assignment(each, assignment)
        state.reassigning.update(moves)
        yield from self._let_go(dropped)
        yield from self._bump({each: (changed[each].replicas, ()) for each in changed if each not in moves})
        yield from self._run(name, moves)
        return {}

    def _run(self, name: str, moves: Assignments) -> Steps[None]:
        """Begin or finish moves of a topic, whose node and memory say them."""
        if not moves:
            return
        self.deletion.mark_ineligible((name,))
        complete = yield from self._complete(moves)
        yield from self._finish(name, complete)
        yield from self._begin({each: assignment for each, assignment in moves.items() if each not in complete})

    def _let_go(self, dropped: Collection[Replica]) -> Steps[None]:
        """Brokers that are no replicas any more lead no longer, are in sync no longer, and delete what they have."""
        leadership = self.do.state.leadership
        led = [each for each, broker_id in dropped if each in leadership and leadership[each].leader == broker_id]
        if led:
            yield from self.do.bring_online(led, unclean=False)
        yield from self._drop_replicas(dropped)

    def let_strangers_go(self) -> Steps[None]:
        """End what a controller has begun that wrote that a move is taken back, and died: `_change`, what follows."""
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
            yield from self._let_go([(partition, each) for each in self._strangers(partition)])

    def _strangers(self, partition: TopicPartition) -> list[int]:
        """Members of the ISR that are no replicas."""
        replicas, isr = self.do.state.replicas(partition), self.do.state.leadership[partition].isr
        return [] if isr == replicas else [each for each in isr if each not in replicas]

    def _write_topic(self, name: str, assignments: Assignments) -> Steps[bool]:
        """Write replicas into the topic's node, which may hold newer partitions than we know."""
        state = self.do.state
        by_number = {each.partition: assignment for each, assignment in assignments.items()}

        def change(_name: str, known: TopicAssignment) -> TopicAssignment:
            return replace(known, partitions={**known.partitions, **by_number})

        written = yield from write_topics(state, {name: state.topic(name)}, change)
        return name in written

    def _drop_replicas(self, replicas: Collection[Replica]) -> Steps[None]:
        """Stop and delete replicas for good, without waiting for their brokers' answers."""
        state = self.do.state
        if not replicas:
            return
        for each in replicas:
            if state.replica_state(each) is ReplicaStatus.NON_EXISTENT:
                state.replica_status[each] = ReplicaStatus.NEW
        yield from self.do.move_replicas(replicas, ReplicaStatus.OFFLINE)
        yield from self.do.move_replicas(replicas, ReplicaStatus.DELETION_STARTED)
        yield from self.do.move_replicas(replicas, ReplicaStatus.DELETION_SUCCESSFUL)
        yield from self.do.move_replicas(replicas, ReplicaStatus.NON_EXISTENT)

    def _begin(self, moves: Assignments) -> Steps[None]:
        """Phase A: a new leader epoch that knows all replicas; the added ones start to follow."""
        status = self.do.state.replica_status
        told = {}
        for partition, assignment in moves.items():
            log.info("partition %s moves to brokers %s", partition, ", ".join(map(str, assignment.target)))
            added = assignment.adding_replicas
            told[partition] = [each for each in assignment.replicas if each not in added], added
        yield from self._bump(told)
        for partition, (_, added) in told.items():
            for each in added:
                status.setdefault((partition, each), ReplicaStatus.NEW)

    def _bump(self, told: Mapping[TopicPartition, tuple[Collection[int], Collection[int]]]) -> Steps[None]:
        """Write states with the next leader epochs, and tell them to brokers: to those there are, and to new ones."""
        state = self.do.state

        def decide(remaining: list[TopicPartition]) -> Steps[dict[TopicPartition, PartitionState]]:
            yield from ()
            known = {each: state.leadership[each] for each in remaining if each in state.leadership}
            return {
                each: replace(has, leader_epoch=has.leader_epoch + 1, controller_epoch=state.epoch)
                for each, has in known.items()
            }

        batch = self.do.batch()
        for partition in (yield from write_states(state, told, decide)):
            brokers, new = told[partition]
            batch.tell_leader_and_isr(brokers, partition)
            batch.tell_leader_and_isr(new, partition, is_new=True)
        yield from batch.send()

    def _finish(self, name: str, moves: Assignments) -> Steps[None]:
        """Phase B: only the targets are left."""
        if not moves:
            return
        state = self.do.state
        added = [(partition, each) for partition in moves for each in moves[partition].adding_replicas]
        known = [each for each in added if state.replica_state(each) is not ReplicaStatus.NON_EXISTENT]
        yield from self.do.move_replicas(known, ReplicaStatus.ONLINE)
        led = {}
        for partition, assignment in moves.items():
            target, leader = assignment.target, state.leadership[partition].leader
            state.set_assignment(partition, ReplicaAssignment(target))  # the target is told that it is all there is
            if leader in target and state.is_online(leader, partition):
                led[partition] = target, ()
        yield from self._bump(led)
        elected = yield from self.do.bring_online([each for each in moves if each not in led], Strategy.REASSIGN)
        over = []
        for partition, assignment in moves.items():
            if partition in led or partition in elected:
                over.append(partition)
            else:  # what leads now has to stay until somebody else can
                state.set_assignment(partition, assignment)
        if over:
            yield from self._drop_replicas([(each, gone) for each in over for gone in moves[each].removing_replicas])
            if (yield from self._write_topic(name, {each: ReplicaAssignment(moves[each].target) for each in over})):
                yield from self._over(name, over)  # else `finish_unwritten`, when we hear what others have written

    def _over(self, name: str, partitions: Collection[TopicPartition]) -> Steps[None]:
        state = self.do.state
        state.reassigning.difference_update(partitions)
        for number, partition in enumerate(partitions, 1):
            where = ", ".join(map(str, state.replicas(partition)))
            log.info("partition %s is on brokers %s now; %d still move", partition, where, len(state.reassigning))
            if number % PARTITIONS_PER_PAUSE == 0:
                yield Pause()
        yield from self.forget_legacy(partitions)
        yield from self.do.tell_metadata(partitions)
        yield from self.deletion.resume_for({name})

    # --- the legacy node ---

    def ask_legacy(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> Steps[None]:
        """/admin/reassign_partitions: begin all that can be; those refused or done leave the node."""
        self.legacy = dict(targets)
        refused = yield from self.ask(targets)
        reasons: dict[str, list[TopicPartition]] = {}
        for partition, refusal in refused.items():
            reasons.setdefault(refusal.message, []).append(partition)
        for reason, of_them in reasons.items():
            log.error("reassignment of %s refused: %s", few(of_them), reason)
        finished = [each for each in targets if each in refused or each not in self.do.state.reassigning]
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


def _in_portions(by_topic: Mapping[str, Assignments]) -> Iterator[tuple[str, Assignments]]:
    for name, assignments in by_topic.items():
        for portion in portions(list(assignments), MOVES_AT_ONCE):
            yield name, {each: assignments[each] for each in portion}


def list_reassignments(
    state: ControllerState, request: ListPartitionReassignmentsRequest
) -> Generator[None, None, ListPartitionReassignmentsResponse]:
    """The moves under way, of all partitions (topics null) or of those asked for, in steps."""
    if request.topics is None:
        wanted: Iterable[TopicPartition] = list(state.reassigning)
    else:
        wanted = (TopicPartition(topic.name, each) for topic in request.topics for each in topic.partition_indexes)
    answered = ListPartitionReassignmentsResponse
    topics: dict[str, list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment]] = {}
    for partition in wanted:
        yield
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
    found = []
    for name in sorted(topics):
        yield
        partitions = sorted(topics[name], key=attrgetter("partition_index"))
        found.append(answered.OngoingTopicReassignment(name=name, partitions=partitions))
    return answered(throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, topics=found)
