"""What conversations ask brokers for: topics, batches, offsets, settings."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from kbroker.protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.offsets import ListOffsetsRequest
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.topics import CreateTopicsRequest
from kbroker.protocol.records.batch import write_crc
from kbroker.protocol.records.builder import BatchBuilder
from tests.parity.transcript import Talk

NOW = 1_700_000_000_000


def creation(*topics: Any, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=15_000, validate_only=validate_only)


def new_topic(
    name: str, partitions: int = 1, replicas: int = 1, configs: Sequence[tuple[str, str | None]] = (), **more: Any
) -> Any:
    config = CreateTopicsRequest.CreatableTopicConfig
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in more.get("assigned", ())
        ],
        configs=[config(name=key, value=value) for key, value in configs],
    )


def make_topic(talk: Talk, name: str, partitions: int = 1, configs: Sequence[tuple[str, str | None]] = ()) -> str:
    """Create a topic of this conversation and return its name; it can be used when this returns."""
    full_name = talk.topic(name)
    talk.ask("create", creation(new_topic(full_name, partitions, configs=configs)), 4)
    return full_name


def batch(
    count: int = 1, compression: int = 0, producer: tuple[int, int, int] = (-1, -1, -1), transactional: bool = False
) -> bytearray:
    """Records a second apart; `producer` is id, epoch, base sequence."""
    builder = BatchBuilder(1 << 20, compression)
    for number in range(count):
        builder.append(b"key", b"value %d" % number, [("h", b"1")], NOW + 1000 * number)
    producer_id, epoch, sequence = producer
    built = builder.build(producer_id, epoch, sequence, transactional)
    return bytearray(bytes(built))


def altered(position: int, layout: str, value: int, checksum: bool = True) -> bytearray:
    """A batch of three records with one field of its header set (and a CRC that fits)."""
    data = batch(3)
    struct.pack_into(layout, data, position, value)
    if checksum:
        write_crc(data, 0)
    return data


def production(
    topic: str, records: Any, partition: int = 0, acks: int = -1, transactional_id: str | None = None
) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=5_000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
    )


def topic_id(talk: Talk, topic: str) -> bytes:
    wanted = MetadataRequest.MetadataRequestTopic(name=topic)
    answer = talk.ask("id of", MetadataRequest(topics=[wanted], allow_auto_topic_creation=False), 12)
    return bytes(answer.topics[0].topic_id)


def fetching(version: int, topic: str, identity: bytes, offset: int, partition: int = 0, **more: Any) -> FetchRequest:
    in_partition = {"partition_max_bytes": 1 << 20} | {
        key: more.pop(key)
        for key in ("partition_max_bytes", "current_leader_epoch", "last_fetched_epoch")
        if key in more
    }
    wanted = FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, **in_partition)
    named: dict[str, Any] = {"topic": topic} if version < 13 else {"topic_id": identity}
    values: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "forgotten_topics_data": []}
    return FetchRequest(**values | more, topics=[FetchRequest.FetchTopic(partitions=[wanted], **named)])


def offsets_at(topic: str, timestamp: int, partition: int = 0, **more: Any) -> ListOffsetsRequest:
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, **more)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])]
    )


def description(kind: int, name: str, keys: list[str] | None, documented: bool = False) -> DescribeConfigsRequest:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    return DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=documented)


def change(kind: int, name: str, *changes: tuple[str, int, str | None]) -> IncrementalAlterConfigsRequest:
    wanted = IncrementalAlterConfigsRequest
    configs = [wanted.AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
    resource = wanted.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return wanted(resources=[resource], validate_only=False)
