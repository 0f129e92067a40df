"""The cluster as clients see it: Metadata, DescribeCluster, UpdateFeatures."""

from __future__ import annotations

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


@request(key=3, versions="0-12", flexible="9+")
class MetadataRequest(Message):
    """Ask for brokers and partitions; null (version 0: an empty array) asks for all topics."""

    topics: NullableArray[MetadataRequestTopic] = field(nullable="1+")
    allow_auto_topic_creation: Bool = since(4, default=True)
    include_cluster_authorized_operations: Bool = field(versions="8-10", default=False)
    include_topic_authorized_operations: Bool = since(8, default=False)

    class MetadataRequestTopic(Struct):
        topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
        name: NullableStr = field(nullable="10+")


@response(to=MetadataRequest)
class MetadataResponse(Message):
    """Brokers, controller, and the leader, replicas and ISR of each partition."""

    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    brokers: Array[MetadataResponseBroker]
    cluster_id: NullableStr = since(2, default=None, ignorable=True)
    controller_id: Int32 = since(1, default=-1, ignorable=True)
    topics: Array[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = field(versions="8-10", default=-2147483648)

    class MetadataResponseBroker(Struct):
        node_id: Int32
        host: Str
        port: Int32
        rack: NullableStr = since(1, default=None, ignorable=True)

    class MetadataResponseTopic(Struct):
        error_code: Error
        name: NullableStr = field(nullable="12+")
        topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
        is_internal: Bool = since(1, default=False, ignorable=True)
        partitions: Array[MetadataResponse.MetadataResponsePartition]
        topic_authorized_operations: Int32 = since(8, default=-2147483648)

    class MetadataResponsePartition(Struct):
        error_code: Error
        partition_index: Int32
        leader_id: Int32
        leader_epoch: Int32 = since(7, default=-1, ignorable=True)
        replica_nodes: Array[Int32]
        isr_nodes: Array[Int32]
        offline_replicas: Array[Int32] = since(5, default=(), ignorable=True)


@request(key=60, versions="0-1", flexible="0+")
class DescribeClusterRequest(Message):
    """Ask for the cluster's brokers without any topic."""

    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = since(1, default=1)


@response(to=DescribeClusterRequest)
class DescribeClusterResponse(Message):
    """Cluster id, controller and brokers."""

    throttle_time_ms: Int32 = 0
    error_code: Error
    error_message: NullableStr = None
    endpoint_type: Int8 = since(1, default=1)
    cluster_id: Str
    controller_id: Int32 = -1
    brokers: Array[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = -2147483648

    class DescribeClusterBroker(Struct):
        broker_id: Int32
        host: Str
        port: Int32
        rack: NullableStr = None


@request(key=57, versions="0-1", flexible="0+")
class UpdateFeaturesRequest(Message):
    """Change the levels of cluster-wide features."""

    timeout_ms: Int32 = 60000
    feature_updates: Array[FeatureUpdateKey]
    validate_only: Bool = since(1, default=False)

    class FeatureUpdateKey(Struct):
        feature: Str
        max_version_level: Int16
        allow_downgrade: Bool = until(0, default=False)
        upgrade_type: Int8 = since(1, default=1)


@response(to=UpdateFeaturesRequest)
class UpdateFeaturesResponse(Message):
    """What became of each feature's change."""

    throttle_time_ms: Int32 = 0
    error_code: Error
    error_message: NullableStr = None
    results: Array[UpdatableFeatureResult]

    class UpdatableFeatureResult(Struct):
        feature: Str
        error_code: Error
        error_message: NullableStr = None
