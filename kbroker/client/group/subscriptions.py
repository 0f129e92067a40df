"""The blobs that members pass to each other through JoinGroup and SyncGroup (pure).

    subscription = int16 version | ConsumerProtocolSubscription
    assignment   = int16 version | ConsumerProtocolAssignment

Fields are only ever appended: a version from the future is read as the newest that is known here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kbroker.client.types import TopicPartition
from kbroker.protocol.grouping import by_topic
from kbroker.protocol.messages.groups import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kbroker.protocol.versioned import decode_versioned, encode_versioned

NEWEST = 3
NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one member wants, as its group's leader sees it."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    """In which `owned` were assigned; -1 unknown."""
    rack: str | None = None
    instance_id: str | None = None
    """Not in the blob: JoinGroup's answer brings it."""


def encode_subscription(subscription: Subscription) -> bytes:
    """Return the blob for JoinGroup, as Java's consumers write it."""
    owned = by_topic(sorted(subscription.owned))
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in owned.items()
        ],
        generation_id=subscription.generation,
        rack_id=subscription.rack or None,
    )
    return encode_versioned(message, NEWEST)


def decode_subscription(blob: bytes, instance_id: str | None = None) -> Subscription:
    """Read another member's blob; raises MalformedMessage."""
    message = decode_versioned(ConsumerProtocolSubscription, blob, newer_as_newest=True)
    owned = tuple(
        TopicPartition(item.topic, partition) for item in message.owned_partitions for partition in item.partitions
    )
    return Subscription(
        tuple(message.topics),
        None if message.user_data is None else bytes(message.user_data),
        owned,
        message.generation_id,
        message.rack_id or None,
        instance_id,
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the blob for SyncGroup, as Java's leaders write it."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    )
    return encode_versioned(message, NEWEST)


def decode_assignment(blob: bytes) -> tuple[TopicPartition, ...]:
    """Read what the leader gave this member, sorted; raises MalformedMessage. An empty blob gives nothing."""
    if not blob:
        return ()
    message = decode_versioned(ConsumerProtocolAssignment, blob, newer_as_newest=True)
    return tuple(
        sorted(TopicPartition(item.topic, number) for item in message.assigned_partitions for number in item.partitions)
    )
