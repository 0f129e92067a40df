"""Topics come, grow and go: CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.primitives import (
    ZERO_UUID,
    Array,
    Bool,
    Error,
    Int8,
    Int16,
    Int32,
    NullableArray,
    NullableStr,
    Str,
    Uuid,
)
from kbroker.protocol.schema import Message, Struct, field, request, response, since, until


@request(key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest(Message):
    """Create topics, by counts or by a manual assignment of replicas."""

    topics: Array[CreatableTopic]
    timeout_ms: Int32 = 60000
    validate_only: Bool = False

    class CreatableTopic(Struct):
        name: Str
        num_partitions: Int32
        replication_factor: Int16
        assignments: Array[CreateTopicsRequest.CreatableReplicaAssignment]
        configs: Array[CreateTopicsRequest.CreatableTopicConfig]

    class CreatableReplicaAssignment(Struct):
        partition_index: Int32
        broker_ids: Array[Int32]

    class CreatableTopicConfig(Struct):
        name: Str
        value: NullableStr


@response(to=CreateTopicsRequest)
class CreateTopicsResponse(Message):
    """What became of each topic, with its effective configuration from version 5 on."""

    throttle_time_ms: Int32 = 0
    topics: Array[CreatableTopicResult]

    class CreatableTopicResult(Struct):
        name: Str
        topic_id: Uuid = since(7, default=ZERO_UUID, ignorable=True)
        error_code: Error
        error_message: NullableStr = None
        topic_config_error_code: Error = since(5, default=ErrorCode.NONE, tag=0, ignorable=True)
        num_partitions: Int32 = since(5, default=-1, ignorable=True)
        replication_factor: Int16 = since(5, default=-1, ignorable=True)
        configs: NullableArray[CreateTopicsResponse.CreatableTopicConfigs] = since(5, default=(), ignorable=True)

    class CreatableTopicConfigs(Struct):
        name: Str
        value: NullableStr
        read_only: Bool
        config_source: Int8 = -1
        is_sensitive: Bool


@request(key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest(Message):
    """Delete topics by name, from version 6 on also by id."""

    topics: Array[DeleteTopicState] = since(6, default=())
    topic_names: Array[Str] = until(5, default=(), ignorable=True)
    timeout_ms: Int32

    class DeleteTopicState(Struct):
        name: NullableStr = None
        topic_id: Uuid


@response(to=DeleteTopicsRequest)
class DeleteTopicsResponse(Message):
    """What became of each topic."""

    throttle_time_ms: Int32 = 0
    responses: Array[DeletableTopicResult]

    class DeletableTopicResult(Struct):
        name: NullableStr = field(nullable="6+")
        topic_id: Uuid = since(6, default=ZERO_UUID, ignorable=True)
        error_code: Error
        error_message: NullableStr = since(5, default=None, ignorable=True)


@request(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest(Message):
    """Raise the number of partitions of topics; count is the new total."""

    topics: Array[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool

    class CreatePartitionsTopic(Struct):
        name: Str
        count: Int32
        assignments: NullableArray[CreatePartitionsRequest.CreatePartitionsAssignment]

    class CreatePartitionsAssignment(Struct):
        broker_ids: Array[Int32]


@response(to=CreatePartitionsRequest)
class CreatePartitionsResponse(Message):
    """What became of each topic."""

    throttle_time_ms: Int32 = 0
    results: Array[CreatePartitionsTopicResult]

    class CreatePartitionsTopicResult(Struct):
        name: Str
        error_code: Error
        error_message: NullableStr = None
