"""What Java's sticky assignors put into their members' subscriptions, without a version in front (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.client.group.subscriptions import NO_GENERATION, Subscription
from kbroker.client.types import TopicPartition
from kbroker.protocol.codec import decode, encode
from kbroker.protocol.errors import MalformedMessage
from kbroker.protocol.grouping import by_topic
from kbroker.protocol.java_hash import java_hash, java_map_order
from kbroker.protocol.primitives import Array, Int32, Str
from kbroker.protocol.schema import Message, Struct, data, since

GENERATION, PARTITIONS_ONLY = 1, 0
"""The two versions of StickyUserData."""


@data(versions="0-1")
class StickyUserData(Message):
    """What a member of a `sticky` group had before it gave everything up, and since which generation."""

    previous_assignment: Array[TopicAssignment]
    generation: Int32 = since(1, default=NO_GENERATION)

    class TopicAssignment(Struct):
        """Partitions of one topic."""

        topic: Str
        partitions: Array[Int32]


@data(versions="0")
class CooperativeStickyUserData(Message):
    """The generation of what a member of a `cooperative-sticky` group still has."""

    generation: Int32


def sticky_user_data(last: Sequence[TopicPartition], generation: int) -> bytes | None:
    """Write StickyUserData; nothing before the first assignment."""
    if generation == NO_GENERATION:
        return None
    grouped = by_topic(last)
    topics = [
        StickyUserData.TopicAssignment(topic=topic, partitions=grouped[topic])
        for topic in java_map_order(grouped, java_hash)
    ]
    return encode(StickyUserData(previous_assignment=topics, generation=generation), GENERATION)


def cooperative_user_data(last: Sequence[TopicPartition], generation: int) -> bytes:
    """Write CooperativeStickyUserData."""
    return encode(CooperativeStickyUserData(generation=generation), 0)


def sticky_previous(member: Subscription) -> tuple[Sequence[TopicPartition], int | None]:
    """Return what the member had and the generation, None for unknown; what makes no sense counts as nothing."""
    if not member.user_data:
        return (), None
    for version in (GENERATION, PARTITIONS_ONLY):
        try:
            message = decode(StickyUserData, member.user_data, version)
        except MalformedMessage:
            continue
        had = [TopicPartition(item.topic, number) for item in message.previous_assignment for number in item.partitions]
        return had, message.generation if version == GENERATION else None
    return (), NO_GENERATION


def cooperative_previous(member: Subscription) -> tuple[Sequence[TopicPartition], int | None]:
    """Return what the member has and the generation: newer members say it in the subscription itself."""
    if member.generation >= 0:
        return member.owned, member.generation
    if member.user_data is None:
        return member.owned, None
    try:
        return member.owned, decode(CooperativeStickyUserData, member.user_data, 0).generation
    except MalformedMessage:
        return member.owned, NO_GENERATION
