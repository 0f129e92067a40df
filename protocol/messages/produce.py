"""Produce."""

from __future__ import annotations

from kbroker.protocol.primitives import Array, Error, Int16, Int32, Int64, NullableStr, Records, Str
from kbroker.protocol.schema import DEFAULTS, Message, Struct, request, response, since


@request(key=0, versions="0-12", flexible="9+")
class ProduceRequest(Message):
    """Append record batches to partitions; acks says how many replicas must have them before the answer.

    In a transaction, version 12 lets the partitions take part in it, too (KIP-890).
    """

    transactional_id: NullableStr = since(3, default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: Array[TopicProduceData]

    class TopicProduceData(Struct):
        name: Str
        partition_data: Array[ProduceRequest.PartitionProduceData]

    class PartitionProduceData(Struct):
        index: Int32
        records: Records


@response(to=ProduceRequest)
class ProduceResponse(Message):
    """The offset each partition gave its batch, or why it took none."""

    responses: Array[TopicProduceResponse]
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    node_endpoints: Array[NodeEndpoint] = since(10, default=(), tag=0)

    class TopicProduceResponse(Struct):
        name: Str
        partition_responses: Array[ProduceResponse.PartitionProduceResponse]

    class NodeEndpoint(Struct):
        node_id: Int32
        host: Str
        port: Int32
        rack: NullableStr = None

    class PartitionProduceResponse(Struct):
        index: Int32
        error_code: Error
        base_offset: Int64
        log_append_time_ms: Int64 = since(2, default=-1, ignorable=True)
        log_start_offset: Int64 = since(5, default=-1, ignorable=True)
        record_errors: Array[ProduceResponse.BatchIndexAndErrorMessage] = since(8, default=(), ignorable=True)
        error_message: NullableStr = since(8, default=None, ignorable=True)
        current_leader: ProduceResponse.LeaderIdAndEpoch = since(10, default=DEFAULTS, tag=0)

    class BatchIndexAndErrorMessage(Struct):
        batch_index: Int32
        batch_index_error_message: NullableStr = None

    class LeaderIdAndEpoch(Struct):
        leader_id: Int32 = -1
        leader_epoch: Int32 = -1
