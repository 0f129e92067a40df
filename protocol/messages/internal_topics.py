"""Records of __consumer_offsets and __transaction_state.

Each key and value is prefixed by an int16 version (see protocol.versioned). In __consumer_offsets the version of the
key says which kind of record it is.
"""

from __future__ import annotations

from kbroker.protocol.primitives import Array, Bytes, Int8, Int16, Int32, Int64, NullableArray, NullableStr, Str, Uuid
from kbroker.protocol.schema import Message, Struct, data, field, since


@data(versions="0-1")
class OffsetCommitKey(Message):
    """Key in __consumer_offsets: the partition a group committed."""

    group: Str
    topic: Str
    partition: Int32


@data(versions="0-4", flexible="4+")
class OffsetCommitValue(Message):
    """The committed offset."""

    offset: Int64
    leader_epoch: Int32 = since(3, default=-1, ignorable=True)
    metadata: Str
    commit_timestamp: Int64
    expire_timestamp: Int64 = field(versions="1-1", default=-1, ignorable=True)


@data(versions="2")
class GroupMetadataKey(Message):
    """Key in __consumer_offsets: a classic group."""

    group: Str


@data(versions="0-4", flexible="4+")
class GroupMetadataValue(Message):
    """A classic group's generation and members."""

    protocol_type: Str
    generation: Int32
    protocol: NullableStr
    leader: NullableStr
    current_state_timestamp: Int64 = since(2, default=-1, ignorable=True)
    members: Array[MemberMetadata]

    class MemberMetadata(Struct):
        member_id: Str
        group_instance_id: NullableStr = since(3, default=None, ignorable=True)
        client_id: Str
        client_host: Str
        rebalance_timeout: Int32 = since(1, default=-1, ignorable=True)
        session_timeout: Int32
        subscription: Bytes
        assignment: Bytes


@data(versions="3")
class ConsumerGroupMetadataKey(Message):
    """Key in __consumer_offsets: a group of the newer protocol."""

    group_id: Str


@data(versions="0", flexible="0+")
class ConsumerGroupMetadataValue(Message):
    """The group's epoch."""

    epoch: Int32


@data(versions="4")
class ConsumerGroupPartitionMetadataKey(Message):
    """Key in __consumer_offsets: the topics a group has subscribed to."""

    group_id: Str


@data(versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue(Message):
    """Those topics, with their partitions and racks."""

    topics: Array[TopicMetadata]

    class TopicMetadata(Struct):
        topic_id: Uuid
        topic_name: Str
        num_partitions: Int32
        partition_metadata: Array[ConsumerGroupPartitionMetadataValue.PartitionMetadata]

    class PartitionMetadata(Struct):
        partition: Int32
        racks: Array[Str]


@data(versions="5")
class ConsumerGroupMemberMetadataKey(Message):
    """Key in __consumer_offsets: a member of a group."""

    group_id: Str
    member_id: Str


@data(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue(Message):
    """The member's subscription and where it runs."""

    instance_id: NullableStr
    rack_id: NullableStr
    client_id: Str
    client_host: Str
    subscribed_topic_names: Array[Str]
    subscribed_topic_regex: NullableStr
    rebalance_timeout_ms: Int32 = -1
    server_assignor: NullableStr
    classic_member_metadata: ClassicMemberMetadata | None = field(default=None, tag=0)

    class ClassicMemberMetadata(Struct):
        session_timeout_ms: Int32
        supported_protocols: Array[ConsumerGroupMemberMetadataValue.ClassicProtocol]

    class ClassicProtocol(Struct):
        name: Str
        metadata: Bytes


@data(versions="6")
class ConsumerGroupTargetAssignmentMetadataKey(Message):
    """Key in __consumer_offsets: the assignment a group moves to."""

    group_id: Str


@data(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """The epoch of that assignment."""

    assignment_epoch: Int32


@data(versions="7")
class ConsumerGroupTargetAssignmentMemberKey(Message):
    """Key in __consumer_offsets: a member's part of the assignment a group moves to."""

    group_id: Str
    member_id: Str


@data(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue(Message):
    """The partitions the member shall have."""

    topic_partitions: Array[TopicPartition]

    class TopicPartition(Struct):
        topic_id: Uuid
        partitions: Array[Int32]


@data(versions="8")
class ConsumerGroupCurrentMemberAssignmentKey(Message):
    """Key in __consumer_offsets: what a member has now."""

    group_id: Str
    member_id: Str


@data(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """The member's epochs, partitions, and those it has still to give up."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: Array[TopicPartitions]
    partitions_pending_revocation: Array[TopicPartitions]

    class TopicPartitions(Struct):
        topic_id: Uuid
        partitions: Array[Int32]


@data(versions="0")
class TransactionLogKey(Message):
    """Key in __transaction_state: a transactional id."""

    transactional_id: Str


@data(versions="0-1", flexible="1+")
class TransactionLogValue(Message):
    """The producer behind it and the state of its transaction."""

    producer_id: Int64
    producer_epoch: Int16
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: NullableArray[PartitionsSchema]
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    previous_producer_id: Int64 = field(versions="1+", default=-1, tag=0, ignorable=True)
    next_producer_id: Int64 = field(versions="1+", default=-1, tag=1, ignorable=True)
    client_transaction_version: Int16 = field(versions="1+", default=0, tag=2, ignorable=True)

    class PartitionsSchema(Struct):
        topic: Str
        partition_ids: Array[Int32]
