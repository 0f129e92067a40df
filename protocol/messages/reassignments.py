"""Leaders and replicas move: ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments."""

from __future__ import annotations

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.primitives import Array, Error, Int8, Int32, NullableArray, NullableStr, Str
from kbroker.protocol.schema import Message, Struct, request, response, since


@request(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest(Message):
    """Elect preferred (type 0) or unclean (1) leaders; null asks for all partitions."""

    election_type: Int8 = since(1, default=0)
    topic_partitions: NullableArray[TopicPartitions]
    timeout_ms: Int32 = 60000

    class TopicPartitions(Struct):
        topic: Str
        partitions: Array[Int32]


@response(to=ElectLeadersRequest)
class ElectLeadersResponse(Message):
    """What became of each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Error = since(1, default=ErrorCode.NONE)
    replica_election_results: Array[ReplicaElectionResult]

    class ReplicaElectionResult(Struct):
        topic: Str
        partition_result: Array[ElectLeadersResponse.PartitionResult]

    class PartitionResult(Struct):
        partition_id: Int32
        error_code: Error
        error_message: NullableStr = None


@request(key=45, versions="0", flexible="0+")
class AlterPartitionReassignmentsRequest(Message):
    """Move partitions to other replicas; null replicas cancel a move."""

    timeout_ms: Int32 = 60000
    topics: Array[ReassignableTopic]

    class ReassignableTopic(Struct):
        name: Str
        partitions: Array[AlterPartitionReassignmentsRequest.ReassignablePartition]

    class ReassignablePartition(Struct):
        partition_index: Int32
        replicas: NullableArray[Int32] = None


@response(to=AlterPartitionReassignmentsRequest)
class AlterPartitionReassignmentsResponse(Message):
    """What became of each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Error
    error_message: NullableStr = None
    responses: Array[ReassignableTopicResponse]

    class ReassignableTopicResponse(Struct):
        name: Str
        partitions: Array[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse]

    class ReassignablePartitionResponse(Struct):
        partition_index: Int32
        error_code: Error
        error_message: NullableStr = None


@request(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest(Message):
    """Ask for reassignments under way; null asks for all topics."""

    timeout_ms: Int32 = 60000
    topics: NullableArray[ListPartitionReassignmentsTopics] = None

    class ListPartitionReassignmentsTopics(Struct):
        name: Str
        partition_indexes: Array[Int32]


@response(to=ListPartitionReassignmentsRequest)
class ListPartitionReassignmentsResponse(Message):
    """Replicas being added and removed, per partition."""

    throttle_time_ms: Int32 = 0
    error_code: Error
    error_message: NullableStr = None
    topics: Array[OngoingTopicReassignment]

    class OngoingTopicReassignment(Struct):
        name: Str
        partitions: Array[ListPartitionReassignmentsResponse.OngoingPartitionReassignment]

    class OngoingPartitionReassignment(Struct):
        partition_index: Int32
        replicas: Array[Int32]
        adding_replicas: Array[Int32]
        removing_replicas: Array[Int32]
