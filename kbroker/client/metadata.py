"""What a client knows about the cluster: brokers, and per partition its leader and leader epoch. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kbroker.client.errors import error_for
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.metadata import MetadataResponse
from kbroker.protocol.primitives import ZERO_UUID

MOST_PARTITIONS = 1 << 20
"""Of a topic; one with a number beyond it is passed over, as clients have something for each number up to the last."""


@dataclass(frozen=True, slots=True)
class Node:
    """A broker's address."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """One partition; leader -1 when there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic; `partitions` by number."""

    name: str
    topic_id: bytes
    is_internal: bool
    error: ErrorCode
    partitions: dict[int, PartitionMetadata]

    @property
    def count(self) -> int:
        """Up to the last number: one that is not told of, as nobody can read its state, counts, and keys stay put."""
        return max(self.partitions, default=-1) + 1


@dataclass(slots=True)
class ClusterMetadata:
    """The newest word on each broker and topic."""

    nodes: dict[int, Node] = field(default_factory=dict)
    controller_id: int = -1
    cluster_id: str | None = None
    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    updated_at: float = float("-inf")

    def update(self, answer: MetadataResponse, now: float) -> dict[str, TopicMetadata]:
        """Take over an answer; returns its topics, those with errors included. Older leader epochs are not believed.

        A topic keeps the partitions that it has had: one that is made anew has another id.
        """
        self.nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in answer.brokers}
        self.controller_id = answer.controller_id
        self.cluster_id = answer.cluster_id
        self.updated_at = now
        answered = {}
        for topic in answer.topics:
            if topic.name is None:
                continue
            answered[topic.name] = known = self._merged(topic)
            if known.error in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE) and known.partitions:
                self.topics[topic.name] = known
            elif known.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.topics.pop(topic.name, None)
        return answered

    def _merged(self, topic: MetadataResponse.MetadataResponseTopic) -> TopicMetadata:
        name = topic.name or ""
        before = self.topics.get(name)
        is_same = before is not None and before.topic_id == topic.topic_id
        partitions = {}
        for item in sorted(topic.partitions, key=lambda p: p.partition_index):
            index = item.partition_index
            if not 0 <= index < MOST_PARTITIONS:
                continue
            partition = PartitionMetadata(
                index,
                item.leader_id,
                item.leader_epoch,
                tuple(item.replica_nodes),
                tuple(item.isr_nodes),
                tuple(item.offline_replicas),
                item.error_code,
            )
            known = before.partitions.get(index) if is_same and before is not None else None
            if known is not None and known.leader_epoch > partition.leader_epoch >= 0:
                partition = known
            partitions[index] = partition
        if is_same and before is not None and topic.topic_id != ZERO_UUID:
            for index, known in before.partitions.items():  # a broker that has just started may not know all yet
                partitions.setdefault(index, replace(known, leader=-1))
        return TopicMetadata(name, topic.topic_id, topic.is_internal, topic.error_code, partitions)

    def leader(self, topic: str, partition: int) -> PartitionMetadata | None:
        """Return the partition's metadata if its leader is known and has an address."""
        known = self.topics.get(topic)
        found = known.partitions.get(partition) if known else None
        return found if found is not None and found.leader in self.nodes else None

    def led_partitions(self, topic: str) -> list[int]:
        """Return the numbers of the partitions that have a leader, sorted."""
        known = self.topics.get(topic)
        return [] if known is None else [number for number in known.partitions if self.leader(topic, number)]

    def require(self, topic: str, partition: int) -> PartitionMetadata:
        """Like `leader`, but raises what is missing."""
        found = self.leader(topic, partition)
        if found is not None:
            return found
        known = self.topics.get(topic)
        if known is None or partition not in known.partitions:
            text = "no such topic" if known is None else f"the topic has {len(known.partitions)} partitions"
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text, topic=topic, partition=partition)
        raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, "no leader now", topic=topic, partition=partition)

    def new_leader(self, topic: str, partition: int, leader: int, epoch: int) -> bool:
        """Take over the leader that an answer of Produce or Fetch named; whether that was news."""
        known = self.topics.get(topic)
        before = known.partitions.get(partition) if known else None
        if known is None or before is None or epoch <= before.leader_epoch or leader not in self.nodes:
            return False
        known.partitions[partition] = PartitionMetadata(
            partition, leader, epoch, before.replicas, before.isr, before.offline_replicas, ErrorCode.NONE
        )
        return True

    def forget(self, topics: Iterable[str]) -> None:
        """Drop topics."""
        for topic in topics:
            self.topics.pop(topic, None)
