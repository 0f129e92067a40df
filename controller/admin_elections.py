"""Elections without a failure: administrators', the automatic rebalance, unclean ones (procedures, pure)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kbroker.controller.election import Strategy
from kbroker.controller.instructions import Pause, Steps
from kbroker.controller.pacing import PARTITIONS_PER_PAUSE, chosen
from kbroker.controller.state import PartitionStatus
from kbroker.controller.transitions import Transitions
from kbroker.controller.znodes import TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.reassignments import ElectLeadersRequest, ElectLeadersResponse

log = logging.getLogger(__name__)

STRATEGIES = {0: Strategy.PREFERRED, 1: Strategy.UNCLEAN}
"""Election types on the wire. There are no others."""
ELECTION_REFUSALS = {
    ErrorCode.INVALID_REQUEST: "Unknown election type.",
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "The partition does not exist.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic is being deleted.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
}
"""What the tool for elections shows."""


@dataclass(frozen=True, slots=True)
class ElectionsHeld:
    """The answer to an ElectLeaders request, and what metadata caches have to show before it is given."""

    response: ElectLeadersResponse
    leader_epochs: dict[TopicPartition, int] = field(default_factory=dict)
    """Of the partitions that got a leader."""


@dataclass(slots=True)
class AdminElections:
    """Moves leadership without a failure."""

    do: Transitions

    def asked(self, request: ElectLeadersRequest) -> Steps[ElectionsHeld]:
        """Hold the elections of a request; without partitions all are meant, and those that need none are left out."""
        strategy = STRATEGIES.get(request.election_type)
        if strategy is None:
            return refuse_elections(request, ErrorCode.INVALID_REQUEST)
        state = self.do.state
        if request.topic_partitions is not None:
            results = yield from self.elect(strategy, _partitions(request))
        else:
            results = yield from self.elect(strategy, list(state.partitions()))
            results = {each: code for each, code in results.items() if code is not ErrorCode.ELECTION_NOT_NEEDED}
        held = [each for each, code in results.items() if code is ErrorCode.NONE]
        response = yield from _responding(results)
        return ElectionsHeld(response, {each: state.leadership[each].leader_epoch for each in held})

    def elect(self, strategy: Strategy, partitions: Iterable[TopicPartition]) -> Steps[dict[TopicPartition, ErrorCode]]:
        """PREFERRED or UNCLEAN elections; NONE for those held, else why not."""
        results: dict[TopicPartition, ErrorCode] = {}
        for partition in partitions:
            results[partition] = self._refusal(strategy, partition)
            if len(results) % PARTITIONS_PER_PAUSE == 0:
                yield Pause()
        wanted = [each for each, code in results.items() if code is ErrorCode.NONE]
        if not wanted:
            return results
        if strategy is Strategy.UNCLEAN:
            online = [each for each in wanted if self.do.state.status(each) is PartitionStatus.ONLINE]
            self.do.set_partition_status(online, PartitionStatus.OFFLINE)
        succeeded = yield from self.do.bring_online(wanted, strategy)
        failure = (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            if strategy is Strategy.PREFERRED
            else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
        results.update({each: failure for each in wanted if each not in succeeded})
        return results

    def _refusal(self, strategy: Strategy, partition: TopicPartition) -> ErrorCode:
        state = self.do.state
        if state.assignment(partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if state.is_being_deleted(partition.topic):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        known = state.leadership.get(partition)
        if known is None:
            return ErrorCode.NONE
        if strategy is Strategy.PREFERRED:
            is_needed = known.leader != state.replicas(partition)[0]
        else:
            is_needed = not state.is_online(known.leader, partition)
        return ErrorCode.NONE if is_needed else ErrorCode.ELECTION_NOT_NEEDED

    def rebalance(self) -> Steps[None]:
        """Give preferred leaders back what they can lead, where a broker is missing too much of it."""
        state = self.do.state
        preferred: Counter[int] = Counter()
        elsewhere: dict[int, list[TopicPartition]] = {}
        for number, partition in enumerate(state.partitions(), 1):
            known = state.leadership.get(partition)
            if known is not None and not state.is_being_deleted(partition.topic):
                first = state.replicas(partition)[0]
                preferred[first] += 1
                if known.leader != first:
                    elsewhere.setdefault(first, []).append(partition)
            if number % PARTITIONS_PER_PAUSE == 0:
                yield Pause()
        for broker_id, partitions in sorted(elsewhere.items()):
            allowed = self.do.config.leader_imbalance_per_broker_percentage / 100
            if len(partitions) / preferred[broker_id] <= allowed:
                continue
            possible = yield from chosen(partitions, self._can_have_its_first)
            if possible:
                log.info("broker %d prefers to lead %d more", broker_id, len(possible))
                yield from self.do.bring_online(possible, Strategy.PREFERRED)

    def _can_have_its_first(self, partition: TopicPartition) -> bool:
        state = self.do.state
        broker_id = state.replicas(partition)[0]
        is_in_sync = broker_id in state.leadership[partition].isr
        return is_in_sync and partition not in state.reassigning and state.is_online(broker_id, partition)

    def unclean_enabled(self, topic: str | None) -> Steps[None]:
        """Partitions without a leader get a chance again."""
        if topic is None:
            yield from self.do.elect_leaderless()
            return
        offline = (PartitionStatus.OFFLINE, PartitionStatus.NEW)
        state = self.do.state
        waiting = [each for each in state.partitions_of(topic) if state.status(each) in offline]
        waiting = [each for each in waiting if state.is_elected(each)]
        if waiting:
            yield from self.do.bring_online(waiting)


def refuse_elections(request: ElectLeadersRequest, code: ErrorCode) -> ElectionsHeld:
    """No elections at all, and why; the first versions of the answer have a code per partition only."""
    results = dict.fromkeys(_partitions(request), code)
    return ElectionsHeld(_response(results, code))


def _partitions(request: ElectLeadersRequest) -> Iterator[TopicPartition]:
    topics = request.topic_partitions or ()
    return (TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions)


def _response(results: dict[TopicPartition, ErrorCode], code: ErrorCode = ErrorCode.NONE) -> ElectLeadersResponse:
    topics: dict[str, list[ElectLeadersResponse.PartitionResult]] = {}
    for partition, result in results.items():
        topics.setdefault(partition.topic, []).append(_told(partition, result))
    return _of_topics(topics, code)


def _responding(results: dict[TopicPartition, ErrorCode]) -> Steps[ElectLeadersResponse]:
    """Make the response with pauses."""
    topics: dict[str, list[ElectLeadersResponse.PartitionResult]] = {}
    for number, (partition, result) in enumerate(results.items(), 1):
        topics.setdefault(partition.topic, []).append(_told(partition, result))
        if number % PARTITIONS_PER_PAUSE == 0:
            yield Pause()
    return _of_topics(topics, ErrorCode.NONE)


def _told(partition: TopicPartition, result: ErrorCode) -> ElectLeadersResponse.PartitionResult:
    return ElectLeadersResponse.PartitionResult(
        partition_id=partition.partition,
        error_code=result,
        error_message=None if result is ErrorCode.NONE else ELECTION_REFUSALS.get(result, result.name),
    )


def _of_topics(topics: dict[str, list[ElectLeadersResponse.PartitionResult]], code: ErrorCode) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        throttle_time_ms=0,
        error_code=code,
        replica_election_results=[
            ElectLeadersResponse.ReplicaElectionResult(topic=topic, partition_result=partitions)
            for topic, partitions in topics.items()
        ],
    )
