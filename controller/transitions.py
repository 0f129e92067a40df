"""Whole transitions, told to the brokers in portions: what the larger procedures are made of (pure).

Portions keep requests small: neither we nor the brokers stand still over thousands of partitions, and the first ones
are led again while the last are still elected.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kbroker.controller.controller_config import ControllerConfig
from kbroker.controller.election import Strategy
from kbroker.controller.instructions import Steps
from kbroker.controller.partition_states import PartitionMoves
from kbroker.controller.replica_states import ReplicaMoves
from kbroker.controller.request_batch import RequestBatch
from kbroker.controller.state import ControllerState, PartitionStatus, Replica, ReplicaStatus
from kbroker.controller.wording import count, few, spread
from kbroker.controller.znodes import TopicPartition

log = logging.getLogger(__name__)

PORTION = 1000

T = TypeVar("T")


@dataclass(slots=True)
class Transitions:
    """The state, who we are, and the moves on it."""

    broker_id: int
    config: ControllerConfig
    state: ControllerState = field(default_factory=ControllerState)

    def batch(self) -> RequestBatch:
        """An empty batch of requests."""
        return RequestBatch(self.state, self.broker_id, self.config.inter_broker_listener_name)

    def set_partition_status(self, partitions: Iterable[TopicPartition], target: PartitionStatus) -> None:
        """Partitions into New, Offline or NonExistent."""
        PartitionMoves(self.state, self.batch()).set_status(partitions, target)

    def bring_online(
        self,
        partitions: Iterable[TopicPartition],
        strategy: Strategy = Strategy.OFFLINE,
        *,
        unclean: bool = True,
        at_once: int = PORTION,
    ) -> Steps[set[TopicPartition]]:
        """Give partitions leaders, so many at once; returns those that got one."""
        state = self.state
        wanted = list(partitions)
        elections = [each for each in wanted if state.status(each) is not PartitionStatus.NEW]
        succeeded: set[TopicPartition] = set()
        for portion in portions(wanted, at_once):
            batch = self.batch()
            moves = PartitionMoves(state, batch, self.config.unclean_leader_election_enable)
            succeeded |= yield from moves.bring_online(portion, strategy, unclean=unclean)
            yield from batch.send()
        led = [(each, state.leadership[each].leader) for each in elections if each in succeeded]
        if led:
            log.info("leaders elected (%s): %s", strategy.value, spread(led))
        failed = [each for each in elections if each not in succeeded]
        if failed:
            log.warning("nobody can lead %s (%s): %s", count(len(failed), "partition"), strategy.value, few(failed))
        return succeeded

    def elect_leaderless(self) -> Steps[set[TopicPartition]]:
        """Elections for all partitions that are New or Offline."""
        waiting = (PartitionStatus.NEW, PartitionStatus.OFFLINE)
        status_of = self.state.partition_status
        partitions = [each for each, has in status_of.items() if has in waiting and self.state.is_elected(each)]
        if not partitions:
            return set()
        return (yield from self.bring_online(partitions))

    def move_replicas(
        self,
        replicas: Iterable[Replica],
        target: ReplicaStatus,
        *,
        at_once: int = PORTION,
        stop_first: bool = False,
    ) -> Steps[None]:
        """Replicas into a status, so many at once; `stop_first`: their brokers are told before anything is written."""
        left: dict[int, list[TopicPartition]] = {}
        for portion in portions(list(replicas), at_once):
            if stop_first:
                batch = self.batch()
                for partition, broker_id in portion:
                    batch.tell_stop_replica(broker_id, partition, delete=False)
                yield from batch.send()
            batch = self.batch()
            for broker_id, partitions in (yield from ReplicaMoves(self.state, batch).move(portion, target)).items():
                left.setdefault(broker_id, []).extend(partitions)
            yield from batch.send()
        for broker_id, partitions in left.items():
            log.info("broker %d is out of %s: %s", broker_id, count(len(partitions), "ISR"), few(partitions))

    def tell_metadata(
        self, partitions: Iterable[TopicPartition] = (), broker_ids: Iterable[int] | None = None
    ) -> Steps[None]:
        """UpdateMetadata with these partitions, to all brokers (None) or some."""
        batch = self.batch()
        batch.tell_metadata(partitions, broker_ids)
        yield from batch.send()


def portions(things: Sequence[T], size: int = PORTION) -> Iterator[Sequence[T]]:
    """As many at once as one round of requests tells of."""
    for first in range(0, len(things), size):
        yield things[first : first + size]
