"""Offsets asked from the partitions' leaders: one ListOffsets request per broker, repeated where leaders moved.

And where a leader epoch ends on the leader (OffsetForLeaderEpoch): how a consumer finds out that a log was truncated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kbroker.client.cluster import Cluster
from kbroker.client.errors import BrokerError
from kbroker.client.leaders import ask_leaders, sort_out
from kbroker.client.types import OffsetAndTimestamp, TopicPartition
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.grouping import by_topic
from kbroker.protocol.messages.offsets import ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest

Wanted = Mapping[TopicPartition, int]


def offsets_request(cluster: Cluster, wanted: Wanted, read_committed: bool) -> ListOffsetsRequest:
    """Ask one leader for several partitions' offsets."""
    metadata = cluster.metadata
    topics = []
    for topic, partitions in by_topic(wanted).items():
        asked = []
        for partition in partitions:
            known = metadata.leader(topic, partition)
            asked.append(
                ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=partition,
                    current_leader_epoch=known.leader_epoch if known else -1,
                    timestamp=wanted[TopicPartition(topic, partition)],
                )
            )
        topics.append(ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=asked))
    return ListOffsetsRequest(replica_id=-1, isolation_level=int(read_committed), topics=topics)


async def list_offsets(
    cluster: Cluster, wanted: Wanted, *, read_committed: bool = False, timeout_ms: int | None = None
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """Return the offset at each partition's timestamp (ms, or EARLIEST, LATEST, MAX_TIMESTAMP of types.py).

    Offset -1: nothing is that young. Raises the first partition's error when it does not go away within the timeout.
    """

    async def ask(
        leader: int, some: Wanted, found: dict[TopicPartition, OffsetAndTimestamp]
    ) -> dict[TopicPartition, BrokerError]:
        return await ask_leader(cluster, leader, some, read_committed, found)

    return await ask_leaders(cluster, wanted, ask, timeout_ms)


async def ask_leader(
    cluster: Cluster, leader: int, wanted: Wanted, read_committed: bool, found: dict[TopicPartition, OffsetAndTimestamp]
) -> dict[TopicPartition, BrokerError]:
    """Put what one leader answers into `found`; returns its errors for single partitions, raises others."""
    connection = await cluster.connection(leader)
    request = offsets_request(cluster, wanted, read_committed)
    answer = await connection.request(request, timeout=cluster.config.request_timeout_ms / 1000)
    return read_offsets(answer, leader, found)


def read_offsets(
    answer: ListOffsetsResponse, leader: int, found: dict[TopicPartition, OffsetAndTimestamp]
) -> dict[TopicPartition, BrokerError]:
    """Put what was answered into `found`; returns the errors."""
    return sort_out(
        answer.topics, leader, found, lambda item: OffsetAndTimestamp(item.offset, item.timestamp, item.leader_epoch)
    )


FIRST_EPOCHS_FOR_CONSUMERS = 3
"""The version of OffsetForLeaderEpoch that needs no rights of a broker's."""
ENDLESS = 1 << 62


class EpochEnd(NamedTuple):
    """Where a leader's records of an epoch end; `epoch` is the largest it has up to the one asked for.

    Both -1 when the leader has no such epoch at all; `offset` is ENDLESS where a broker cannot be asked.
    """

    error: ErrorCode
    asked_leader_epoch: int
    epoch: int
    offset: int


async def ask_for_epochs(
    cluster: Cluster, leader: int, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, EpochEnd]:
    """Ask the partitions' leader where its records of the given epochs end; raises OSError and KafkaError."""
    of = OffsetForLeaderEpochRequest
    led = {key: cluster.metadata.require(*key).leader_epoch for key in wanted}
    connection = await cluster.connection(leader)
    try:
        version = connection.version_for(of)
    except KafkaError:
        version = 0
    if version < FIRST_EPOCHS_FOR_CONSUMERS:
        return {key: EpochEnd(ErrorCode.NONE, led[key], epoch, ENDLESS) for key, epoch in wanted.items()}
    topics = []
    for topic, partitions in by_topic(wanted).items():
        asked = []
        for partition in partitions:
            key = TopicPartition(topic, partition)
            asked.append(
                of.OffsetForLeaderPartition(
                    partition=partition, current_leader_epoch=led[key], leader_epoch=wanted[key]
                )
            )
        topics.append(of.OffsetForLeaderTopic(topic=topic, partitions=asked))
    answer = await connection.request(
        of(replica_id=-1, topics=topics), version, timeout=cluster.config.request_timeout_ms / 1000
    )
    found = {}
    for answered in answer.topics:
        for item in answered.partitions:
            key = TopicPartition(answered.topic, item.partition)
            if key in wanted:
                found[key] = EpochEnd(item.error_code, led[key], item.leader_epoch, item.end_offset)
    return found
