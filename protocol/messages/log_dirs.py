"""Log directories of a broker: AlterReplicaLogDirs, DescribeLogDirs."""

from __future__ import annotations

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.primitives import ZERO_UUID, Array, Bool, Error, Int32, Int64, NullableArray, Str, Uuid
from kbroker.protocol.schema import Message, Struct, request, response, since


@request(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest(Message):
    """Move replicas into other log directories of the same broker."""

    dirs: Array[AlterReplicaLogDir]

    class AlterReplicaLogDir(Struct):
        path: Str
        topics: Array[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic]

    class AlterReplicaLogDirTopic(Struct):
        name: Str
        partitions: Array[Int32]


@response(to=AlterReplicaLogDirsRequest)
class AlterReplicaLogDirsResponse(Message):
    """What became of each replica."""

    throttle_time_ms: Int32 = 0
    results: Array[AlterReplicaLogDirTopicResult]

    class AlterReplicaLogDirTopicResult(Struct):
        topic_name: Str
        partitions: Array[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult]

    class AlterReplicaLogDirPartitionResult(Struct):
        partition_index: Int32
        error_code: Error


@request(key=35, versions="1-4", flexible="2+")
class DescribeLogDirsRequest(Message):
    """Ask for the sizes of logs; null asks for all topics."""

    topics: NullableArray[DescribableLogDirTopic]
    # Have the closed segments of these logs read again, now, as the scrub of this id, or tell how far it is; nothing is
    # described then. Our own tag, as the one below.
    scrub_id: Uuid = since(2, default=ZERO_UUID, tag=10_000, ignorable=True)

    class DescribableLogDirTopic(Struct):
        topic: Str
        partitions: Array[Int32]


@response(to=DescribeLogDirsRequest)
class DescribeLogDirsResponse(Message):
    """Each log directory with its space and its logs."""

    throttle_time_ms: Int32 = 0
    error_code: Error = since(3, default=ErrorCode.NONE, ignorable=True)
    results: Array[DescribeLogDirsResult]
    # The scrub that was asked about; nothing from who does not scrub. A tag that Kafka does not have.
    scrubs: Array[DescribeLogDirsResponse.Scrub] = since(2, default=(), tag=10_000, ignorable=True)

    class Scrub(Struct):
        is_over: Bool
        segments: Int64
        checked_segments: Int64
        bytes: Int64
        checked_bytes: Int64
        damages: Array[DescribeLogDirsResponse.ScrubDamage]

    class ScrubDamage(Struct):
        topic: Str
        partition: Int32
        log_dir: Str
        # Its base offset.
        segment: Int64
        # Of the first bad batch in the file.
        position: Int64
        # Behind the last batch that is good, and where the next segment begins.
        offset: Int64
        end_offset: Int64
        # "mending", "mended" or "damaged".
        state: Str
        why: Str

    class DescribeLogDirsResult(Struct):
        error_code: Error
        log_dir: Str
        topics: Array[DescribeLogDirsResponse.DescribeLogDirsTopic]
        total_bytes: Int64 = since(4, default=-1, ignorable=True)
        usable_bytes: Int64 = since(4, default=-1, ignorable=True)

    class DescribeLogDirsTopic(Struct):
        name: Str
        partitions: Array[DescribeLogDirsResponse.DescribeLogDirsPartition]

    class DescribeLogDirsPartition(Struct):
        partition_index: Int32
        partition_size: Int64
        offset_lag: Int64
        is_future_key: Bool
