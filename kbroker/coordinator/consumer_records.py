"""The records of groups of the newer protocol in __consumer_offsets, as Kafka writes them (KIP-848; pure).

    key version   of                          value
    3             group                       its epoch
    4             group                       the topics it reads: ids, numbers of partitions
    5             group, member               what the member said of itself
    6             group                       the epoch of the target assignment
    7             group, member               the member's part of the target
    8             group, member               what the member has, and has still to give up

The version in front of a key says which kind it is; values are all of version 0. No value: a tombstone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbroker.coordinator.consumer_member import ClassicMembership, ConsumerMember, MemberState, Partitions
from kbroker.coordinator.topic_log import Record
from kbroker.protocol.errors import MalformedMessage
from kbroker.protocol.messages.internal_topics import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from kbroker.protocol.schema import Message
from kbroker.protocol.versioned import decode_versioned, encode_versioned, version_of

GROUP, TOPICS, MEMBER, TARGET, TARGET_MEMBER, CURRENT = range(3, 9)
VERSIONS = range(GROUP, CURRENT + 1)
"""Versions of the keys read and written here."""
VALUE_VERSION = 0

_KEYS: dict[int, type[Any]] = {
    GROUP: ConsumerGroupMetadataKey,
    TOPICS: ConsumerGroupPartitionMetadataKey,
    MEMBER: ConsumerGroupMemberMetadataKey,
    TARGET: ConsumerGroupTargetAssignmentMetadataKey,
    TARGET_MEMBER: ConsumerGroupTargetAssignmentMemberKey,
    CURRENT: ConsumerGroupCurrentMemberAssignmentKey,
}
_VALUES: dict[int, type[Any]] = {
    GROUP: ConsumerGroupMetadataValue,
    TOPICS: ConsumerGroupPartitionMetadataValue,
    MEMBER: ConsumerGroupMemberMetadataValue,
    TARGET: ConsumerGroupTargetAssignmentMetadataValue,
    TARGET_MEMBER: ConsumerGroupTargetAssignmentMemberValue,
    CURRENT: ConsumerGroupCurrentMemberAssignmentValue,
}


def _key(version: int, **fields: str) -> bytes:
    return encode_versioned(_KEYS[version](**fields), version)


def _value(message: Message) -> bytes:
    return encode_versioned(message, VALUE_VERSION)


# --- writing --------------------------------------------------------------------------------------------------


def group_epoch(group_id: str, epoch: int) -> Record:
    """Return the record of the group's epoch."""
    return _key(GROUP, group_id=group_id), _value(ConsumerGroupMetadataValue(epoch=epoch))


def topic_metadata(group_id: str, topics: Mapping[str, tuple[bytes, int]]) -> Record:
    """Return the record of the topics a group reads: name -> (id, number of partitions)."""
    entry = ConsumerGroupPartitionMetadataValue.TopicMetadata
    listed = [
        entry(topic_id=topic_id, topic_name=name, num_partitions=count, partition_metadata=[])
        for name, (topic_id, count) in topics.items()
    ]
    return _key(TOPICS, group_id=group_id), _value(ConsumerGroupPartitionMetadataValue(topics=listed))


def member_metadata(group_id: str, member: ConsumerMember) -> Record:
    """Return the record of what a member said of itself."""
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=_classic(member.classic),
    )
    return _key(MEMBER, group_id=group_id, member_id=member.member_id), _value(value)


def _classic(classic: ClassicMembership | None) -> ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None:
    if classic is None:
        return None
    protocol = ConsumerGroupMemberMetadataValue.ClassicProtocol
    return ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[protocol(name=name, metadata=metadata) for name, metadata in classic.protocols],
    )


def target_epoch(group_id: str, epoch: int) -> Record:
    """Return the record of the epoch of the target assignment."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
    return _key(TARGET, group_id=group_id), _value(value)


def target_member(group_id: str, member_id: str, partitions: Partitions) -> Record:
    """Return the record of a member's part of the target."""
    listed = _list(ConsumerGroupTargetAssignmentMemberValue.TopicPartition, partitions)
    value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=listed)
    return _key(TARGET_MEMBER, group_id=group_id, member_id=member_id), _value(value)


def current_assignment(group_id: str, member: ConsumerMember) -> Record:
    """Return the record of what a member has."""
    entry = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_list(entry, member.assigned),
        partitions_pending_revocation=_list(entry, member.pending_revocation),
    )
    return _key(CURRENT, group_id=group_id, member_id=member.member_id), _value(value)


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """Return what removes a member."""
    names = {"group_id": group_id, "member_id": member_id}
    return [(_key(version, **names), None) for version in (CURRENT, TARGET_MEMBER, MEMBER)]


def group_tombstones(group_id: str) -> list[Record]:
    """Return what removes a group whose members are removed."""
    return [(_key(version, group_id=group_id), None) for version in (TARGET, TOPICS, GROUP)]


def _list(entry: type[Any], partitions: Partitions) -> list[Any]:
    return [entry(topic_id=topic, partitions=sorted(numbers)) for topic, numbers in partitions.items()]


# --- reading --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class StoredGroup:
    """What the log says of a group."""

    epoch: int = 0
    topics: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    target_epoch: int = 0
    targets: dict[str, Partitions] = field(default_factory=dict)
    members: dict[str, ConsumerMember] = field(default_factory=dict)


def is_consumer_key(key: bytes) -> bool:
    """Whether a key belongs to a group of the newer protocol."""
    return version_of(key) in VERSIONS


def load_record(groups: dict[str, StoredGroup], key: bytes, value: bytes | None) -> None:
    """Take over one record; raises MalformedMessage."""
    version = version_of(key)
    read_key = decode_versioned_key(key, version)
    group_id = read_key.group_id
    if value is None:
        if version == GROUP:
            groups.pop(group_id, None)
        elif version in (MEMBER, TARGET_MEMBER) and group_id in groups:
            parts: dict[str, Any] = groups[group_id].members if version == MEMBER else groups[group_id].targets
            parts.pop(read_key.member_id, None)
        return
    read = decode_versioned(_VALUES[version], value)
    stored = groups.setdefault(group_id, StoredGroup())
    if version == GROUP:
        stored.epoch = read.epoch
    elif version == TOPICS:
        stored.topics = {topic.topic_name: (bytes(topic.topic_id), topic.num_partitions) for topic in read.topics}
    elif version == TARGET:
        stored.target_epoch = read.assignment_epoch
    elif version == TARGET_MEMBER:
        stored.targets[read_key.member_id] = _partitions(read.topic_partitions)
    else:
        member = stored.members.setdefault(read_key.member_id, ConsumerMember(read_key.member_id))
        (_load_member if version == MEMBER else _load_current)(member, read)


def decode_versioned_key(key: bytes, version: int) -> Any:
    """Return the key's message; raises MalformedMessage."""
    kind = _KEYS.get(version)
    if kind is None:
        raise MalformedMessage(f"key version {version}")
    return decode_versioned(kind, key)


def _load_member(member: ConsumerMember, read: ConsumerGroupMemberMetadataValue) -> None:
    member.instance_id = read.instance_id
    member.rack_id = read.rack_id
    member.client_id = read.client_id
    member.client_host = read.client_host
    member.topic_names = frozenset(read.subscribed_topic_names)
    member.topic_regex = read.subscribed_topic_regex or None
    member.rebalance_timeout_ms = read.rebalance_timeout_ms
    member.server_assignor = read.server_assignor
    classic = read.classic_member_metadata
    if classic is not None:
        protocols = tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols)
        member.classic = ClassicMembership(classic.session_timeout_ms, protocols)


def _load_current(member: ConsumerMember, read: ConsumerGroupCurrentMemberAssignmentValue) -> None:
    member.epoch = read.member_epoch
    member.previous_epoch = read.previous_member_epoch
    known = read.state in MemberState._value2member_map_
    member.state = MemberState(read.state) if known else MemberState.UNKNOWN
    member.assigned = _partitions(read.assigned_partitions)
    member.pending_revocation = _partitions(read.partitions_pending_revocation)


def _partitions(listed: Sequence[Any]) -> Partitions:
    return {bytes(each.topic_id): frozenset(each.partitions) for each in listed if each.partitions}
