"""Requests of very many elements, each made of a number of them: what `stall_loads.py` sends again and again."""

from __future__ import annotations

import gzip
import struct
from typing import Any

from kbroker.protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.offsets import DeleteRecordsRequest, ListOffsetsRequest
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from kbroker.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from kbroker.protocol.messages.transactions import AddPartitionsToTxnRequest
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.checksum import crc32c

TOPIC_RESOURCE, BROKER_RESOURCE, SET = 2, 4, 0
GZIP, SNAPPY, ZSTD = 1, 2, 4
MIB = 1 << 20
LONGEST_NAME = 32_767


def batch(records: int, size: int, compression: int = 0, **producer: Any) -> bytes:
    """Return a batch of records that hold zeros."""
    builder = BatchBuilder(records * (size + 64) + 1024, compression)
    for _ in range(records):
        builder.append(None, bytes(size), (), 1_700_000_000_000)
    return bytes(builder.build(**producer))


def metadata_by_name(number: int) -> object:
    """Ask for topics that are not there."""
    topics = [MetadataRequest.MetadataRequestTopic(name=f"nowhere-{each}") for each in range(number)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def one_resource(number: int) -> object:
    """Ask for one broker's settings many times."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name="1", configuration_keys=None
    )
    return DescribeConfigsRequest(resources=[resource] * number)


def topics_settings(number: int) -> object:
    """Ask for the settings of as many topics."""
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=f"t-{each}", configuration_keys=None
        )
        for each in range(number)
    ]
    return DescribeConfigsRequest(resources=resources)


def offsets(number: int) -> object:
    """Ask for offsets of partitions that are not there."""
    partitions = [
        ListOffsetsRequest.ListOffsetsPartition(partition_index=each, timestamp=1_600_000_000_000)
        for each in range(number)
    ]
    topic = ListOffsetsRequest.ListOffsetsTopic(name="nowhere", partitions=partitions)
    return ListOffsetsRequest(replica_id=-1, topics=[topic])


def commits(number: int) -> object:
    """Commit offsets of as many partitions, as nobody's member."""
    partitions = [
        OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=each, committed_offset=1, committed_metadata=""
        )
        for each in range(number)
    ]
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="nowhere", partitions=partitions)
    return OffsetCommitRequest(group_id="hostile", member_id="", topics=[topic])


def committed(number: int) -> object:
    """Ask for as many committed offsets."""
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="nowhere", partition_indexes=list(range(number)))
    return OffsetFetchRequest(group_id="hostile", topics=[topic])


def coordinators(number: int) -> object:
    """Ask for as many coordinators."""
    return FindCoordinatorRequest(key_type=0, coordinator_keys=[f"group-{each}" for each in range(number)])


def groups(number: int) -> object:
    """Ask for as many groups."""
    return DescribeGroupsRequest(groups=[f"group-{each}" for each in range(number)])


def deletions(number: int) -> object:
    """Delete records of partitions that are not there."""
    partitions = [DeleteRecordsRequest.DeleteRecordsPartition(partition_index=each, offset=1) for each in range(number)]
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="nowhere", partitions=partitions)
    return DeleteRecordsRequest(topics=[topic], timeout_ms=1000)


def groups_to_delete(number: int) -> object:
    """Delete groups that are not there."""
    return DeleteGroupsRequest(groups_names=[f"group-{each}" for each in range(number)])


def topics_to_make(number: int) -> object:
    """Check as many topics."""
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=f"made-{each}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        for each in range(number)
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=True)


def topics_to_delete(number: int) -> object:
    """Delete topics that are not there."""
    return DeleteTopicsRequest(topic_names=[f"nowhere-{each}" for each in range(number)], timeout_ms=1000)


def elections(number: int) -> object:
    """Elect leaders of partitions that are not there."""
    topic = ElectLeadersRequest.TopicPartitions(topic="nowhere", partitions=list(range(number)))
    return ElectLeadersRequest(election_type=0, topic_partitions=[topic], timeout_ms=1000)


def moves(number: int) -> object:
    """Move partitions that are not there."""
    partitions = [
        AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=each, replicas=[1])
        for each in range(number)
    ]
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="nowhere", partitions=partitions)
    return AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=[topic])


def changes(number: int) -> object:
    """Change as many settings of one topic."""
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=f"setting-{each}", config_operation=SET, value="1")
        for each in range(number)
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name="t-0", configs=configs
    )
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)


def many_batches(number: int) -> object:
    """Produce to as many partitions that are not there."""
    records = batch(1, 10)
    data = [ProduceRequest.PartitionProduceData(index=each, records=records) for each in range(number)]
    topic = ProduceRequest.TopicProduceData(name="nowhere", partition_data=data)
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])


def unknown_partitions(number: int) -> object:
    """Fetch partitions that are not there, in a session of its own."""
    partitions = [
        FetchRequest.FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=MIB) for each in range(number)
    ]
    topic = FetchRequest.FetchTopic(topic="nowhere", partitions=partitions)
    return FetchRequest(max_wait_ms=500, min_bytes=1, session_id=0, session_epoch=0, topics=[topic])


def empty_pieces(number: int) -> object:
    """Produce batches that consist of thousands of empty gzip members, to as many partitions."""
    records = bytearray(batch(1, 10, GZIP)[:61] + gzip.compress(b"") * 2000)
    struct.pack_into(">i", records, 8, len(records) - 12)
    struct.pack_into(">I", records, 17, crc32c(records[21:]))
    data = [ProduceRequest.PartitionProduceData(index=each, records=records) for each in range(number)]
    topic = ProduceRequest.TopicProduceData(name="wide", partition_data=data)
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])


def moves_under_way(number: int) -> object:
    """Ask which partitions of a topic that is not there are being moved."""
    topic = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(
        name="nowhere", partition_indexes=list(range(number))
    )
    return ListPartitionReassignmentsRequest(timeout_ms=1000, topics=[topic])


def verified(number: int) -> object:
    """Ask as a broker whether so many partitions of one topic are part of a transaction."""
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="nowhere", partitions=list(range(number)))
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id="hostile", producer_id=1, producer_epoch=0, verify_only=True, topics=[topic]
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def added(number: int) -> object:
    """Let so many partitions that are not there take part in a transaction."""
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="nowhere", partitions=list(range(number)))
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="hostile",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[topic],
    )


def long_names(number: int) -> object:
    """Produce to topics whose names are as long as the wire allows."""
    data = [ProduceRequest.PartitionProduceData(index=0, records=batch(1, 10))]
    topics = [
        ProduceRequest.TopicProduceData(name=f"{each:0{LONGEST_NAME}}", partition_data=data) for each in range(number)
    ]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)


def transactional_batches(number: int) -> object:
    """Produce batches to one partition, and say that they may be of a transaction."""
    data = [ProduceRequest.PartitionProduceData(index=0, records=batch(1, 10))] * number
    topic = ProduceRequest.TopicProduceData(name="nowhere", partition_data=data)
    return ProduceRequest(transactional_id="hostile", acks=1, timeout_ms=1000, topic_data=[topic])
