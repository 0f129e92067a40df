"""Between controller and brokers: LeaderAndIsr, StopReplica, UpdateMetadata, and what brokers ask of the controller."""

from __future__ import annotations

from kbroker.protocol.primitives import ZERO_UUID, Array, Bool, Error, Int8, Int16, Int32, Int64, NullableStr, Str, Uuid
from kbroker.protocol.schema import Message, Struct, field, request, response, since, until

STOP_REPLICA_VERSION = 4
"""The newest, which controllers send."""
LEADER_BEING_DELETED, EPOCH_BEING_DELETED = -2, -2
"""Of a partition whose topic is being deleted."""


@request(key=4, versions="0-7", flexible="4+")
class LeaderAndIsrRequest(Message):
    """The controller tells a broker which partitions it leads or follows."""

    controller_id: Int32
    is_kraft_controller: Bool = since(7, default=False)
    controller_epoch: Int32
    broker_epoch: Int64 = since(2, default=-1, ignorable=True)
    type: Int8 = since(5, default=0)
    ungrouped_partition_states: Array[LeaderAndIsrPartitionState] = until(1, default=())
    topic_states: Array[LeaderAndIsrTopicState] = since(2, default=())
    live_leaders: Array[LeaderAndIsrLiveLeader]

    class LeaderAndIsrPartitionState(Struct):
        topic_name: Str = until(1, default="", ignorable=True)
        partition_index: Int32
        controller_epoch: Int32
        leader: Int32
        leader_epoch: Int32
        isr: Array[Int32]
        partition_epoch: Int32
        replicas: Array[Int32]
        adding_replicas: Array[Int32] = since(3, default=(), ignorable=True)
        removing_replicas: Array[Int32] = since(3, default=(), ignorable=True)
        is_new: Bool = since(1, default=False, ignorable=True)
        leader_recovery_state: Int8 = since(6, default=0)

    class LeaderAndIsrTopicState(Struct):
        topic_name: Str
        topic_id: Uuid = since(5, default=ZERO_UUID, ignorable=True)
        partition_states: Array[LeaderAndIsrRequest.LeaderAndIsrPartitionState]

    class LeaderAndIsrLiveLeader(Struct):
        broker_id: Int32
        host_name: Str
        port: Int32


@response(to=LeaderAndIsrRequest)
class LeaderAndIsrResponse(Message):
    """What became of each partition."""

    error_code: Error
    partition_errors: Array[LeaderAndIsrPartitionError] = until(4, default=())
    topics: Array[LeaderAndIsrTopicError] = since(5, default=())

    class LeaderAndIsrPartitionError(Struct):
        topic_name: Str = until(4, default="", ignorable=True)
        partition_index: Int32
        error_code: Error

    class LeaderAndIsrTopicError(Struct):
        topic_id: Uuid
        partition_errors: Array[LeaderAndIsrResponse.LeaderAndIsrPartitionError]


@request(key=5, versions="0-4", flexible="2+")
class StopReplicaRequest(Message):
    """The controller has a broker stop replicas, and delete some of them."""

    controller_id: Int32
    is_kraft_controller: Bool = since(4, default=False)
    controller_epoch: Int32
    broker_epoch: Int64 = since(1, default=-1, ignorable=True)
    delete_partitions: Bool = until(2, default=False)
    ungrouped_partitions: Array[StopReplicaPartitionV0] = until(0, default=())
    topics: Array[StopReplicaTopicV1] = field(versions="1-2", default=())
    topic_states: Array[StopReplicaTopicState] = since(3, default=())

    class StopReplicaPartitionV0(Struct):
        topic_name: Str
        partition_index: Int32

    class StopReplicaTopicV1(Struct):
        name: Str
        partition_indexes: Array[Int32]

    class StopReplicaTopicState(Struct):
        topic_name: Str
        partition_states: Array[StopReplicaRequest.StopReplicaPartitionState]

    class StopReplicaPartitionState(Struct):
        partition_index: Int32
        leader_epoch: Int32 = -1
        delete_partition: Bool


@response(to=StopReplicaRequest)
class StopReplicaResponse(Message):
    """What became of each replica."""

    error_code: Error
    partition_errors: Array[StopReplicaPartitionError]

    class StopReplicaPartitionError(Struct):
        topic_name: Str
        partition_index: Int32
        error_code: Error


@request(key=6, versions="0-8", flexible="6+")
class UpdateMetadataRequest(Message):
    """The controller tells a broker the cluster's brokers and partitions; endpoints have port before host."""

    controller_id: Int32
    is_kraft_controller: Bool = since(8, default=False)
    type: Int8 = since(8, default=0, tag=0)
    controller_epoch: Int32
    broker_epoch: Int64 = since(5, default=-1, ignorable=True)
    ungrouped_partition_states: Array[UpdateMetadataPartitionState] = until(4, default=())
    topic_states: Array[UpdateMetadataTopicState] = since(5, default=())
    live_brokers: Array[UpdateMetadataBroker]

    class UpdateMetadataPartitionState(Struct):
        topic_name: Str = until(4, default="", ignorable=True)
        partition_index: Int32
        controller_epoch: Int32
        leader: Int32
        leader_epoch: Int32
        isr: Array[Int32]
        zk_version: Int32
        replicas: Array[Int32]
        offline_replicas: Array[Int32] = since(4, default=(), ignorable=True)

    class UpdateMetadataTopicState(Struct):
        topic_name: Str
        topic_id: Uuid = since(7, default=ZERO_UUID, ignorable=True)
        partition_states: Array[UpdateMetadataRequest.UpdateMetadataPartitionState]

    class UpdateMetadataBroker(Struct):
        id: Int32
        v0_host: Str = until(0, default="", ignorable=True)
        v0_port: Int32 = until(0, default=0, ignorable=True)
        endpoints: Array[UpdateMetadataRequest.UpdateMetadataEndpoint] = since(1, default=(), ignorable=True)
        rack: NullableStr = since(2, default="", ignorable=True)

    class UpdateMetadataEndpoint(Struct):
        port: Int32
        host: Str
        listener: Str = since(3, default="", ignorable=True)
        security_protocol: Int16


@response(to=UpdateMetadataRequest)
class UpdateMetadataResponse(Message):
    """Whether the broker took the metadata over."""

    error_code: Error


@request(key=7, versions="0-3", flexible="3+")
class ControlledShutdownRequest(Message):
    """A broker that is about to stop asks the controller to move its leaders away."""

    broker_id: Int32
    broker_epoch: Int64 = since(2, default=-1, ignorable=True)


@response(to=ControlledShutdownRequest)
class ControlledShutdownResponse(Message):
    """Partitions that the broker still leads."""

    error_code: Error
    remaining_partitions: Array[RemainingPartition]

    class RemainingPartition(Struct):
        topic_name: Str
        partition_index: Int32


@request(key=56, versions="0-3", flexible="0+")
class AlterPartitionRequest(Message):
    """A leader asks the controller for a change of ISR."""

    broker_id: Int32
    broker_epoch: Int64 = -1
    topics: Array[TopicData]

    class TopicData(Struct):
        topic_name: Str = until(1, default="", ignorable=True)
        topic_id: Uuid = since(2, default=ZERO_UUID, ignorable=True)
        partitions: Array[AlterPartitionRequest.PartitionData]

    class PartitionData(Struct):
        partition_index: Int32
        leader_epoch: Int32
        new_isr: Array[Int32] = until(2, default=())
        new_isr_with_epochs: Array[AlterPartitionRequest.BrokerState] = since(3, default=())
        leader_recovery_state: Int8 = since(1, default=0)
        partition_epoch: Int32

    class BrokerState(Struct):
        broker_id: Int32
        broker_epoch: Int64 = -1


@response(to=AlterPartitionRequest)
class AlterPartitionResponse(Message):
    """Leader, ISR and epochs that now hold for each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Error
    topics: Array[TopicData]

    class TopicData(Struct):
        topic_name: Str = until(1, default="", ignorable=True)
        topic_id: Uuid = since(2, default=ZERO_UUID, ignorable=True)
        partitions: Array[AlterPartitionResponse.PartitionData]

    class PartitionData(Struct):
        partition_index: Int32
        error_code: Error
        leader_id: Int32
        leader_epoch: Int32
        isr: Array[Int32]
        leader_recovery_state: Int8 = since(1, default=0, ignorable=True)
        partition_epoch: Int32


@request(key=67, versions="0", flexible="0+")
class AllocateProducerIdsRequest(Message):
    """A broker asks the controller for a block of producer ids."""

    broker_id: Int32
    broker_epoch: Int64 = -1


@response(to=AllocateProducerIdsRequest)
class AllocateProducerIdsResponse(Message):
    """First id and length of the block."""

    throttle_time_ms: Int32 = 0
    error_code: Error
    producer_id_start: Int64
    producer_id_len: Int32
