"""AlterPartition: a leader wants to shrink or expand an ISR (procedures, pure).

The leader epoch stays as it is, only the partition epoch moves: the write happens when the state node still has the
version that the leader knew. The answer says per partition what is true now, or why the change was refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kbroker.controller.events import PartitionStatesRead, PartitionStatesWritten
from kbroker.controller.guarded_writes import adopt_state
from kbroker.controller.instructions import Pause, ReadPartitionStates, Steps, WritePartitionStates
from kbroker.controller.pacing import PARTITIONS_PER_PAUSE
from kbroker.controller.state import ControllerState
from kbroker.controller.transitions import Transitions
from kbroker.controller.znodes import RECOVERED, RECOVERING, PartitionState, TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.replication import AlterPartitionRequest, AlterPartitionResponse

_TOPIC_IDS_SINCE = 2
_BROKER_EPOCHS_SINCE = 3


@dataclass(frozen=True, slots=True)
class WantedChange:
    """One partition of the request, whatever its version."""

    partition: TopicPartition
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int
    partition_epoch: int
    broker_epochs: Mapping[int, int] = field(default_factory=dict)
    """Of members of the ISR, where the leader knows in which life it last heard them (KIP-903)."""

    def is_heard_alive(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether the leader may have heard the broker in this life: what it had in one before says nothing."""
        return self.broker_epochs.get(broker_id, -1) in (-1, broker_epoch)


def judge(state: ControllerState, wanted: WantedChange, version: int) -> PartitionState | ErrorCode:
    """The state to be written; an error; or the known state itself when the change has been made already."""
    known = state.leadership.get(wanted.partition)
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if wanted.partition_epoch > known.partition_epoch or wanted.leader_epoch > known.leader_epoch:
        return ErrorCode.NOT_CONTROLLER
    if wanted.leader_epoch < known.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    is_same = wanted.isr == known.isr and wanted.leader_recovery_state == known.leader_recovery_state
    if is_same and wanted.leader == known.leader:
        return known
    if wanted.partition_epoch < known.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if not wanted.isr or wanted.leader not in wanted.isr:
        return ErrorCode.INVALID_REQUEST
    if wanted.leader_recovery_state == RECOVERING and (len(wanted.isr) > 1 or known.leader_recovery_state == RECOVERED):
        return ErrorCode.INVALID_REQUEST
    # Only who comes in must be live: a leader about to stop whose followers are back has to take them in, or it could
    # never hand over.
    coming = set(wanted.isr) - set(known.isr)
    may_come = all(state.is_live(each) and wanted.is_heard_alive(each, state.brokers[each].epoch) for each in coming)
    if not may_come or not set(wanted.isr) <= set(state.replicas(wanted.partition)):
        has_own_code = version >= _TOPIC_IDS_SINCE
        return ErrorCode.INELIGIBLE_REPLICA if has_own_code else ErrorCode.OPERATION_NOT_ATTEMPTED
    return PartitionState(
        leader=known.leader,
        leader_epoch=known.leader_epoch,
        isr=wanted.isr,
        controller_epoch=state.epoch,
        partition_epoch=known.partition_epoch,
        leader_recovery_state=wanted.leader_recovery_state,
    )


@dataclass(slots=True)
class IsrChanges:
    """Carries changes out and answers for them."""

    do: Transitions

    def refusal(self, request: AlterPartitionRequest) -> ErrorCode | None:
        """Why the whole request is refused, None when it is not."""
        broker = self.do.state.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        return None

    def alter(
        self, request: AlterPartitionRequest, version: int
    ) -> Steps[tuple[AlterPartitionResponse, list[TopicPartition]]]:
        """Make the changes that can be made; all brokers' metadata hear of them. The answer, and what it is about."""
        state = self.do.state
        results: dict[TopicPartition, PartitionState | ErrorCode] = {}
        to_write = {}
        changes = yield from self._wanted(request, version)
        for number, wanted in enumerate(changes, 1):
            judged = judge(state, wanted, version)
            results[wanted.partition] = judged
            if isinstance(judged, PartitionState) and judged is not state.leadership[wanted.partition]:
                to_write[wanted.partition] = judged
            if number % PARTITIONS_PER_PAUSE == 0:
                yield Pause()
        if to_write:
            yield from self._write(to_write, results)
        if results:
            yield from self.do.tell_metadata(results)
        return (yield from self._response(request, version, results)), list(results)

    def _wanted(self, request: AlterPartitionRequest, version: int) -> Steps[list[WantedChange]]:
        changes = []
        for topic in request.topics:
            name = self.do.state.topic_name(bytes(topic.topic_id)) if version >= _TOPIC_IDS_SINCE else topic.topic_name
            for each in topic.partitions if name is not None else ():
                assert name is not None
                changes.append(
                    WantedChange(
                        TopicPartition(name, each.partition_index),
                        request.broker_id,
                        each.leader_epoch,
                        _isr(each, version),
                        each.leader_recovery_state,
                        each.partition_epoch,
                        _broker_epochs(each, version),
                    )
                )
                if len(changes) % PARTITIONS_PER_PAUSE == 0:
                    yield Pause()
        return changes

    def _write(
        self,
        to_write: dict[TopicPartition, PartitionState],
        results: dict[TopicPartition, PartitionState | ErrorCode],
    ) -> Steps[None]:
        written: PartitionStatesWritten = yield WritePartitionStates(to_write)
        for partition, result in written.results.items():
            if isinstance(result, PartitionState):
                results[partition] = result
                self.do.state.take(partition, result)
                continue
            results[partition] = ErrorCode.INVALID_UPDATE_VERSION
            adopt_state(self.do.state, partition, result)

    def _response(
        self,
        request: AlterPartitionRequest,
        version: int,
        results: dict[TopicPartition, PartitionState | ErrorCode],
    ) -> Steps[AlterPartitionResponse]:
        topics, answered = [], 0
        for topic in request.topics:
            name = self.do.state.topic_name(bytes(topic.topic_id)) if version >= _TOPIC_IDS_SINCE else topic.topic_name
            partitions = []
            for each in topic.partitions:
                result: PartitionState | ErrorCode = ErrorCode.UNKNOWN_TOPIC_ID
                if name is not None:
                    result = results[TopicPartition(name, each.partition_index)]
                partitions.append(_partition(each.partition_index, result))
                answered += 1
                if answered % PARTITIONS_PER_PAUSE == 0:
                    yield Pause()
            topics.append(
                AlterPartitionResponse.TopicData(
                    topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=partitions
                )
            )
        return AlterPartitionResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, topics=topics)

    def reread(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Leaders of old versions wrote these states themselves: read them, and tell all brokers."""
        state = self.do.state
        known = tuple(each for each in partitions if state.assignment(each) is not None)
        if not known:
            return
        read: PartitionStatesRead = yield ReadPartitionStates(known)
        for partition, found in read.states.items():
            state.take(partition, found)
        yield from self.do.tell_metadata(known)


def _isr(partition: Any, version: int) -> tuple[int, ...]:
    if version >= _BROKER_EPOCHS_SINCE:
        return tuple(each.broker_id for each in partition.new_isr_with_epochs)
    return tuple(partition.new_isr)


def _broker_epochs(partition: Any, version: int) -> dict[int, int]:
    if version < _BROKER_EPOCHS_SINCE:
        return {}
    return {each.broker_id: each.broker_epoch for each in partition.new_isr_with_epochs}


def _partition(index: int, result: PartitionState | ErrorCode) -> AlterPartitionResponse.PartitionData:
    if isinstance(result, ErrorCode):
        return AlterPartitionResponse.PartitionData(
            partition_index=index, error_code=result, leader_id=0, leader_epoch=0, isr=[], partition_epoch=0
        )
    return AlterPartitionResponse.PartitionData(
        partition_index=index,
        error_code=ErrorCode.NONE,
        leader_id=result.leader,
        leader_epoch=result.leader_epoch,
        isr=list(result.isr),
        leader_recovery_state=result.leader_recovery_state,
        partition_epoch=result.partition_epoch,
    )
