"""Whole transitions, each with its own batch of requests: what the larger procedures are made of (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from controller.controller_config import ControllerConfig
from controller.election import Strategy
from controller.instructions import Steps
from controller.partition_states import PartitionMoves
from controller.replica_states import ReplicaMoves
from controller.request_batch import RequestBatch
from controller.state import ControllerState, PartitionStatus, Replica, ReplicaStatus
from controller.znodes import TopicPartition


@dataclass(slots=True)
class Transitions:
    """The state, who we are, and the moves on it."""

    broker_id: int
    config: ControllerConfig
    state: ControllerState = field(default_factory=ControllerState)

    def batch(self) -> RequestBatch:
        """An empty batch of requests."""
        return RequestBatch(self.state, self.broker_id, self.config.listener_name)

    def set_partition_status(self, partitions: Iterable[TopicPartition], target: PartitionStatus) -> None:
        """Partitions into New, Offline or NonExistent."""
        PartitionMoves(self.state, self.batch()).set_status(partitions, target)

    def bring_online(
        self, partitions: Iterable[TopicPartition], strategy: Strategy = Strategy.OFFLINE, *, unclean: bool = True
    ) -> Steps[set[TopicPartition]]:
        """Give partitions leaders; returns those that got one."""
        batch = self.batch()
        moves = PartitionMoves(self.state, batch, self.config.unclean_leader_election_enable)
        succeeded = yield from moves.bring_online(partitions, strategy, unclean=unclean)
        yield from batch.send()
        return succeeded

    def elect_leaderless(self) -> Steps[set[TopicPartition]]:
        """Elections for all partitions that are New or Offline, but for topics being deleted."""
        waiting = (PartitionStatus.NEW, PartitionStatus.OFFLINE)
        partitions = [
            each
            for each, status in self.state.partition_status.items()
            if status in waiting and not self.state.is_being_deleted(each.topic)
        ]
        if not partitions:
            return set()
        return (yield from self.bring_online(partitions))

    def move_replicas(self, replicas: Iterable[Replica], target: ReplicaStatus) -> Steps[None]:
        """Replicas into a status."""
        batch = self.batch()
        yield from ReplicaMoves(self.state, batch).move(replicas, target)
        yield from batch.send()

    def tell_metadata(
        self, partitions: Iterable[TopicPartition] = (), broker_ids: Iterable[int] | None = None
    ) -> Steps[None]:
        """UpdateMetadata with these partitions, to all brokers (None) or some."""
        batch = self.batch()
        batch.tell_metadata(partitions, broker_ids)
        yield from batch.send()
