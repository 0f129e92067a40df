"""Brokers on paper, with logs: they obey controllers by epoch, append, copy, truncate and change their ISRs.

A log is a list of (leader epoch, record). What a leader sees below its high watermark is committed, and with acks=all
acknowledged: the cluster must never lose it, nor have anything else in its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from kbroker.controller.znodes import TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.replication import (
    AlterPartitionRequest,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

Entry = tuple[int, int]
"""Leader epoch and number of a record."""
ANY_EPOCH = (-2, -1)


@dataclass
class Log:
    """What a disk holds of a partition."""

    topic_id: bytes
    entries: list[Entry] = field(default_factory=list)


@dataclass
class Replica:
    """What a broker was last told of a partition, and as its leader what it knows of the followers."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    ends: dict[int, int] = field(default_factory=dict)
    """Log end offsets of the followers that have fetched in this epoch."""
    pending: tuple[int, ...] | None = None
    """The ISR asked for and not answered yet: until then what counts is the larger one."""
    asked: object = None
    """Who was asked; while that controller is there, nobody is asked again."""
    is_waiting: bool = False
    """The controller refused in a way after which only LeaderAndIsr helps."""

    @property
    def maximal_isr(self) -> set[int]:
        return {*self.isr, *(self.pending or ())}


class SimulatedBroker:
    """One broker: its disk survives, the rest is gone when it is killed."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.epoch = -1
        self.is_up = False
        self.logs: dict[TopicPartition, Log] = {}
        self.lost: set[TopicPartition] = set()
        self.begin()

    def begin(self) -> None:
        """What a start knows."""
        self.controller_epoch = 0
        self.replicas: dict[TopicPartition, Replica] = {}
        self.metadata: dict[TopicPartition, int] = {}
        self.lost.clear()

    def kill(self) -> None:
        self.is_up = False
        self.begin()

    def lose(self, partition: TopicPartition) -> None:
        """Its log directory fails until the next start."""
        self.lost.add(partition)
        self.replicas.pop(partition, None)

    def leads(self, partition: TopicPartition) -> Replica | None:
        replica = self.replicas.get(partition)
        return replica if replica is not None and replica.leader == self.broker_id else None

    # --- the controller's orders ---

    def serve(self, request: Any) -> Any:
        refusal = self._refusal(request)
        if isinstance(request, LeaderAndIsrRequest):
            return self._leader_and_isr(request, refusal)
        if isinstance(request, StopReplicaRequest):
            return self._stop_replica(request, refusal)
        assert isinstance(request, UpdateMetadataRequest)
        if refusal is ErrorCode.NONE:
            for topic in request.topic_states:
                for each in topic.partition_states:
                    partition = TopicPartition(topic.topic_name, each.partition_index)
                    self.metadata[partition] = each.leader
                    if each.leader == -2:
                        del self.metadata[partition]
                    if self.broker_id not in {*each.replicas, *each.isr} and partition not in self.lost:
                        self.replicas.pop(partition, None)  # moved away while nobody could tell us
                        self.logs.pop(partition, None)
        return UpdateMetadataResponse(error_code=refusal)

    def _refusal(self, request: Any) -> ErrorCode:
        if request.broker_epoch < self.epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = request.controller_epoch
        return ErrorCode.NONE

    def _leader_and_isr(self, request: LeaderAndIsrRequest, refusal: ErrorCode) -> LeaderAndIsrResponse:
        answered = LeaderAndIsrResponse
        if refusal is not ErrorCode.NONE:
            return answered(error_code=refusal, topics=[])
        topics = []
        for topic in request.topic_states:
            errors = [
                answered.LeaderAndIsrPartitionError(
                    partition_index=each.partition_index,
                    error_code=self._take(
                        TopicPartition(topic.topic_name, each.partition_index), bytes(topic.topic_id), each
                    ),
                )
                for each in topic.partition_states
            ]
            topics.append(answered.LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
        return answered(error_code=ErrorCode.NONE, topics=topics)

    def _take(self, partition: TopicPartition, topic_id: bytes, told: Any) -> ErrorCode:
        if partition in self.lost:
            return ErrorCode.KAFKA_STORAGE_ERROR
        log = self.logs.get(partition)
        if log is not None and log.topic_id != topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        known = self.replicas.get(partition)
        if known is not None and told.leader_epoch <= known.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self.broker_id not in told.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.logs.setdefault(partition, Log(topic_id))
        self.replicas[partition] = Replica(
            told.leader, told.leader_epoch, tuple(told.isr), told.partition_epoch, tuple(told.replicas)
        )
        return ErrorCode.NONE

    def _stop_replica(self, request: StopReplicaRequest, refusal: ErrorCode) -> StopReplicaResponse:
        if refusal is not ErrorCode.NONE:
            return StopReplicaResponse(error_code=refusal, partition_errors=[])
        errors = []
        for topic in request.topic_states:
            for each in topic.partition_states:
                partition = TopicPartition(topic.topic_name, each.partition_index)
                code = self._stop(partition, each.leader_epoch, each.delete_partition)
                errors.append(
                    StopReplicaResponse.StopReplicaPartitionError(
                        topic_name=topic.topic_name, partition_index=each.partition_index, error_code=code
                    )
                )
        return StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=errors)

    def _stop(self, partition: TopicPartition, leader_epoch: int, delete: bool) -> ErrorCode:
        if partition in self.lost:
            return ErrorCode.KAFKA_STORAGE_ERROR
        known = self.replicas.get(partition)
        if known is not None and leader_epoch not in ANY_EPOCH and leader_epoch < known.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        self.replicas.pop(partition, None)
        if delete:
            self.logs.pop(partition, None)
        return ErrorCode.NONE

    # --- data ---

    def append(self, partition: TopicPartition, record: int) -> None:
        replica = self.leads(partition)
        assert replica is not None
        self.logs[partition].entries.append((replica.leader_epoch, record))

    def fetch_from(self, leader: SimulatedBroker, partition: TopicPartition, limit: int) -> None:
        """One fetch: cut off what the leader doesn't have, take over some of the rest; both in the same epoch."""
        mine, theirs = self.replicas.get(partition), leader.leads(partition)
        if mine is None or theirs is None or not leader.is_up or mine.leader_epoch != theirs.leader_epoch:
            return
        own, source = self.logs[partition].entries, leader.logs[partition].entries
        common = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(own, source, strict=False))))
        own[common:] = source[common : common + limit]
        theirs.ends[self.broker_id] = len(own)

    def committed(self, partition: TopicPartition) -> list[Entry]:
        """What this leader may acknowledge."""
        replica = self.leads(partition)
        if replica is None:
            return []
        entries = self.logs[partition].entries
        ends = [len(entries) if each == self.broker_id else replica.ends.get(each, 0) for each in replica.maximal_isr]
        return entries[: min(ends)]

    def wanted_isr(self, partition: TopicPartition) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(ISR with all that have caught up, ISR without the slowest member)."""
        replica = self.leads(partition)
        assert replica is not None
        end = len(self.logs[partition].entries)
        behind = {each: end - replica.ends.get(each, -1) for each in replica.replicas if each != self.broker_id}
        caught_up = tuple(each for each in replica.replicas if each not in replica.isr and behind.get(each) == 0)
        slowest = max((each for each in replica.isr if behind.get(each)), key=lambda each: behind[each], default=None)
        return replica.isr + caught_up, tuple(each for each in replica.isr if each != slowest)

    def alter_request(self, partition: TopicPartition, isr: tuple[int, ...]) -> AlterPartitionRequest:
        replica = self.leads(partition)
        assert replica is not None
        request = AlterPartitionRequest
        changed = request.PartitionData(
            partition_index=partition.partition,
            leader_epoch=replica.leader_epoch,
            new_isr_with_epochs=[request.BrokerState(broker_id=each) for each in isr],
            partition_epoch=replica.partition_epoch,
        )
        topic = request.TopicData(topic_id=self.logs[partition].topic_id, partitions=[changed])
        return request(broker_id=self.broker_id, broker_epoch=self.epoch, topics=[topic])

    def take_altered(self, partition: TopicPartition, asked: Replica, controller: object, response: Any) -> None:
        """The controller's answer, if we still wait for it."""
        replica = self.leads(partition)
        if replica is not asked or replica.asked is not controller:
            return
        replica.asked = None
        if response.error_code:
            return
        (answer,) = response.topics[0].partitions
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            if answer.leader_epoch == replica.leader_epoch and answer.partition_epoch >= replica.partition_epoch:
                replica.isr, replica.partition_epoch = tuple(answer.isr), answer.partition_epoch
                replica.pending = None
        elif code in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
            for member in set(replica.pending or ()) - set(replica.isr):
                replica.ends.pop(member, None)  # it has to fetch again before it is asked for again
            replica.pending = None
        elif code is not ErrorCode.NOT_CONTROLLER:
            replica.is_waiting = True
