"""The life of a partition, from its creation through elections to its deletion (procedures, pure).

    NonExistent ─▶ New ─▶ Online ◀─▶ Offline ─▶ NonExistent
                          └──┘ election

New → Online makes the state node (leader: the first live replica); into Online from anywhere else is an election.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kbroker.controller.election import Elected, Strategy, elect, needs_unclean
from kbroker.controller.events import PartitionStatesWritten, TopicConfigsRead
from kbroker.controller.guarded_writes import write_states
from kbroker.controller.instructions import CreatePartitionStates, Pause, ReadTopicConfigs, Steps
from kbroker.controller.pacing import PARTITIONS_PER_PAUSE, chosen
from kbroker.controller.request_batch import RequestBatch
from kbroker.controller.state import ControllerState, PartitionStatus
from kbroker.controller.wording import count, few
from kbroker.controller.znodes import Conflict, PartitionState, TopicPartition

log = logging.getLogger(__name__)

_UNCLEAN_KEY = "unclean.leader.election.enable"

VALID_PREVIOUS: Mapping[PartitionStatus, frozenset[PartitionStatus]] = {
    PartitionStatus.NEW: frozenset({PartitionStatus.NON_EXISTENT}),
    PartitionStatus.ONLINE: frozenset({PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}),
    PartitionStatus.OFFLINE: frozenset({PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}),
    PartitionStatus.NON_EXISTENT: frozenset({PartitionStatus.OFFLINE}),
}
"""A status and those a partition may come from; any other transition is skipped and logged."""


@dataclass(slots=True)
class PartitionMoves:
    """Moves partitions from status to status, and lets a batch collect who has to hear of it."""

    state: ControllerState
    batch: RequestBatch
    unclean_by_default: bool = False
    unclean_elections: int = 0
    """Leaders that were not in sync."""

    def set_status(self, partitions: Iterable[TopicPartition], target: PartitionStatus) -> None:
        """Into New, Offline or NonExistent: nothing is written and nobody told."""
        for partition in self._valid(partitions, target):
            self.state.set_status(partition, target)

    def _valid(self, partitions: Iterable[TopicPartition], target: PartitionStatus) -> list[TopicPartition]:
        valid = []
        for partition in partitions:
            status = self.state.status(partition)
            if status in VALID_PREVIOUS[target]:
                valid.append(partition)
            else:
                log.error("partition %s cannot go from %s to %s", partition, status.value, target.value)
        return valid

    def bring_online(
        self, partitions: Iterable[TopicPartition], strategy: Strategy = Strategy.OFFLINE, *, unclean: bool = True
    ) -> Steps[set[TopicPartition]]:
        """Give partitions a leader; returns those that got one.

        `unclean=False` never elects out of the ISR, whatever the topic's configuration says.
        """
        valid = self._valid(partitions, PartitionStatus.ONLINE)
        new = [each for each in valid if self.state.status(each) is PartitionStatus.NEW]
        known = [each for each in valid if self.state.status(each) is not PartitionStatus.NEW]
        succeeded = set()
        if new:
            succeeded |= yield from self._initialise(new)
        if known:
            succeeded |= yield from self._elect(known, strategy, unclean)
        return succeeded

    def _initialise(self, partitions: list[TopicPartition]) -> Steps[set[TopicPartition]]:
        """First leaders: the first live replica, all live ones in sync. With none live the partition stays New."""
        states, waiting = {}, []
        for number, partition in enumerate(partitions, 1):
            live = self.state.online(self.state.replicas(partition), partition)
            if live:
                states[partition] = PartitionState(live[0], 0, tuple(live), self.state.epoch)
            else:
                waiting.append(partition)
            if number % PARTITIONS_PER_PAUSE == 0:
                yield Pause()
        if waiting:
            log.warning("%s not made yet, no replica is live: %s", count(len(waiting), "partition"), few(waiting))
        if not states:
            return set()
        written: PartitionStatesWritten = yield CreatePartitionStates(states)
        succeeded = set()
        for number, (partition, result) in enumerate(written.results.items(), 1):
            if isinstance(result, Conflict):
                log.error("partition %s got no first leader, ZooKeeper holds %s", partition, result.current)
                continue
            self.state.take(partition, result)
            self._lead(partition, result.isr, is_new=True)
            succeeded.add(partition)
            if number % PARTITIONS_PER_PAUSE == 0:
                yield Pause()
        return succeeded

    def _lead(self, partition: TopicPartition, recipients: tuple[int, ...], *, is_new: bool) -> None:
        self.state.set_status(partition, PartitionStatus.ONLINE)
        self.batch.tell_leader_and_isr(recipients, partition, is_new=is_new)

    def _elect(self, partitions: list[TopicPartition], strategy: Strategy, unclean: bool) -> Steps[set[TopicPartition]]:
        """Elections; a state that changed in ZooKeeper meanwhile is taken over and the election held again."""
        elections: dict[TopicPartition, Elected] = {}
        out_of_sync: set[TopicPartition] = set()

        def decide(remaining: list[TopicPartition]) -> Steps[dict[TopicPartition, PartitionState]]:
            uncleanly: set[TopicPartition] = set()
            if strategy is Strategy.OFFLINE and unclean:
                uncleanly = yield from self._allowed_unclean(remaining)
            held = yield from self._candidates(remaining, strategy, uncleanly)
            elections.update(held)
            for partition, elected in held.items():
                if elected.state.leader in self.state.leadership[partition].isr:
                    out_of_sync.discard(partition)
                else:
                    out_of_sync.add(partition)
            return {partition: elected.state for partition, elected in held.items()}

        known = [each for each in partitions if each in self.state.leadership]
        written = yield from write_states(self.state, known, decide)
        for partition in written:
            self._lead(partition, elections[partition].recipients, is_new=False)
            self.unclean_elections += partition in out_of_sync
        return set(written)

    def _candidates(
        self, partitions: list[TopicPartition], strategy: Strategy, uncleanly: set[TopicPartition]
    ) -> Steps[dict[TopicPartition, Elected]]:
        state = self.state
        elections = {}
        for number, partition in enumerate(partitions, 1):
            assignment = state.assignment(partition)
            assert assignment is not None, f"{partition} has a state and no assignment"
            elected = elect(
                strategy,
                state.leadership[partition],
                assignment,
                lambda broker_id, partition=partition: state.is_online(broker_id, partition),  # type: ignore[misc]
                serving=[each for each in assignment.replicas if state.can_serve(each, partition)],
                shutting_down=state.shutting_down,
                unclean_allowed=partition in uncleanly,
                controller_epoch=state.epoch,
            )
            if elected is not None:
                elections[partition] = elected
            if number % PARTITIONS_PER_PAUSE == 0:
                yield Pause()
        return elections

    def _allowed_unclean(self, partitions: list[TopicPartition]) -> Steps[set[TopicPartition]]:
        """Those without a live member in the ISR whose topic lets another replica lead; data may be lost then."""
        state = self.state

        def is_in_need(partition: TopicPartition) -> bool:
            nobody_is_in_sync = needs_unclean(
                state.leadership[partition], lambda broker_id: state.is_online(broker_id, partition)
            )
            return nobody_is_in_sync and bool(state.online(state.replicas(partition), partition))

        in_need = yield from chosen(partitions, is_in_need)
        if not in_need:
            return set()
        topics = tuple(dict.fromkeys(each.topic for each in in_need))
        read: TopicConfigsRead = yield ReadTopicConfigs(topics)
        allowed = {topic: self._is_unclean(read.configs.get(topic, {})) for topic in topics}
        return {each for each in in_need if allowed[each.topic]}

    def _is_unclean(self, overrides: Mapping[str, str]) -> bool:
        value = overrides.get(_UNCLEAN_KEY)
        return self.unclean_by_default if value is None else value.strip().lower() == "true"
