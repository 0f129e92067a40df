"""Offsets of a partition's log: ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from kbroker.protocol.primitives import Array, Error, Int8, Int32, Int64, Str
from kbroker.protocol.schema import Message, Struct, request, response, since

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
"""ListOffsets' "timestamps" that are none: a log's end, its start, its largest timestamp; of tiered storage (KIP-405,
KIP-1005), its start on this disk, and the end of what lies elsewhere."""


@request(key=2, versions="1-9", flexible="6+")
class ListOffsetsRequest(Message):
    """Ask for the offset at a timestamp, or at what one of the special ones stands for."""

    replica_id: Int32
    isolation_level: Int8 = since(2, default=0)
    topics: Array[ListOffsetsTopic]

    class ListOffsetsTopic(Struct):
        name: Str
        partitions: Array[ListOffsetsRequest.ListOffsetsPartition]

    class ListOffsetsPartition(Struct):
        partition_index: Int32
        current_leader_epoch: Int32 = since(4, default=-1, ignorable=True)
        timestamp: Int64


@response(to=ListOffsetsRequest)
class ListOffsetsResponse(Message):
    """The offset found in each partition, with the timestamp it has."""

    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    topics: Array[ListOffsetsTopicResponse]

    class ListOffsetsTopicResponse(Struct):
        name: Str
        partitions: Array[ListOffsetsResponse.ListOffsetsPartitionResponse]

    class ListOffsetsPartitionResponse(Struct):
        partition_index: Int32
        error_code: Error
        timestamp: Int64 = -1
        offset: Int64 = -1
        leader_epoch: Int32 = since(4, default=-1)


@request(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest(Message):
    """Ask where a leader epoch ended, to find the point up to which two logs agree."""

    replica_id: Int32 = since(3, default=-2, ignorable=True)
    topics: Array[OffsetForLeaderTopic]

    class OffsetForLeaderTopic(Struct):
        topic: Str
        partitions: Array[OffsetForLeaderEpochRequest.OffsetForLeaderPartition]

    class OffsetForLeaderPartition(Struct):
        partition: Int32
        current_leader_epoch: Int32 = -1
        leader_epoch: Int32


@response(to=OffsetForLeaderEpochRequest)
class OffsetForLeaderEpochResponse(Message):
    """The end offset of the largest epoch not above the one that was asked for."""

    throttle_time_ms: Int32 = 0
    topics: Array[OffsetForLeaderTopicResult]

    class OffsetForLeaderTopicResult(Struct):
        topic: Str
        partitions: Array[OffsetForLeaderEpochResponse.EpochEndOffset]

    class EpochEndOffset(Struct):
        error_code: Error
        partition: Int32
        leader_epoch: Int32 = -1
        end_offset: Int64 = -1


@request(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest(Message):
    """Move the log start offset up; offset -1 means the high watermark."""

    topics: Array[DeleteRecordsTopic]
    timeout_ms: Int32

    class DeleteRecordsTopic(Struct):
        name: Str
        partitions: Array[DeleteRecordsRequest.DeleteRecordsPartition]

    class DeleteRecordsPartition(Struct):
        partition_index: Int32
        offset: Int64


@response(to=DeleteRecordsRequest)
class DeleteRecordsResponse(Message):
    """The lowest offset that each partition still has."""

    throttle_time_ms: Int32 = 0
    topics: Array[DeleteRecordsTopicResult]

    class DeleteRecordsTopicResult(Struct):
        name: Str
        partitions: Array[DeleteRecordsResponse.DeleteRecordsPartitionResult]

    class DeleteRecordsPartitionResult(Struct):
        partition_index: Int32
        low_watermark: Int64
        error_code: Error
