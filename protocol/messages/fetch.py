"""Fetch."""

from __future__ import annotations

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.primitives import (
    ZERO_UUID,
    Array,
    Error,
    Int8,
    Int32,
    Int64,
    NullableArray,
    NullableStr,
    Records,
    Str,
    Uuid,
)
from kbroker.protocol.schema import DEFAULTS, Message, Struct, request, response, since, until


@request(key=1, versions="4-17", flexible="12+")
class FetchRequest(Message):
    """Ask for record batches from given offsets on; sent by consumers and by followers."""

    cluster_id: NullableStr = since(12, default=None, tag=0, ignorable=True)
    replica_id: Int32 = until(14, default=-1)
    replica_state: ReplicaState = since(15, default=DEFAULTS, tag=1)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF
    isolation_level: Int8 = 0
    session_id: Int32 = since(7, default=0, ignorable=True)
    session_epoch: Int32 = since(7, default=-1, ignorable=True)
    topics: Array[FetchTopic]
    forgotten_topics_data: Array[ForgottenTopic] = since(7, default=())
    rack_id: Str = since(11, default="", ignorable=True)

    class ReplicaState(Struct):
        replica_id: Int32 = -1
        replica_epoch: Int64 = -1

    class FetchTopic(Struct):
        topic: Str = until(12, default="", ignorable=True)
        topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
        partitions: Array[FetchRequest.FetchPartition]

    class ForgottenTopic(Struct):
        topic: Str = until(12, default="", ignorable=True)
        topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
        partitions: Array[Int32]

    class FetchPartition(Struct):
        partition: Int32
        current_leader_epoch: Int32 = since(9, default=-1, ignorable=True)
        fetch_offset: Int64
        last_fetched_epoch: Int32 = since(12, default=-1)
        log_start_offset: Int64 = since(5, default=-1, ignorable=True)
        partition_max_bytes: Int32
        replica_directory_id: Uuid = since(17, default=ZERO_UUID, tag=0, ignorable=True)


@response(to=FetchRequest)
class FetchResponse(Message):
    """Record batches per partition, as they lie in the log."""

    throttle_time_ms: Int32 = 0
    error_code: Error = since(7, default=ErrorCode.NONE, ignorable=True)
    session_id: Int32 = since(7, default=0)
    responses: Array[FetchableTopicResponse]
    node_endpoints: Array[NodeEndpoint] = since(16, default=(), tag=0)

    class FetchableTopicResponse(Struct):
        topic: Str = until(12, default="", ignorable=True)
        topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
        partitions: Array[FetchResponse.PartitionData]

    class NodeEndpoint(Struct):
        node_id: Int32
        host: Str
        port: Int32
        rack: NullableStr = None

    class PartitionData(Struct):
        partition_index: Int32
        error_code: Error
        high_watermark: Int64
        last_stable_offset: Int64 = -1
        log_start_offset: Int64 = since(5, default=-1, ignorable=True)
        diverging_epoch: FetchResponse.EpochEndOffset = since(12, default=DEFAULTS, tag=0)
        current_leader: FetchResponse.LeaderIdAndEpoch = since(12, default=DEFAULTS, tag=1)
        snapshot_id: FetchResponse.SnapshotId = since(12, default=DEFAULTS, tag=2)
        aborted_transactions: NullableArray[FetchResponse.AbortedTransaction]
        preferred_read_replica: Int32 = since(11, default=-1)
        records: Records

    class EpochEndOffset(Struct):
        epoch: Int32 = -1
        end_offset: Int64 = -1

    class LeaderIdAndEpoch(Struct):
        leader_id: Int32 = -1
        leader_epoch: Int32 = -1

    class SnapshotId(Struct):
        end_offset: Int64 = -1
        epoch: Int32 = -1

    class AbortedTransaction(Struct):
        producer_id: Int64
        first_offset: Int64
