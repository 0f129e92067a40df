"""Consumer groups: coordinator, membership, committed offsets, and the blobs consumers pass through JoinGroup."""

from __future__ import annotations

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.primitives import (
    Array,
    Bool,
    Bytes,
    Error,
    Int8,
    Int32,
    Int64,
    NullableArray,
    NullableBytes,
    NullableStr,
    Str,
    Uuid,
)
from kbroker.protocol.schema import Message, Struct, data, field, request, response, since, until


@request(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest(Message):
    """Ask for the broker that coordinates a group (key type 0) or a transactional id (1)."""

    key: Str = until(3, default="")
    key_type: Int8 = since(1, default=0)
    coordinator_keys: Array[Str] = since(4, default=())


@response(to=FindCoordinatorRequest)
class FindCoordinatorResponse(Message):
    """The coordinator of each key; below version 4 of the only one."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Error = until(3, default=ErrorCode.NONE)
    error_message: NullableStr = field(versions="1-3", default="", ignorable=True)
    node_id: Int32 = until(3, default=0)
    host: Str = until(3, default="")
    port: Int32 = until(3, default=0)
    coordinators: Array[Coordinator] = since(4, default=())

    class Coordinator(Struct):
        key: Str
        node_id: Int32
        host: Str
        port: Int32
        error_code: Error
        error_message: NullableStr = None


@request(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest(Message):
    """Join a group, or join again after a rebalance began."""

    group_id: Str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = since(1, default=-1, ignorable=True)
    member_id: Str
    group_instance_id: NullableStr = since(5, default=None)
    protocol_type: Str
    protocols: Array[JoinGroupRequestProtocol]
    reason: NullableStr = since(8, default=None, ignorable=True)

    class JoinGroupRequestProtocol(Struct):
        name: Str
        metadata: Bytes


@response(to=JoinGroupRequest)
class JoinGroupResponse(Message):
    """The generation that was formed; its leader also gets all members' metadata."""

    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    error_code: Error
    generation_id: Int32 = -1
    protocol_type: NullableStr = since(7, default=None, ignorable=True)
    protocol_name: NullableStr = field(nullable="7+")
    leader: Str
    skip_assignment: Bool = since(9, default=False)
    member_id: Str
    members: Array[JoinGroupResponseMember]

    class JoinGroupResponseMember(Struct):
        member_id: Str
        group_instance_id: NullableStr = since(5, default=None, ignorable=True)
        metadata: Bytes


@request(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest(Message):
    """The leader brings the assignments; the other members ask for theirs."""

    group_id: Str
    generation_id: Int32
    member_id: Str
    group_instance_id: NullableStr = since(3, default=None)
    protocol_type: NullableStr = since(5, default=None, ignorable=True)
    protocol_name: NullableStr = since(5, default=None, ignorable=True)
    assignments: Array[SyncGroupRequestAssignment]

    class SyncGroupRequestAssignment(Struct):
        member_id: Str
        assignment: Bytes


@response(to=SyncGroupRequest)
class SyncGroupResponse(Message):
    """The member's own assignment."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Error
    protocol_type: NullableStr = since(5, default=None, ignorable=True)
    protocol_name: NullableStr = since(5, default=None, ignorable=True)
    assignment: Bytes


@request(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest(Message):
    """A member tells its coordinator that it is alive."""

    group_id: Str
    generation_id: Int32
    member_id: Str
    group_instance_id: NullableStr = since(3, default=None)


@response(to=HeartbeatRequest)
class HeartbeatResponse(Message):
    """Whether the member is still part of the group."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Error


@request(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest(Message):
    """Members leave; before version 3 just one."""

    group_id: Str
    member_id: Str = until(2, default="")
    members: Array[MemberIdentity] = since(3, default=())

    class MemberIdentity(Struct):
        member_id: Str
        group_instance_id: NullableStr = None
        reason: NullableStr = since(5, default=None, ignorable=True)


@response(to=LeaveGroupRequest)
class LeaveGroupResponse(Message):
    """What became of each member."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Error
    members: Array[MemberResponse] = since(3, default=())

    class MemberResponse(Struct):
        member_id: Str
        group_instance_id: NullableStr
        error_code: Error


@request(key=15, versions="0-5", flexible="5+")
class DescribeGroupsRequest(Message):
    """Ask for the state and members of groups."""

    groups: Array[Str]
    include_authorized_operations: Bool = since(3, default=False)
    # Whether `history` is wanted; our own tag, as the ones below.
    include_history: Bool = since(5, default=False, tag=10_000, ignorable=True)


@response(to=DescribeGroupsRequest)
class DescribeGroupsResponse(Message):
    """State, protocol and members of each group."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    groups: Array[DescribedGroup]

    class DescribedGroup(Struct):
        error_code: Error
        group_id: Str
        group_state: Str
        protocol_type: Str
        protocol_data: Str
        members: Array[DescribeGroupsResponse.DescribedGroupMember]
        authorized_operations: Int32 = since(3, default=-2147483648)
        # Why the group rebalanced last, for who asks; a tag that Kafka does not have, so that its clients pass over it.
        last_rebalance: Str = since(5, default="", tag=10_000, ignorable=True)
        # What this broker tells of the group's rebalances, for who wants it; None: it does not tell.
        history: NullableArray[DescribeGroupsResponse.GroupRebalance] = since(
            5, default=None, tag=10_001, ignorable=True
        )

    class DescribedGroupMember(Struct):
        member_id: Str
        group_instance_id: NullableStr = since(4, default=None, ignorable=True)
        client_id: Str
        client_host: Str
        member_metadata: Bytes
        member_assignment: Bytes

    class GroupRebalance(Struct):
        timestamp_ms: Int64
        duration_ms: Int64
        generation_id: Int32
        member_count: Int32
        reasons: Array[Str]
        outcome: Str
        advice: Array[Str]


@request(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest(Message):
    """Ask for a broker's groups, filtered by state and type."""

    states_filter: Array[Str] = since(4, default=())
    types_filter: Array[Str] = since(5, default=())


@response(to=ListGroupsRequest)
class ListGroupsResponse(Message):
    """The groups this broker coordinates."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Error
    groups: Array[ListedGroup]

    class ListedGroup(Struct):
        group_id: Str
        protocol_type: Str
        group_state: Str = since(4, default="", ignorable=True)
        group_type: Str = since(5, default="", ignorable=True)


@request(key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest(Message):
    """Delete groups that have no members."""

    groups_names: Array[Str]


@response(to=DeleteGroupsRequest)
class DeleteGroupsResponse(Message):
    """What became of each group."""

    throttle_time_ms: Int32 = 0
    results: Array[DeletableGroupResult]

    class DeletableGroupResult(Struct):
        group_id: Str
        error_code: Error


@request(key=8, versions="2-9", flexible="8+")
class OffsetCommitRequest(Message):
    """Store the offsets that a group will read next."""

    group_id: Str
    generation_id_or_member_epoch: Int32 = -1
    member_id: Str
    group_instance_id: NullableStr = since(7, default=None)
    retention_time_ms: Int64 = until(4, default=-1, ignorable=True)
    topics: Array[OffsetCommitRequestTopic]

    class OffsetCommitRequestTopic(Struct):
        name: Str
        partitions: Array[OffsetCommitRequest.OffsetCommitRequestPartition]

    class OffsetCommitRequestPartition(Struct):
        partition_index: Int32
        committed_offset: Int64
        committed_leader_epoch: Int32 = since(6, default=-1, ignorable=True)
        committed_metadata: NullableStr


@response(to=OffsetCommitRequest)
class OffsetCommitResponse(Message):
    """What became of each partition's offset."""

    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: Array[OffsetCommitResponseTopic]

    class OffsetCommitResponseTopic(Struct):
        name: Str
        partitions: Array[OffsetCommitResponse.OffsetCommitResponsePartition]

    class OffsetCommitResponsePartition(Struct):
        partition_index: Int32
        error_code: Error


@request(key=9, versions="1-9", flexible="6+")
class OffsetFetchRequest(Message):
    """Ask for committed offsets; null topics ask for all, version 8 on asks for several groups."""

    group_id: Str = until(7, default="")
    topics: NullableArray[OffsetFetchRequestTopic] = until(7, default=(), nullable="2-7")
    groups: Array[OffsetFetchRequestGroup] = since(8, default=())
    require_stable: Bool = since(7, default=False)

    class OffsetFetchRequestTopic(Struct):
        name: Str
        partition_indexes: Array[Int32]

    class OffsetFetchRequestGroup(Struct):
        group_id: Str
        member_id: NullableStr = since(9, default=None, ignorable=True)
        member_epoch: Int32 = since(9, default=-1, ignorable=True)
        topics: NullableArray[OffsetFetchRequest.OffsetFetchRequestTopics]

    class OffsetFetchRequestTopics(Struct):
        name: Str
        partition_indexes: Array[Int32]


@response(to=OffsetFetchRequest)
class OffsetFetchResponse(Message):
    """Committed offsets; -1 where there is none."""

    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: Array[OffsetFetchResponseTopic] = until(7, default=())
    error_code: Error = field(versions="2-7", default=ErrorCode.NONE, ignorable=True)
    groups: Array[OffsetFetchResponseGroup] = since(8, default=())

    class OffsetFetchResponseTopic(Struct):
        name: Str
        partitions: Array[OffsetFetchResponse.OffsetFetchResponsePartition]

    class OffsetFetchResponseGroup(Struct):
        group_id: Str
        topics: Array[OffsetFetchResponse.OffsetFetchResponseTopics]
        error_code: Error = ErrorCode.NONE

    class OffsetFetchResponsePartition(Struct):
        partition_index: Int32
        committed_offset: Int64
        committed_leader_epoch: Int32 = since(5, default=-1, ignorable=True)
        metadata: NullableStr
        error_code: Error

    class OffsetFetchResponseTopics(Struct):
        name: Str
        partitions: Array[OffsetFetchResponse.OffsetFetchResponsePartitions]

    class OffsetFetchResponsePartitions(Struct):
        partition_index: Int32
        committed_offset: Int64
        committed_leader_epoch: Int32 = -1
        metadata: NullableStr
        error_code: Error


@request(key=47, versions="0", flexible="none")
class OffsetDeleteRequest(Message):
    """Delete committed offsets of topics the group no longer reads."""

    group_id: Str
    topics: Array[OffsetDeleteRequestTopic]

    class OffsetDeleteRequestTopic(Struct):
        name: Str
        partitions: Array[OffsetDeleteRequest.OffsetDeleteRequestPartition]

    class OffsetDeleteRequestPartition(Struct):
        partition_index: Int32


@response(to=OffsetDeleteRequest)
class OffsetDeleteResponse(Message):
    """What became of each partition's offset."""

    error_code: Error
    throttle_time_ms: Int32 = 0
    topics: Array[OffsetDeleteResponseTopic]

    class OffsetDeleteResponseTopic(Struct):
        name: Str
        partitions: Array[OffsetDeleteResponse.OffsetDeleteResponsePartition]

    class OffsetDeleteResponsePartition(Struct):
        partition_index: Int32
        error_code: Error


@request(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Message):
    """Join, stay in, or leave (member epoch -1) a group of the newer protocol (KIP-848)."""

    group_id: Str
    member_id: Str
    member_epoch: Int32
    instance_id: NullableStr = None
    rack_id: NullableStr = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: NullableArray[Str] = None
    subscribed_topic_regex: NullableStr = since(1, default=None)
    server_assignor: NullableStr = None
    topic_partitions: NullableArray[TopicPartitions] = None

    class TopicPartitions(Struct):
        topic_id: Uuid
        partitions: Array[Int32]


@response(to=ConsumerGroupHeartbeatRequest)
class ConsumerGroupHeartbeatResponse(Message):
    """The member's epoch and, when it changed, its assignment."""

    throttle_time_ms: Int32 = 0
    error_code: Error
    error_message: NullableStr = None
    member_id: NullableStr = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = None

    class Assignment(Struct):
        topic_partitions: Array[ConsumerGroupHeartbeatResponse.TopicPartitions]

    class TopicPartitions(Struct):
        topic_id: Uuid
        partitions: Array[Int32]


@request(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Message):
    """Ask for the state of groups of the newer protocol (KIP-848)."""

    group_ids: Array[Str]
    include_authorized_operations: Bool


@response(to=ConsumerGroupDescribeRequest)
class ConsumerGroupDescribeResponse(Message):
    """Epochs, members, current and target assignments of each group."""

    throttle_time_ms: Int32 = 0
    groups: Array[DescribedGroup]

    class DescribedGroup(Struct):
        error_code: Error
        error_message: NullableStr = None
        group_id: Str
        group_state: Str
        group_epoch: Int32
        assignment_epoch: Int32
        assignor_name: Str
        members: Array[ConsumerGroupDescribeResponse.Member]
        authorized_operations: Int32 = -2147483648

    class Member(Struct):
        member_id: Str
        instance_id: NullableStr = None
        rack_id: NullableStr = None
        member_epoch: Int32
        client_id: Str
        client_host: Str
        subscribed_topic_names: Array[Str]
        subscribed_topic_regex: NullableStr = None
        assignment: ConsumerGroupDescribeResponse.Assignment
        target_assignment: ConsumerGroupDescribeResponse.Assignment
        member_type: Int8 = since(1, default=-1, ignorable=True)

    class Assignment(Struct):
        topic_partitions: Array[ConsumerGroupDescribeResponse.TopicPartitions]

    class TopicPartitions(Struct):
        topic_id: Uuid
        topic_name: Str
        partitions: Array[Int32]


@data(versions="0-3")
class ConsumerProtocolSubscription(Message):
    """What a consumer tells its group's leader when it joins: topics and owned partitions."""

    topics: Array[Str]
    user_data: NullableBytes = None
    owned_partitions: Array[TopicPartition] = since(1, default=(), ignorable=True)
    generation_id: Int32 = since(2, default=-1, ignorable=True)
    rack_id: NullableStr = since(3, default=None, ignorable=True)

    class TopicPartition(Struct):
        topic: Str
        partitions: Array[Int32]


@data(versions="0-3")
class ConsumerProtocolAssignment(Message):
    """The partitions that a group's leader gives to one consumer."""

    assigned_partitions: Array[TopicPartition]
    user_data: NullableBytes = None

    class TopicPartition(Struct):
        topic: Str
        partitions: Array[Int32]
