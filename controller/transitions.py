"""Whole transitions, told to the brokers in portions: what the larger procedures are made of (pure).

Portions let the first partitions be led again while the last are still elected; they are large enough for each broker
to hear of many at once.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice

from kbroker.controller.controller_config import ControllerConfig
from kbroker.controller.election import Strategy
from kbroker.controller.instructions import Pause, Steps
from kbroker.controller.pacing import PARTITIONS_PER_PAUSE, chosen, portions
from kbroker.controller.partition_states import PartitionMoves
from kbroker.controller.replica_states import ReplicaMoves
from kbroker.controller.request_batch import RequestBatch
from kbroker.controller.state import ControllerState, PartitionStatus, Replica, ReplicaStatus
from kbroker.controller.wording import Tally, count, few
from kbroker.controller.znodes import TopicPartition

log = logging.getLogger(__name__)

PORTION = 1000


@dataclass(slots=True)
class Transitions:
    """The state, who we are, and the moves on it."""

    broker_id: int
    config: ControllerConfig
    state: ControllerState = field(default_factory=ControllerState)
    unclean_elections: int = 0
    """Leaders that were not in sync, of all terms."""

    def batch(self) -> RequestBatch:
        """An empty batch of requests."""
        return RequestBatch(self.state, self.broker_id, self.config.inter_broker_listener_name)

    def set_partition_status(self, partitions: Iterable[TopicPartition], target: PartitionStatus) -> None:
        """Partitions into New, Offline or NonExistent."""
        PartitionMoves(self.state, self.batch()).set_status(partitions, target)

    def at_once(self, size: int = PORTION) -> int:
        """How many partitions make a round: more where there are more brokers to share the requests."""
        return size * max(1, len(self.state.brokers) // 10)

    def bring_online(
        self,
        partitions: Iterable[TopicPartition],
        strategy: Strategy = Strategy.OFFLINE,
        *,
        unclean: bool = True,
        at_once: int = PORTION,
        whole_topics: bool = False,
    ) -> Steps[set[TopicPartition]]:
        """Give partitions leaders, so many at once; returns those that got one.

        `whole_topics`: all brokers are told of the topics' other partitions, too.
        """
        state = self.state
        succeeded: set[TopicPartition] = set()
        told: set[str] = set()
        led = Tally()
        failed: list[TopicPartition] = []
        for portion in portions(list(partitions), self.at_once(at_once)):
            elections = yield from chosen(portion, lambda each: state.status(each) is not PartitionStatus.NEW)
            batch = self.batch()
            moves = PartitionMoves(state, batch, self.config.unclean_leader_election_enable)
            succeeded |= yield from moves.bring_online(portion, strategy, unclean=unclean)
            self.unclean_elections += moves.unclean_elections
            if whole_topics:
                topics = {each.topic: None for each in portion if each.topic not in told}
                told.update(topics)
                batch.tell_metadata(each for topic in topics for each in state.partitions_of(topic))
            yield from batch.send()
            for each in elections:
                if each in succeeded:
                    led.add(each, state.leadership[each].leader)
                else:
                    failed.append(each)
        if led:
            log.info("leaders elected (%s): %s", strategy.value, led)
        if failed:
            log.warning("nobody can lead %s (%s): %s", count(len(failed), "partition"), strategy.value, few(failed))
        return succeeded

    def elect_leaderless(self, whole_topics: bool = False) -> Steps[set[TopicPartition]]:
        """Elections for all partitions that are New or Offline."""
        partitions = yield from chosen(tuple(self.state.leaderless), self.state.is_elected)
        if not partitions:
            return set()
        return (yield from self.bring_online(partitions, whole_topics=whole_topics))

    def move_replicas(
        self,
        replicas: Iterable[Replica],
        target: ReplicaStatus,
        *,
        at_once: int = PORTION,
        stop_first: bool = False,
    ) -> Steps[None]:
        """Replicas into a status; `stop_first`: their brokers are told before anything is written.

        Into Offline, which writes, so many at once; otherwise all at once, in as few requests as may be.
        """
        moving = list(replicas)
        left: dict[int, list[TopicPartition]] = {}
        size = self.at_once(at_once) if target is ReplicaStatus.OFFLINE else max(len(moving), 1)
        for portion in portions(moving, size):
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
        self, partitions: Iterable[TopicPartition] = (), broker_ids: Collection[int] | None = None
    ) -> Steps[None]:
        """UpdateMetadata with these partitions, to all brokers (None) or some; without any it tells of the brokers."""
        batch = self.batch()
        batch.tell_metadata(broker_ids=broker_ids)
        left = iter(partitions)
        while portion := list(islice(left, PARTITIONS_PER_PAUSE)):
            batch.tell_metadata(portion, broker_ids)
            if len(portion) == PARTITIONS_PER_PAUSE:
                yield Pause()
        yield from batch.send()
