"""One request for each API that asks for something: of a topic, a group, a transactional id or the cluster.

They ask for what `names` says (topics, groups and transactional ids alike), so that some may be allowed and others not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

from kbroker.handlers.refusals import blank
from kbroker.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kbroker.protocol.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from kbroker.protocol.messages.metadata import DescribeClusterRequest, MetadataRequest, UpdateFeaturesRequest
from kbroker.protocol.messages.offsets import DeleteRecordsRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from kbroker.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from kbroker.protocol.messages.replication import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kbroker.protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeDelegationTokenRequest,
    DescribeUserScramCredentialsRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from kbroker.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from kbroker.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.schema import REQUIRED, Struct, schema_of
from tests.parity.transcript import versions_of

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
ONLY_OURS = (ConsumerGroupHeartbeatRequest, ConsumerGroupDescribeRequest)
"""Kafka's brokers do not answer them while ZooKeeper coordinates the cluster."""


def batch(producer_id: int = -1, transactional: bool = False) -> bytearray:
    """One record."""
    builder = BatchBuilder(1 << 16, 0)
    builder.append(b"key", b"value", [], 1_700_000_000_000)
    if producer_id < 0:
        return bytearray(bytes(builder.build()))
    return bytearray(bytes(builder.build(producer_id, 0, 0, transactional)))


def versions_to_ask(request: Any) -> range:
    """All versions, of Fetch those that name topics: an id that nobody has is unknown to all."""
    versions = versions_of(type(request))
    if isinstance(request, FetchRequest):
        return range(versions[0], 13)
    return range(3, versions[-1] + 1) if isinstance(request, ProduceRequest) else versions


def in_version(struct: Any, version: int) -> Any:
    """The request or struct without the fields that a version does not have."""
    made = copy(struct)
    for field in schema_of(type(struct)).fields:
        value = getattr(struct, field.name)
        if version not in field.versions and field.default is not REQUIRED:
            value = field.default
        elif value is None and field.array and version not in (field.nullable or ()):
            value = []
        elif isinstance(value, Struct):
            value = in_version(value, version)
        elif isinstance(value, list):
            value = [in_version(each, version) if isinstance(each, Struct) else each for each in value]
        setattr(made, field.name, value)
    return made


def topics_of(struct: Any, names: Sequence[str], partition: Any, named: str = "name", field: str = "partitions") -> Any:
    """A struct for each topic, with one partition."""
    return [blank(struct, **{named: name, field: [partition]}) for name in names]


def data_requests(names: Sequence[str]) -> Iterator[Any]:
    made: Any = ProduceRequest
    for records, transactional_id in ((batch(), None), (batch(7, transactional=True), names[0])):
        data = made.PartitionProduceData(index=0, records=records)
        topics = topics_of(made.TopicProduceData, names, data, field="partition_data")
        yield made(transactional_id=transactional_id, acks=-1, timeout_ms=5_000, topic_data=topics)
    made = FetchRequest
    wanted = blank(made.FetchPartition, partition=0, partition_max_bytes=1 << 20)
    for replica_id in (-1, 3):
        yield blank(
            made,
            replica_id=replica_id,
            replica_state=blank(made.ReplicaState, replica_id=replica_id),
            max_wait_ms=1,
            session_epoch=-1,
            topics=topics_of(made.FetchTopic, names, wanted, "topic"),
        )
    made = ListOffsetsRequest
    listed = made.ListOffsetsPartition(partition_index=0, timestamp=-1)
    yield made(replica_id=-1, topics=topics_of(made.ListOffsetsTopic, names, listed))
    made = OffsetForLeaderEpochRequest
    epoch = made.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    yield made(topics=topics_of(made.OffsetForLeaderTopic, names, epoch, "topic"))
    made = DeleteRecordsRequest
    deleted = made.DeleteRecordsPartition(partition_index=0, offset=0)
    yield made(topics=topics_of(made.DeleteRecordsTopic, names, deleted), timeout_ms=5_000)
    made = DescribeProducersRequest
    yield made(topics=topics_of(made.TopicRequest, names, 0, field="partition_indexes"))


def metadata_requests(names: Sequence[str]) -> Iterator[Any]:
    made = MetadataRequest.MetadataRequestTopic
    for topics in (None, [made(name=name) for name in names]):
        yield MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
    yield DescribeClusterRequest(include_cluster_authorized_operations=True)


def group_requests(names: Sequence[str]) -> Iterator[Any]:
    group = names[0]
    yield FindCoordinatorRequest(key=group, key_type=0, coordinator_keys=list(names))
    yield FindCoordinatorRequest(key=group, key_type=1, coordinator_keys=list(names))
    yield blank(JoinGroupRequest, group_id=group, session_timeout_ms=10_000, protocol_type="consumer")
    yield blank(SyncGroupRequest, group_id=group, protocol_type="consumer", protocol_name="range")
    yield blank(HeartbeatRequest, group_id=group)
    leaving = blank(LeaveGroupRequest.MemberIdentity, member_id="m")
    yield blank(LeaveGroupRequest, group_id=group, member_id="m", members=[leaving])
    made: Any = OffsetCommitRequest
    committed = blank(made.OffsetCommitRequestPartition, committed_offset=1)
    topics = topics_of(made.OffsetCommitRequestTopic, names, committed)
    yield blank(made, group_id=group, generation_id_or_member_epoch=-1, topics=topics)
    made = OffsetFetchRequest
    old, new = made.OffsetFetchRequestTopic, made.OffsetFetchRequestTopics
    groups = [
        blank(
            made.OffsetFetchRequestGroup,
            group_id=name,
            topics=topics_of(new, names, 0, field="partition_indexes"),
        )
        for name in names
    ]
    yield blank(made, group_id=group, topics=topics_of(old, names, 0, field="partition_indexes"), groups=groups)
    yield DescribeGroupsRequest(groups=list(names), include_authorized_operations=True)
    yield blank(ListGroupsRequest)
    made = OffsetDeleteRequest
    gone = made.OffsetDeleteRequestPartition(partition_index=0)
    yield made(group_id=group, topics=topics_of(made.OffsetDeleteRequestTopic, names, gone))
    yield DeleteGroupsRequest(groups_names=[f"{name}-gone" for name in names])
    yield blank(ConsumerGroupHeartbeatRequest, group_id=group, member_id="m", member_epoch=3)
    yield blank(ConsumerGroupDescribeRequest, group_ids=list(names))


def transaction_requests(names: Sequence[str]) -> Iterator[Any]:
    name = names[0]
    yield blank(InitProducerIdRequest, transactional_id=f"{name}-other", transaction_timeout_ms=10_000)
    yield blank(InitProducerIdRequest, transactional_id=None, transaction_timeout_ms=10_000)
    made: Any = AddPartitionsToTxnRequest
    yield blank(
        made,
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=7,
        v3_and_below_topics=topics_of(made.AddPartitionsToTxnTopic, names, 0),
        transactions=[],
    )
    yield AddOffsetsToTxnRequest(transactional_id=name, producer_id=7, producer_epoch=0, group_id=name)
    yield EndTxnRequest(transactional_id=name, producer_id=7, producer_epoch=0, committed=False)
    made = TxnOffsetCommitRequest
    committed = blank(made.TxnOffsetCommitRequestPartition, committed_offset=1)
    topics = topics_of(made.TxnOffsetCommitRequestTopic, names, committed)
    yield blank(made, transactional_id=name, group_id=name, producer_id=7, topics=topics)
    made = WriteTxnMarkersRequest
    marked = topics_of(made.WritableTxnMarkerTopic, names, 0, field="partition_indexes")
    marker = blank(made.WritableTxnMarker, producer_id=7, coordinator_epoch=0, topics=marked)
    yield made(markers=[marker])
    yield DescribeTransactionsRequest(transactional_ids=list(names))
    yield blank(ListTransactionsRequest)


def config_requests(names: Sequence[str]) -> Iterator[Any]:
    resources = [(TOPIC, name) for name in names] + [(BROKER, "1"), (BROKER_LOGGER, "1")]
    wanted = [
        blank(DescribeConfigsRequest.DescribeConfigsResource, resource_type=kind, resource_name=name)
        for kind, name in resources
    ]
    for resource in wanted:
        resource.configuration_keys = ["retention.ms"]
    yield DescribeConfigsRequest(resources=wanted)
    for made in (AlterConfigsRequest, IncrementalAlterConfigsRequest):
        altered = [
            blank(getattr(made, "AlterConfigsResource"), resource_type=kind, resource_name=name, configs=[])  # noqa: B009
            for kind, name in resources[:-1]
        ]
        yield made(resources=altered, validate_only=True)


def topic_requests(names: Sequence[str]) -> Iterator[Any]:
    made: Any = CreateTopicsRequest
    topics = [blank(made.CreatableTopic, name=f"{name}-new", num_partitions=1, replication_factor=1) for name in names]
    yield made(topics=topics, timeout_ms=15_000, validate_only=True)
    made = CreatePartitionsRequest
    more = [made.CreatePartitionsTopic(name=name, count=2, assignments=None) for name in names]
    yield made(topics=more, timeout_ms=15_000, validate_only=True)
    gone = [f"{name}-gone" for name in names]
    states = [blank(DeleteTopicsRequest.DeleteTopicState, name=name) for name in gone]
    yield blank(DeleteTopicsRequest, topics=states, topic_names=gone, timeout_ms=1_000)
    made = ElectLeadersRequest
    yield made(topic_partitions=topics_of(made.TopicPartitions, names, 0, "topic"))
    made = AlterPartitionReassignmentsRequest
    moved = made.ReassignablePartition(partition_index=0, replicas=None)
    yield made(topics=topics_of(made.ReassignableTopic, names, moved))
    yield ListPartitionReassignmentsRequest(topics=None)
    made = AlterReplicaLogDirsRequest
    moves = topics_of(made.AlterReplicaLogDirTopic, names, 0)
    yield made(dirs=[made.AlterReplicaLogDir(path="/nowhere", topics=moves)])
    yield DescribeLogDirsRequest(topics=[])


def cluster_requests() -> Iterator[Any]:
    """What brokers send, and what administrators ask of the authorizer."""
    yield blank(LeaderAndIsrRequest, controller_id=1)
    yield blank(StopReplicaRequest, controller_id=1)
    yield blank(UpdateMetadataRequest, controller_id=1)
    yield ControlledShutdownRequest(broker_id=99)
    yield blank(AlterPartitionRequest, broker_id=99)
    yield AllocateProducerIdsRequest(broker_id=99)
    rule: dict[str, Any] = {"resource_type": TOPIC, "resource_name": "ruled", "resource_pattern_type": 3}
    creation = CreateAclsRequest.AclCreation(principal="User:x", host="*", operation=3, permission_type=3, **rule)
    yield CreateAclsRequest(creations=[creation])
    wanted: dict[str, Any] = {
        "resource_type_filter": 2,
        "resource_name_filter": "ruled",
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    yield DescribeAclsRequest(**wanted)
    feature = blank(UpdateFeaturesRequest.FeatureUpdateKey, feature="none", max_version_level=1)
    yield UpdateFeaturesRequest(feature_updates=[feature], validate_only=False)
    named = AlterClientQuotasRequest.EntityData(entity_type="client-id", entity_name="limited")
    change = AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=1e9, remove=False)
    altered = AlterClientQuotasRequest.EntryData(entity=[named], ops=[change])
    yield AlterClientQuotasRequest(entries=[altered], validate_only=True)
    yield DescribeClientQuotasRequest(components=[], strict=False)
    yield DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**wanted)])


def login_requests() -> Iterator[Any]:
    """About who may log in. Tokens are for those who have logged in themselves, whatever the rules say."""
    user = DescribeUserScramCredentialsRequest.UserName(name="nobody")
    yield DescribeUserScramCredentialsRequest(users=[user])
    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="nobody", mechanism=1)
    yield AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[])
    yield CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
    yield RenewDelegationTokenRequest(hmac=b"none", renew_period_ms=-1)
    yield ExpireDelegationTokenRequest(hmac=b"none", expiry_time_period_ms=-1)
    yield DescribeDelegationTokenRequest(owners=None)


def requests_for(names: Sequence[str]) -> Iterator[Any]:
    """All of them, those that delete last."""
    yield from data_requests(names)
    yield from metadata_requests(names)
    yield from group_requests(names)
    yield from transaction_requests(names)
    yield from config_requests(names)
    yield from topic_requests(names)
    yield from cluster_requests()
    yield from login_requests()
