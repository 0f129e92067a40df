"""Every version of every API that a real broker advertises: asked so that its answer is full, and decoded.

An answer that a version cannot say would come back as an error of the broker's own (-1 or 35) in each place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.handlers.refusals import blank
from kbroker.network.dispatch import API_VERSIONS
from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.api_versions import ApiVersionsRequest
from kbroker.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.messages.log_dirs import DescribeLogDirsRequest
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.offsets import DeleteRecordsRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from kbroker.protocol.messages.security import DescribeAclsRequest
from kbroker.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.protocol.schema import Struct, schema_of
from kbroker.testing import unique_topic_name
from tests.system.wire import Peer, create_topic, one_batch

pytestmark = pytest.mark.slow

UNKNOWN = "nobody-knows-it"
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
_numbers = itertools.count()


class Place:
    """What requests may name: a topic with records on this broker."""

    def __init__(self, broker: BrokerProcess, peer: Peer) -> None:
        self.broker = broker
        self.topic = unique_topic_name("versions")
        create_topic(broker, self.topic, partitions=2)
        wanted = MetadataRequest.MetadataRequestTopic(topic_id=ZERO_UUID, name=self.topic)
        (topic,) = peer.ask(MetadataRequest(topics=[wanted]), 12).topics
        self.topic_id = bytes(topic.topic_id)
        peer.ask(produce_to_three(self, 9), 9)


def produce_to_three(place: Place, version: int) -> ProduceRequest:
    """A good batch, one of a partition that is not there, one whose record has an offset that lies."""
    make = ProduceRequest.PartitionProduceData
    good = [make(index=0, records=one_batch()), make(index=1, records=bytes(61)), make(index=9, records=one_batch())]
    return ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            ProduceRequest.TopicProduceData(name=place.topic, partition_data=good),
            ProduceRequest.TopicProduceData(name=UNKNOWN, partition_data=[make(index=0, records=one_batch())]),
        ],
    )


def fetch(place: Place, version: int) -> FetchRequest:
    """In a new session; from a good place, from beyond the end, from a partition that is not there."""
    make = FetchRequest.FetchPartition
    wanted = [
        make(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch)
        for partition, offset, epoch in ((0, 0, -1), (1, 99, -1), (9, 0, -1), (1, 0, 77 if version >= 9 else -1))
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=1,
        session_epoch=0 if version >= 7 else -1,
        topics=[
            FetchRequest.FetchTopic(topic=place.topic, topic_id=place.topic_id, partitions=wanted[:3]),
            FetchRequest.FetchTopic(topic=UNKNOWN, topic_id=b"\1" * 16, partitions=wanted[3:]),
        ],
    )


def list_offsets(place: Place, version: int) -> ListOffsetsRequest:
    make = ListOffsetsRequest.ListOffsetsPartition
    wanted = [make(partition_index=0, timestamp=0), make(partition_index=1, timestamp=-1)]
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(name=place.topic, partitions=wanted),
            ListOffsetsRequest.ListOffsetsTopic(name=UNKNOWN, partitions=[make(partition_index=0, timestamp=-2)]),
        ],
    )


def metadata(place: Place, version: int) -> MetadataRequest:
    make = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        topics=[make(name=place.topic), make(name="no/name")] + ([make(name=UNKNOWN)] if version >= 4 else []),
        allow_auto_topic_creation=version < 4,
        include_cluster_authorized_operations=8 <= version <= 10,
        include_topic_authorized_operations=version >= 8,
    )


def create_topics(place: Place, version: int) -> CreateTopicsRequest:
    make = CreateTopicsRequest.CreatableTopic
    config = CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="99")
    names = (f"{place.topic}-new-{next(_numbers)}", place.topic, "no/name")
    topics = [
        make(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[config]) for name in names
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=5000)


def delete_topics(place: Place, version: int) -> DeleteTopicsRequest:
    doomed = unique_topic_name("doomed")
    create_topic(place.broker, doomed)
    make = DeleteTopicsRequest.DeleteTopicState
    if version >= 6:
        asked = ((doomed, ZERO_UUID), (UNKNOWN, ZERO_UUID), (None, b"\1" * 16))
        topics = [make(name=name, topic_id=topic_id) for name, topic_id in asked]
        return DeleteTopicsRequest(topics=topics, timeout_ms=5000)
    return DeleteTopicsRequest(topic_names=[doomed, UNKNOWN], timeout_ms=5000)


def delete_records(place: Place, version: int) -> DeleteRecordsRequest:
    make = DeleteRecordsRequest.DeleteRecordsPartition
    wanted = [make(partition_index=0, offset=0), make(partition_index=9, offset=0)]
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name=place.topic, partitions=wanted)
    return DeleteRecordsRequest(topics=[topic], timeout_ms=5000)


def offset_for_leader_epoch(place: Place, version: int) -> OffsetForLeaderEpochRequest:
    make = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
    wanted = [make(partition=partition, leader_epoch=0) for partition in (0, 9)]
    return OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=place.topic, partitions=wanted)]
    )


def describe_configs(place: Place, version: int) -> DescribeConfigsRequest:
    make = DescribeConfigsRequest.DescribeConfigsResource
    names = ((TOPIC_RESOURCE, place.topic), (TOPIC_RESOURCE, UNKNOWN), (BROKER_RESOURCE, "1"))
    return DescribeConfigsRequest(
        resources=[make(resource_type=kind, resource_name=name, configuration_keys=None) for kind, name in names],
        include_synonyms=version >= 1,
        include_documentation=version >= 3,
    )


def alter_configs(place: Place, version: int) -> AlterConfigsRequest:
    config = AlterConfigsRequest.AlterableConfig(name="retention.ms", value="99")
    resources = [
        AlterConfigsRequest.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=[config])
        for name in (place.topic, UNKNOWN)
    ]
    return AlterConfigsRequest(resources=resources, validate_only=False)


def incremental_alter_configs(place: Place, version: int) -> IncrementalAlterConfigsRequest:
    config = IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", config_operation=0, value="99")
    make = IncrementalAlterConfigsRequest.AlterConfigsResource
    resources = [
        make(resource_type=TOPIC_RESOURCE, resource_name=name, configs=[config]) for name in (place.topic, UNKNOWN)
    ]
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=False)


def create_partitions(place: Place, version: int) -> CreatePartitionsRequest:
    grown = unique_topic_name("grown")
    create_topic(place.broker, grown)
    make = CreatePartitionsRequest.CreatePartitionsTopic
    topics = [make(name=name, count=3, assignments=None) for name in (grown, UNKNOWN)]
    return CreatePartitionsRequest(topics=topics, timeout_ms=5000, validate_only=False)


def elect_leaders(place: Place, version: int) -> ElectLeadersRequest:
    make = ElectLeadersRequest.TopicPartitions
    return ElectLeadersRequest(topic_partitions=[make(topic=place.topic, partitions=[0, 9])], timeout_ms=5000)


def alter_reassignments(place: Place, version: int) -> AlterPartitionReassignmentsRequest:
    make = AlterPartitionReassignmentsRequest.ReassignablePartition
    wanted = [make(partition_index=0, replicas=[1]), make(partition_index=9, replicas=None)]
    return AlterPartitionReassignmentsRequest(
        topics=[AlterPartitionReassignmentsRequest.ReassignableTopic(name=place.topic, partitions=wanted)]
    )


ANY = 1
MATCHING = 2
"""Of acl filters: 0 is what nobody knows, and ends the connection as with Kafka."""


def describe_acls(place: Place, version: int) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=MATCHING if version else 3,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )


ASK: dict[type[Any], Callable[[Place, int], Any]] = {
    ProduceRequest: produce_to_three,
    FetchRequest: fetch,
    ListOffsetsRequest: list_offsets,
    MetadataRequest: metadata,
    CreateTopicsRequest: create_topics,
    DeleteTopicsRequest: delete_topics,
    DeleteRecordsRequest: delete_records,
    OffsetForLeaderEpochRequest: offset_for_leader_epoch,
    DescribeConfigsRequest: describe_configs,
    AlterConfigsRequest: alter_configs,
    IncrementalAlterConfigsRequest: incremental_alter_configs,
    CreatePartitionsRequest: create_partitions,
    ElectLeadersRequest: elect_leaders,
    AlterPartitionReassignmentsRequest: alter_reassignments,
    ListPartitionReassignmentsRequest: lambda place, version: ListPartitionReassignmentsRequest(topics=None),
    DescribeAclsRequest: describe_acls,
    DescribeLogDirsRequest: lambda place, version: DescribeLogDirsRequest(topics=None),
    ApiVersionsRequest: lambda place, version: ApiVersionsRequest(
        client_software_name="test" if version >= 3 else "", client_software_version="1" if version >= 3 else ""
    ),
}
"""A request whose answer has as much in it as can be; the APIs that are not named are asked for nothing at all."""


def errors_in(struct: Struct) -> Iterator[ErrorCode]:
    """Every error code in an answer."""
    for field in schema_of(type(struct)).fields:
        value = getattr(struct, field.name)
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(each, Struct):
                yield from errors_in(each)
            elif isinstance(each, ErrorCode):
                yield each


def test_every_version_of_every_advertised_api_has_an_answer(own_broker: BrokerProcess) -> None:
    with Peer(own_broker, 30) as peer:
        place = Place(own_broker, peer)
        advertised = [(each.api_key, each.min_version, each.max_version) for each in peer.ask(
            ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3).api_keys]  # fmt: skip
        assert {API_BY_KEY[key].request for key, _, _ in advertised} >= ASK.keys()
        wrong = []
        for key, first, last in advertised:
            api = API_BY_KEY[key]
            ask = ASK.get(api.request) or (lambda place, version: blank(api.request))  # noqa: B023
            for version in range(first, last + 1):
                codes = set(errors_in(peer.ask(ask(place, version), version)))
                if codes & {ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNSUPPORTED_VERSION}:
                    wrong.append(f"{api.name} v{version}: {sorted(code.name for code in codes)}")
    assert not wrong, "\n".join(wrong)
    assert API_VERSIONS in {key for key, _, _ in advertised}
