"""Idempotent and transactional producers."""

from __future__ import annotations

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.primitives import Array, Bool, Error, Int8, Int16, Int32, Int64, NullableStr, Str
from kbroker.protocol.schema import Message, Struct, request, response, since, until


@request(key=22, versions="0-5", flexible="2+")
class InitProducerIdRequest(Message):
    """Ask for a producer id and epoch; with a transactional id this fences the previous producer."""

    transactional_id: NullableStr
    transaction_timeout_ms: Int32
    producer_id: Int64 = since(3, default=-1)
    producer_epoch: Int16 = since(3, default=-1)


@response(to=InitProducerIdRequest)
class InitProducerIdResponse(Message):
    """The producer id and epoch to write with."""

    throttle_time_ms: Int32 = 0
    error_code: Error
    producer_id: Int64 = -1
    producer_epoch: Int16


@request(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest(Message):
    """Add partitions to a transaction; from version 4 on brokers ask for several at once."""

    transactions: Array[AddPartitionsToTxnTransaction] = since(4, default=())
    v3_and_below_transactional_id: Str = until(3, default="")
    v3_and_below_producer_id: Int64 = until(3, default=0)
    v3_and_below_producer_epoch: Int16 = until(3, default=0)
    v3_and_below_topics: Array[AddPartitionsToTxnTopic] = until(3, default=())

    class AddPartitionsToTxnTransaction(Struct):
        transactional_id: Str
        producer_id: Int64
        producer_epoch: Int16
        verify_only: Bool = False
        topics: Array[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]

    class AddPartitionsToTxnTopic(Struct):
        name: Str
        partitions: Array[Int32]


@response(to=AddPartitionsToTxnRequest)
class AddPartitionsToTxnResponse(Message):
    """What became of each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Error = since(4, default=ErrorCode.NONE, ignorable=True)
    results_by_transaction: Array[AddPartitionsToTxnResult] = since(4, default=())
    results_by_topic_v3_and_below: Array[AddPartitionsToTxnTopicResult] = until(3, default=())

    class AddPartitionsToTxnResult(Struct):
        transactional_id: Str
        topic_results: Array[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]

    class AddPartitionsToTxnTopicResult(Struct):
        name: Str
        results_by_partition: Array[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult]

    class AddPartitionsToTxnPartitionResult(Struct):
        partition_index: Int32
        partition_error_code: Error


@request(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Message):
    """Add a group's committed offsets to a transaction."""

    transactional_id: Str
    producer_id: Int64
    producer_epoch: Int16
    group_id: Str


@response(to=AddOffsetsToTxnRequest)
class AddOffsetsToTxnResponse(Message):
    """Whether the group was added."""

    throttle_time_ms: Int32 = 0
    error_code: Error


@request(key=26, versions="0-5", flexible="3+")
class EndTxnRequest(Message):
    """Commit or abort a transaction; from version 5 on each has an epoch of its own (KIP-890)."""

    transactional_id: Str
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


@response(to=EndTxnRequest)
class EndTxnResponse(Message):
    """Whether the decision was written, and what the producer goes on with."""

    throttle_time_ms: Int32 = 0
    error_code: Error
    producer_id: Int64 = since(5, default=-1, ignorable=True)
    producer_epoch: Int16 = since(5, default=-1, ignorable=True)


@request(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest(Message):
    """The coordinator has leaders write COMMIT or ABORT markers; version 2 says by which rules (KIP-1228)."""

    markers: Array[WritableTxnMarker]

    class WritableTxnMarker(Struct):
        producer_id: Int64
        producer_epoch: Int16
        transaction_result: Bool
        topics: Array[WriteTxnMarkersRequest.WritableTxnMarkerTopic]
        coordinator_epoch: Int32
        transaction_version: Int8 = since(2, default=0, ignorable=True)

    class WritableTxnMarkerTopic(Struct):
        name: Str
        partition_indexes: Array[Int32]


@response(to=WriteTxnMarkersRequest)
class WriteTxnMarkersResponse(Message):
    """What became of each partition's marker."""

    markers: Array[WritableTxnMarkerResult]

    class WritableTxnMarkerResult(Struct):
        producer_id: Int64
        topics: Array[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult]

    class WritableTxnMarkerTopicResult(Struct):
        name: Str
        partitions: Array[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult]

    class WritableTxnMarkerPartitionResult(Struct):
        partition_index: Int32
        error_code: Error


@request(key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest(Message):
    """Store a group's offsets as part of a transaction; version 5 lets the group take part in it, too."""

    transactional_id: Str
    group_id: Str
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = since(3, default=-1)
    member_id: Str = since(3, default="")
    group_instance_id: NullableStr = since(3, default=None)
    topics: Array[TxnOffsetCommitRequestTopic]

    class TxnOffsetCommitRequestTopic(Struct):
        name: Str
        partitions: Array[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]

    class TxnOffsetCommitRequestPartition(Struct):
        partition_index: Int32
        committed_offset: Int64
        committed_leader_epoch: Int32 = since(2, default=-1, ignorable=True)
        committed_metadata: NullableStr


@response(to=TxnOffsetCommitRequest)
class TxnOffsetCommitResponse(Message):
    """What became of each partition's offset."""

    throttle_time_ms: Int32 = 0
    topics: Array[TxnOffsetCommitResponseTopic]

    class TxnOffsetCommitResponseTopic(Struct):
        name: Str
        partitions: Array[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition]

    class TxnOffsetCommitResponsePartition(Struct):
        partition_index: Int32
        error_code: Error


@request(key=61, versions="0", flexible="0+")
class DescribeProducersRequest(Message):
    """Ask for the active producers of partitions."""

    topics: Array[TopicRequest]

    class TopicRequest(Struct):
        name: Str
        partition_indexes: Array[Int32]


@response(to=DescribeProducersRequest)
class DescribeProducersResponse(Message):
    """Id, epoch, last sequence and open transaction of each producer."""

    throttle_time_ms: Int32 = 0
    topics: Array[TopicResponse]

    class TopicResponse(Struct):
        name: Str
        partitions: Array[DescribeProducersResponse.PartitionResponse]

    class PartitionResponse(Struct):
        partition_index: Int32
        error_code: Error
        error_message: NullableStr = None
        active_producers: Array[DescribeProducersResponse.ProducerState]

    class ProducerState(Struct):
        producer_id: Int64
        producer_epoch: Int32
        last_sequence: Int32 = -1
        last_timestamp: Int64 = -1
        coordinator_epoch: Int32
        current_txn_start_offset: Int64 = -1


@request(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest(Message):
    """Ask for the state of transactions by transactional id."""

    transactional_ids: Array[Str]


@response(to=DescribeTransactionsRequest)
class DescribeTransactionsResponse(Message):
    """State, producer and partitions of each transaction."""

    throttle_time_ms: Int32 = 0
    transaction_states: Array[TransactionState]

    class TransactionState(Struct):
        error_code: Error
        transactional_id: Str
        transaction_state: Str
        transaction_timeout_ms: Int32
        transaction_start_time_ms: Int64
        producer_id: Int64
        producer_epoch: Int16
        topics: Array[DescribeTransactionsResponse.TopicData]

    class TopicData(Struct):
        topic: Str
        partitions: Array[Int32]


@request(key=66, versions="0-1", flexible="0+")
class ListTransactionsRequest(Message):
    """Ask for a broker's transactions, filtered by state, producer id and age."""

    state_filters: Array[Str]
    producer_id_filters: Array[Int64]
    duration_filter: Int64 = since(1, default=-1)


@response(to=ListTransactionsRequest)
class ListTransactionsResponse(Message):
    """The transactions this broker coordinates, and filters it did not know."""

    throttle_time_ms: Int32 = 0
    error_code: Error
    unknown_state_filters: Array[Str]
    transaction_states: Array[TransactionState]

    class TransactionState(Struct):
        transactional_id: Str
        producer_id: Int64
        transaction_state: Str
