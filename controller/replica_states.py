"""The life of a replica, from its creation to its deletion (procedures, pure).

NonExistent ─▶ New ─▶ Online ◀─▶ Offline ─▶ DeletionStarted ─▶ DeletionSuccessful ─▶ NonExistent
                         ▲          ▲  ▼           ▼
                         └──────── DeletionIneligible
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kbroker.controller.guarded_writes import write_states
from kbroker.controller.instructions import Pause, Steps
from kbroker.controller.pacing import PARTITIONS_PER_PAUSE, chosen
from kbroker.controller.request_batch import RequestBatch
from kbroker.controller.state import ControllerState, Replica, ReplicaStatus
from kbroker.controller.znodes import NO_LEADER, PartitionState, TopicPartition

log = logging.getLogger(__name__)

_ALIVE = frozenset({ReplicaStatus.NEW, ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_INELIGIBLE})

VALID_PREVIOUS: Mapping[ReplicaStatus, frozenset[ReplicaStatus]] = {
    ReplicaStatus.NEW: frozenset({ReplicaStatus.NON_EXISTENT}),
    ReplicaStatus.ONLINE: _ALIVE,
    ReplicaStatus.OFFLINE: _ALIVE,
    ReplicaStatus.DELETION_STARTED: frozenset({ReplicaStatus.OFFLINE}),
    ReplicaStatus.DELETION_SUCCESSFUL: frozenset({ReplicaStatus.DELETION_STARTED}),
    ReplicaStatus.DELETION_INELIGIBLE: frozenset({ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED}),
    ReplicaStatus.NON_EXISTENT: frozenset({ReplicaStatus.DELETION_SUCCESSFUL}),
}
"""A status and those a replica may come from; any other transition is skipped and logged."""


@dataclass(slots=True)
class ReplicaMoves:
    """Moves replicas from status to status, and lets a batch collect who has to hear of it."""

    state: ControllerState
    batch: RequestBatch

    def move(self, replicas: Iterable[Replica], target: ReplicaStatus) -> Steps[dict[int, list[TopicPartition]]]:
        """Into any status. Into Offline also takes the replica out of the ISR; returns which ISRs a broker left."""
        valid = []
        for number, replica in enumerate(replicas, 1):
            if self._is_valid(replica, target):
                valid.append(replica)
                self._act(*replica, target)
            if number % PARTITIONS_PER_PAUSE == 0:
                yield Pause()
        if target is not ReplicaStatus.OFFLINE:
            return {}
        by_broker: dict[int, list[TopicPartition]] = {}
        for partition, broker_id in valid:
            by_broker.setdefault(broker_id, []).append(partition)
        left = {}
        for broker_id, partitions in by_broker.items():
            left[broker_id] = yield from self._leave_isr(broker_id, partitions)
        return {broker_id: partitions for broker_id, partitions in left.items() if partitions}

    def _is_valid(self, replica: Replica, target: ReplicaStatus) -> bool:
        status = self.state.replica_state(replica)
        if status in VALID_PREVIOUS[target]:
            return True
        log.error("replica %d of %s cannot go from %s to %s", replica[1], replica[0], status.value, target.value)
        return False

    def _act(self, partition: TopicPartition, broker_id: int, target: ReplicaStatus) -> None:
        state, batch = self.state, self.batch
        status = state.replica_state((partition, broker_id))
        known = state.leadership.get(partition)
        if target is ReplicaStatus.NEW and known is not None:
            if known.leader == broker_id:
                log.error("replica %d of %s cannot be new: it leads", broker_id, partition)
                return
            batch.tell_leader_and_isr((broker_id,), partition, is_new=True)
        elif target is ReplicaStatus.ONLINE and status is not ReplicaStatus.NEW and known is not None:
            batch.tell_leader_and_isr((broker_id,), partition)
        elif target is ReplicaStatus.OFFLINE:
            batch.tell_stop_replica(broker_id, partition, delete=False)
        elif target is ReplicaStatus.DELETION_STARTED:
            batch.tell_stop_replica(broker_id, partition, delete=True)
        elif target is ReplicaStatus.NON_EXISTENT:
            self._forget(partition, broker_id)
            return
        state.replica_status[partition, broker_id] = target

    def _forget(self, partition: TopicPartition, broker_id: int) -> None:
        assignment = self.state.assignment(partition)
        if assignment is not None:
            left = tuple(each for each in assignment.replicas if each != broker_id)
            self.state.set_assignment(partition, replace(assignment, replicas=left))
        self.state.replica_status.pop((partition, broker_id), None)

    def _leave_isr(self, broker_id: int, partitions: list[TopicPartition]) -> Steps[list[TopicPartition]]:
        """Shrink the ISRs the replica is in, but where none of the others is there.

        Somebody has to know what was acknowledged: of members that are all gone each does, and the first to be back
        may lead (KIP-966 calls them eligible). Kafka's ZooKeeper mode keeps one alone, the last one it looks at.
        """
        state = self.state
        self.batch.tell_metadata(each for each in partitions if each in state.leadership)
        staying = yield from chosen(partitions, lambda each: not state.is_going(each.topic))

        def decide(remaining: list[TopicPartition]) -> Steps[dict[TopicPartition, PartitionState]]:
            yield from ()
            known = {each: state.leadership[each] for each in remaining if each in state.leadership}
            return {each: self._without(each, has, broker_id) for each, has in known.items() if broker_id in has.isr}

        left = yield from write_states(state, staying, decide)
        for partition in left:
            others = [each for each in state.replicas(partition) if each != broker_id]
            self.batch.tell_leader_and_isr(others, partition)
        return [each for each in left if broker_id not in state.leadership[each].isr]

    def _without(self, partition: TopicPartition, known: PartitionState, broker_id: int) -> PartitionState:
        replicas = self.state.replicas(partition)
        others = tuple(each for each in known.isr if each != broker_id)
        heirs = [each for each in others if each in replicas]  # what a move took back has left may still be in the ISR
        if broker_id in replicas:
            heirs = [each for each in heirs if self.state.can_serve(each, partition)]
        return PartitionState(
            leader=NO_LEADER if known.leader == broker_id else known.leader,
            leader_epoch=known.leader_epoch + 1,
            isr=others if heirs else known.isr,
            controller_epoch=self.state.epoch,
            partition_epoch=known.partition_epoch,
            leader_recovery_state=known.leader_recovery_state,
        )
