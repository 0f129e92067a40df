"""Admin's requests made and its answers read: values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kbroker.client.errors import BrokerError, ConfigurationError, error_for
from kbroker.client.leaders import sort_out
from kbroker.client.metadata import TopicMetadata
from kbroker.client.partition_names import Key, partition_of
from kbroker.client.types import (
    BrokerDescription,
    ClusterDescription,
    ConfigEntry,
    CreatedTopic,
    DamagedSegment,
    ElectionType,
    LogDirDescription,
    NewTopic,
    PartitionDescription,
    Reassignment,
    ReplicaSize,
    ResourceType,
    Scrub,
    TopicDescription,
    TopicPartition,
)
from kbroker.client.values import brokers_of, instance, listed, mapping, text, texts, whole_number
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.grouping import by_topic
from kbroker.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
)
from kbroker.protocol.messages.log_dirs import (
    AlterReplicaLogDirsRequest,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from kbroker.protocol.messages.metadata import DescribeClusterRequest, DescribeClusterResponse
from kbroker.protocol.messages.offsets import DeleteRecordsRequest, DeleteRecordsResponse
from kbroker.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kbroker.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
)
from kbroker.protocol.primitives import ZERO_UUID

SET, DELETE, APPEND, SUBTRACT = range(4)
CONFIG_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
}


def raise_first(outcomes: Iterable[tuple[str | None, ErrorCode, str | None]]) -> None:
    """Raise the first (name, code, message) that is an error."""
    for name, code, message in outcomes:
        if code is not ErrorCode.NONE:
            raise error_for(code, message, topic=name or None)


def has_error(answer: Any, code: ErrorCode) -> bool:
    """Whether an answer of the controller's, or the first of its results, is this error."""
    if getattr(answer, "error_code", None) is code:
        return True
    for name in ("topics", "responses", "results"):
        for item in getattr(answer, name, None) or ():
            return getattr(item, "error_code", None) is code
    return False


def create_topics(topics: Sequence[NewTopic], validate_only: bool, timeout_ms: int) -> CreateTopicsRequest:
    """CreateTopics; a topic with assignments has no counts."""
    made = []
    for topic in topics:
        text("a name", topic.name)
        configs = mapping(f"{topic.name}'s configuration, key to value,", topic.configs or {})
        assigned = mapping(f"{topic.name}'s partitions to brokers' ids", topic.assignments or {})
        made.append(
            CreateTopicsRequest.CreatableTopic(
                name=topic.name,
                num_partitions=-1 if assigned else whole_number("partitions", topic.partitions),
                replication_factor=-1 if assigned else whole_number("replication_factor", topic.replication_factor, 16),
                assignments=[
                    CreateTopicsRequest.CreatableReplicaAssignment(
                        partition_index=whole_number("a partition", index), broker_ids=brokers_of(ids)
                    )
                    for index, ids in assigned.items()
                ],
                configs=[
                    CreateTopicsRequest.CreatableTopicConfig(name=text("a key", key), value=str(value))
                    for key, value in configs.items()
                ],
            )
        )
    return CreateTopicsRequest(topics=made, timeout_ms=timeout_ms, validate_only=validate_only)


def created_topics(answer: CreateTopicsResponse) -> dict[str, CreatedTopic]:
    """Read the answer, or raise its first error."""
    raise_first((item.name, item.error_code, item.error_message) for item in answer.topics)
    return {
        item.name: CreatedTopic(item.name, item.topic_id, item.num_partitions, item.replication_factor)
        for item in answer.topics
    }


def delete_topics(names: Sequence[str], timeout_ms: int) -> DeleteTopicsRequest:
    """DeleteTopics by name, in the form of every version."""
    states = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
    return DeleteTopicsRequest(topics=states, topic_names=list(names), timeout_ms=timeout_ms)


def create_partitions(
    totals: Mapping[str, int],
    assignments: Mapping[str, Sequence[Sequence[int]]],
    validate_only: bool,
    timeout_ms: int,
) -> CreatePartitionsRequest:
    """CreatePartitions; replicas of a topic without assignments are placed by the controller."""
    of = CreatePartitionsRequest
    placed = {
        name: [of.CreatePartitionsAssignment(broker_ids=brokers_of(ids)) for ids in listed("lists of brokers", lists)]
        for name, lists in mapping("topics to new partitions' brokers", assignments).items()
    }
    for name in placed:
        if name not in mapping("topics to totals of partitions", totals):
            raise ConfigurationError(f"assignments name the topic {name!r}, of which no total is given")
    topics = [
        of.CreatePartitionsTopic(
            name=text("a name", name),
            count=whole_number(f"{name}: a total of partitions", count),
            assignments=placed.get(name),
        )
        for name, count in mapping("topics to totals of partitions", totals).items()
    ]
    return CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)


def topic_description(name: str, topic: TopicMetadata | None) -> TopicDescription:
    """Turn metadata into a description; raises the topic's error."""
    if topic is None:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic", topic=name)
    if topic.error is not ErrorCode.NONE:
        raise error_for(topic.error, topic=name)
    partitions = tuple(
        PartitionDescription(
            p.partition, None if p.leader < 0 else p.leader, p.leader_epoch, p.replicas, p.isr, p.offline_replicas
        )
        for p in topic.partitions.values()
    )
    return TopicDescription(name, topic.topic_id, topic.is_internal, partitions)


def resource_type(kind: ResourceType | str) -> ResourceType:
    """Read "topic" or "broker"."""
    if isinstance(kind, ResourceType):
        return kind
    try:
        return ResourceType[str(kind).upper()]
    except KeyError:
        raise ConfigurationError(f"a resource is 'topic' or 'broker', not {kind!r}") from None


def by_node(kind: ResourceType, names: Sequence[str]) -> dict[int | None, list[str]]:
    """Group resources by the broker that must be asked; None: any."""
    grouped: dict[int | None, list[str]] = {}
    for name in names:
        needs_broker = kind is not ResourceType.TOPIC and name != ""
        if needs_broker and not name.isdigit():
            raise ConfigurationError(f"a broker's id is a number, not {name!r}")
        grouped.setdefault(int(name) if needs_broker else None, []).append(name)
    return grouped


def describe_configs(kind: ResourceType, names: Sequence[str], keys: Sequence[str] | None) -> DescribeConfigsRequest:
    """DescribeConfigs with documentation."""
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None if keys is None else texts(keys, "keys")
        )
        for name in names
    ]
    return DescribeConfigsRequest(resources=resources, include_documentation=True)


def configs(answer: DescribeConfigsResponse) -> dict[str, dict[str, ConfigEntry]]:
    """Read the answer, or raise its first error."""
    raise_first((item.resource_name, item.error_code, item.error_message) for item in answer.results)
    return {
        item.resource_name: {
            entry.name: ConfigEntry(
                entry.name,
                entry.value,
                CONFIG_SOURCES.get(entry.config_source, "UNKNOWN"),
                entry.read_only,
                entry.is_sensitive,
                entry.documentation,
            )
            for entry in item.configs
        }
        for item in answer.results
    }


def alter_configs(
    kind: ResourceType,
    name: str,
    changes: Mapping[str, str | None],
    append: Mapping[str, str],
    subtract: Mapping[str, str],
    validate_only: bool,
) -> IncrementalAlterConfigsRequest:
    """IncrementalAlterConfigs of one resource."""
    what = "keys to values"
    operations = [
        *((key, DELETE if value is None else SET, value) for key, value in mapping(what, changes).items()),
        *((key, APPEND, value) for key, value in mapping(what, append).items()),
        *((key, SUBTRACT, value) for key, value in mapping(what, subtract).items()),
    ]
    entries = [
        IncrementalAlterConfigsRequest.AlterableConfig(
            name=text("a key", key), config_operation=operation, value=None if value is None else str(value)
        )
        for key, operation, value in operations
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=entries
    )
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


def describe_cluster() -> DescribeClusterRequest:
    """DescribeCluster."""
    return DescribeClusterRequest(include_cluster_authorized_operations=False)


def cluster_description(answer: DescribeClusterResponse) -> ClusterDescription:
    """Read the answer, or raise its error."""
    raise_first([("", answer.error_code, answer.error_message)])
    brokers = sorted(answer.brokers, key=lambda b: b.broker_id)
    return ClusterDescription(
        answer.cluster_id,
        answer.controller_id,
        tuple(BrokerDescription(b.broker_id, b.host, b.port, b.rack) for b in brokers),
    )


def describe_log_dirs() -> DescribeLogDirsRequest:
    """DescribeLogDirs of all topics."""
    return DescribeLogDirsRequest(topics=None)


def log_dirs(broker: int, answer: DescribeLogDirsResponse, topics: set[str] | None) -> list[LogDirDescription]:
    """Read a broker's answer, logs of `topics` only."""
    if answer.error_code is not ErrorCode.NONE:
        raise error_for(answer.error_code, broker=broker)
    return [
        LogDirDescription(
            broker,
            item.log_dir,
            item.total_bytes,
            item.usable_bytes,
            None if item.error_code is ErrorCode.NONE else item.error_code.name,
            tuple(
                ReplicaSize(topic.name, p.partition_index, p.partition_size, p.offset_lag, p.is_future_key)
                for topic in item.topics
                if topics is None or topic.name in topics
                for p in topic.partitions
            ),
        )
        for item in answer.results
    ]


def scrub(scrub_id: bytes, partitions: Mapping[str, Sequence[int]] | None) -> DescribeLogDirsRequest:
    """DescribeLogDirs with our tag: begin a scrub, or ask how far it is."""
    one = DescribeLogDirsRequest.DescribableLogDirTopic
    topics = None
    if partitions is not None:
        topics = [one(topic=name, partitions=list(indexes)) for name, indexes in partitions.items()]
    return DescribeLogDirsRequest(topics=topics, scrub_id=scrub_id)


def scrub_state(broker: int, answer: DescribeLogDirsResponse) -> Scrub | None:
    """Read a broker's answer, None from one that does not scrub."""
    if answer.error_code is not ErrorCode.NONE:
        raise error_for(answer.error_code, broker=broker)
    for item in answer.scrubs:
        damages = tuple(
            DamagedSegment(
                broker,
                each.topic,
                each.partition,
                each.log_dir,
                each.segment,
                each.position,
                each.offset,
                each.end_offset,
                each.state,
                each.why,
            )
            for each in item.damages
        )
        counts = (item.segments, item.checked_segments, item.bytes, item.checked_bytes)
        return Scrub(broker, item.is_over, *counts, damages)
    return None


def alter_replica_log_dirs(directories: Mapping[Key, str]) -> AlterReplicaLogDirsRequest:
    """AlterReplicaLogDirs."""
    grouped: dict[str, dict[str, list[int]]] = {}
    for key, path in mapping("partitions to directories", directories).items():
        topic, partition = partition_of(key)
        grouped.setdefault(text("a directory", path), {}).setdefault(topic, []).append(partition)
    one_topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDirsRequest.AlterReplicaLogDir(
                path=path, topics=[one_topic(name=name, partitions=indexes) for name, indexes in topics.items()]
            )
            for path, topics in grouped.items()
        ]
    )


def elect_leaders(
    grouped: Mapping[str, Sequence[int]] | None, election_type: ElectionType, timeout_ms: int
) -> ElectLeadersRequest:
    """ElectLeaders; None asks for all partitions."""
    wanted = None
    if grouped is not None:
        wanted = [ElectLeadersRequest.TopicPartitions(topic=t, partitions=list(p)) for t, p in grouped.items()]
    kind = instance("an election", ElectionType, election_type)
    return ElectLeadersRequest(election_type=kind, topic_partitions=wanted, timeout_ms=timeout_ms)


def elections(answer: ElectLeadersResponse) -> dict[TopicPartition, BrokerError | None]:
    """Read what became of each partition; that no election was needed is no error."""
    fine = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    return {
        TopicPartition(result.topic, item.partition_id): None
        if item.error_code in fine
        else error_for(item.error_code, item.error_message, topic=result.topic, partition=item.partition_id)
        for result in answer.replica_election_results
        for item in result.partition_result
    }


def alter_reassignments(
    replicas: Mapping[Key, Sequence[int] | None], timeout_ms: int
) -> AlterPartitionReassignmentsRequest:
    """AlterPartitionReassignments."""
    topics: dict[str, list[AlterPartitionReassignmentsRequest.ReassignablePartition]] = {}
    for key, ids in mapping("partitions to brokers' ids", replicas).items():
        topic, partition = partition_of(key)
        topics.setdefault(topic, []).append(
            AlterPartitionReassignmentsRequest.ReassignablePartition(
                partition_index=partition, replicas=None if ids is None else brokers_of(ids)
            )
        )
    reassignable = AlterPartitionReassignmentsRequest.ReassignableTopic
    return AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms, topics=[reassignable(name=name, partitions=items) for name, items in topics.items()]
    )


def list_reassignments(
    grouped: Mapping[str, Sequence[int]] | None, timeout_ms: int
) -> ListPartitionReassignmentsRequest:
    """ListPartitionReassignments; None asks for all."""
    wanted = None
    if grouped is not None:
        topics = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
        wanted = [topics(name=t, partition_indexes=list(p)) for t, p in grouped.items()]
    return ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=wanted)


def reassignments(answer: ListPartitionReassignmentsResponse) -> dict[TopicPartition, Reassignment]:
    """Read the moves under way."""
    return {
        TopicPartition(topic.name, item.partition_index): Reassignment(
            tuple(item.replicas), tuple(item.adding_replicas), tuple(item.removing_replicas)
        )
        for topic in answer.topics
        for item in topic.partitions
    }


def delete_records(before: Mapping[TopicPartition, int], timeout_ms: int) -> DeleteRecordsRequest:
    """Ask a leader to delete what is below offsets."""
    of = DeleteRecordsRequest
    topics = []
    for topic, indexes in by_topic(before).items():
        partitions = [
            of.DeleteRecordsPartition(partition_index=index, offset=before[TopicPartition(topic, index)])
            for index in indexes
        ]
        topics.append(of.DeleteRecordsTopic(name=topic, partitions=partitions))
    return of(topics=topics, timeout_ms=timeout_ms)


def deleted_records(
    answer: DeleteRecordsResponse, leader: int, found: dict[TopicPartition, int]
) -> dict[TopicPartition, BrokerError]:
    """Put the new log start offsets into `found`; returns the errors."""
    return sort_out(answer.topics, leader, found, lambda item: item.low_watermark)
