"""The answer to a request that failed as a whole: the API's own response with the error in each place it has.

Most responses have an error_code at the top and need nothing here. Those which have one only per topic, partition or
resource repeat the request's items, each with the error; `_PER_ITEM` holds one small function for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kbroker.protocol import primitives
from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.schema import REQUIRED, Field, schema_of

FIRST_BATCHED_ADD_PARTITIONS = 4
"""The version of AddPartitionsToTxn that has an error for all transactions together."""

Refuse = Callable[[Any, Any, int, ErrorCode, str | None], Any]
"""(response class, request, version, code, message) -> response"""


def refusal(api_key: int, request: Any, version: int, code: ErrorCode, message: str | None = None) -> Any:
    """Return the response that says `code` (and `message`, where the API has a place for it) for the whole request."""
    response_type: Any = API_BY_KEY[api_key].response
    refuse = _PER_ITEM.get(api_key, _at_the_top)
    return refuse(response_type, request, version, code, message or None)


def blank(struct: Any, **values: Any) -> Any:
    """Make a message or struct whose other fields are empty: zero, no text, no elements."""
    for field in schema_of(struct).fields:
        if field.default is REQUIRED and field.name not in values:
            values[field.name] = _empty(field)
    return struct(**values)


def _empty(field: Field) -> Any:
    if field.nullable == field.versions:
        return None
    if field.array:
        return []
    if field.struct is not None:
        return blank(field.struct)
    return _EMPTY.get(field.kind, 0)


_EMPTY = {
    primitives.BOOL: False,
    primitives.STRING: "",
    primitives.BYTES: b"",
    primitives.RECORDS: b"",
    primitives.UUID: primitives.ZERO_UUID,
    primitives.ERROR: ErrorCode.NONE,
}


def _at_the_top(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    values: dict[str, Any] = {"error_code": code}
    if any(field.name == "error_message" for field in schema_of(response).fields):
        values["error_message"] = message
    return blank(response, **values)


def _partitions(
    of_topic: Any,
    of_partition: Any,
    topics: Iterable[Any],
    code: ErrorCode,
    asked: tuple[str, str | None] = ("partitions", "partition_index"),
    *,
    topic: str = "name",
    partitions: str = "partitions",
    index: str = "partition_index",
    **values: Any,
) -> list[Any]:
    """Repeat a request's topics with the error in each partition.

    Args:
        of_topic: the response's struct for a topic.
        of_partition: its struct for a partition.
        topics: the request's topics.
        code: the error.
        asked: the request's fields for a topic's partitions, and for their number (None: they are numbers).
        topic: the field of both for the topic's name.
        partitions: the response's field for a topic's partitions.
        index: the response's field for a partition's number.
        **values: what else is said of each partition.
    """
    items, number = asked
    return [
        blank(
            of_topic,
            **{
                topic: getattr(each, topic),
                partitions: [
                    blank(
                        of_partition,
                        **{index: item if number is None else getattr(item, number)},
                        error_code=code,
                        **values,
                    )
                    for item in getattr(each, items)
                ],
            },
        )
        for each in topics
    ]


def _produce(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    topics = _partitions(
        response.TopicProduceResponse,
        response.PartitionProduceResponse,
        request.topic_data,
        code,
        ("partition_data", "index"),
        partitions="partition_responses",
        index="index",
        base_offset=-1,
        error_message=message,
    )
    return blank(response, responses=topics)


def _fetch(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    if version >= 7:
        return blank(response, error_code=code)
    topics = _partitions(
        response.FetchableTopicResponse,
        response.PartitionData,
        request.topics,
        code,
        ("partitions", "partition"),
        topic="topic",
        high_watermark=-1,
        records=b"",
    )
    return blank(response, responses=topics)


def _list_offsets(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    structs = response.ListOffsetsTopicResponse, response.ListOffsetsPartitionResponse
    return blank(response, topics=_partitions(*structs, request.topics, code))


def _offset_for_leader_epoch(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    topics = _partitions(
        response.OffsetForLeaderTopicResult,
        response.EpochEndOffset,
        request.topics,
        code,
        ("partitions", "partition"),
        topic="topic",
        index="partition",
    )
    return blank(response, topics=topics)


def _delete_records(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    structs = response.DeleteRecordsTopicResult, response.DeleteRecordsPartitionResult
    return blank(response, topics=_partitions(*structs, request.topics, code, low_watermark=-1))


def _write_txn_markers(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    structs = response.WritableTxnMarkerTopicResult, response.WritableTxnMarkerPartitionResult
    return response(
        markers=[
            response.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=_partitions(*structs, marker.topics, code, ("partition_indexes", None)),
            )
            for marker in request.markers
        ]
    )


def _metadata(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    return blank(
        response,
        topics=[
            blank(response.MetadataResponseTopic, error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or []
        ],
    )


def _create_topics(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    return blank(
        response,
        topics=[
            blank(response.CreatableTopicResult, name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ],
    )


def _topics_to_delete(request: Any, version: int) -> Iterator[tuple[str | None, bytes | None]]:
    if version >= 6:
        yield from ((topic.name, topic.topic_id) for topic in request.topics)
    else:
        yield from ((name, None) for name in request.topic_names)


def _delete_topics(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    results = []
    for name, topic_id in _topics_to_delete(request, version):
        result: dict[str, Any] = {"name": name, "error_code": code, "error_message": message}
        if topic_id is not None:
            result["topic_id"] = topic_id
        results.append(blank(response.DeletableTopicResult, **result))
    return blank(response, responses=results)


def _create_partitions(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    return blank(
        response,
        results=[
            blank(response.CreatePartitionsTopicResult, name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ],
    )


def _describe_configs(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    return blank(response, results=_per_resource(response.DescribeConfigsResult, request, code, message))


def _alter_configs(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    return blank(response, responses=_per_resource(response.AlterConfigsResourceResponse, request, code, message))


def _per_resource(result: Any, request: Any, code: ErrorCode, message: str | None) -> list[Any]:
    return [
        blank(
            result,
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in request.resources
    ]


def _elect_leaders(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    topics = _partitions(
        response.ReplicaElectionResult,
        response.PartitionResult,
        request.topic_partitions or [],
        code,
        ("partitions", None),
        topic="topic",
        partitions="partition_result",
        index="partition_id",
        error_message=message,
    )
    return blank(response, error_code=code if version >= 1 else ErrorCode.NONE, replica_election_results=topics)


def _describe_log_dirs(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    return blank(response, error_code=code) if version >= 3 else blank(response)


def _alter_replica_log_dirs(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    made = response.AlterReplicaLogDirPartitionResult
    return blank(
        response,
        results=[
            blank(
                response.AlterReplicaLogDirTopicResult,
                topic_name=topic.name,
                partitions=[blank(made, partition_index=index, error_code=code) for index in topic.partitions],
            )
            for directory in request.dirs
            for topic in directory.topics
        ],
    )


def _describe_users(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    """At the top, and for each user that is asked for, whose name Kafka leaves out."""
    made = response.DescribeUserScramCredentialsResult
    results = [blank(made, error_code=code, error_message=message) for _ in request.users or ()]
    return blank(response, error_code=code, error_message=message, results=results)


def _consumer_group_describe(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    made = response.DescribedGroup
    return blank(
        response,
        groups=[blank(made, group_id=each, error_code=code, error_message=message) for each in request.group_ids],
    )


def _offset_commit(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    structs = response.OffsetCommitResponseTopic, response.OffsetCommitResponsePartition
    return blank(response, topics=_partitions(*structs, request.topics, code))


def _txn_offset_commit(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    structs = response.TxnOffsetCommitResponseTopic, response.TxnOffsetCommitResponsePartition
    return blank(response, topics=_partitions(*structs, request.topics, code))


def _describe_producers(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    structs = response.TopicResponse, response.PartitionResponse
    asked = ("partition_indexes", None)
    return blank(response, topics=_partitions(*structs, request.topics, code, asked, error_message=message))


def _offset_delete(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    """Only what is about topics is said for each partition."""
    if code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return blank(response, error_code=code)
    structs = response.OffsetDeleteResponseTopic, response.OffsetDeleteResponsePartition
    return blank(response, topics=_partitions(*structs, request.topics, code))


def _alter_partition_reassignments(
    response: Any, request: Any, version: int, code: ErrorCode, message: str | None
) -> Any:
    structs = response.ReassignableTopicResponse, response.ReassignablePartitionResponse
    topics = _partitions(*structs, request.topics, code, error_message=message)
    return blank(response, error_code=code, error_message=message, responses=topics)


def _create_acls(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    made = response.AclCreationResult
    return blank(response, results=[blank(made, error_code=code, error_message=message) for _ in request.creations])


def _delete_acls(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    made = response.DeleteAclsFilterResult
    return blank(
        response, filter_results=[blank(made, error_code=code, error_message=message) for _ in request.filters]
    )


def _alter_client_quotas(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    entity = response.EntityData
    refused = [
        response.EntryData(
            error_code=code,
            error_message=message,
            entity=[entity(entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity],
        )
        for entry in request.entries
    ]
    return blank(response, entries=refused)


def _offset_fetch(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    if version >= 8:
        made = response.OffsetFetchResponseGroup
        return blank(
            response, groups=[blank(made, group_id=group.group_id, error_code=code) for group in request.groups]
        )
    if version >= 2:
        return blank(response, error_code=code)
    topics = _partitions(
        response.OffsetFetchResponseTopic,
        response.OffsetFetchResponsePartition,
        request.topics or [],
        code,
        ("partition_indexes", None),
        committed_offset=-1,
        metadata="",
    )
    return blank(response, topics=topics)


def _find_coordinator(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    if version < 4:
        return blank(response, error_code=code, error_message=message, node_id=-1, port=-1)
    made = response.Coordinator
    return blank(
        response,
        coordinators=[
            blank(made, key=key, node_id=-1, port=-1, error_code=code, error_message=message)
            for key in request.coordinator_keys
        ],
    )


def _describe_groups(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    made = response.DescribedGroup
    return blank(response, groups=[blank(made, group_id=group_id, error_code=code) for group_id in request.groups])


def _delete_groups(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    made = response.DeletableGroupResult
    return blank(
        response, results=[blank(made, group_id=group_id, error_code=code) for group_id in request.groups_names]
    )


def _join_group(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    return blank(response, error_code=code, generation_id=-1, protocol_name=None if version >= 7 else "")


def _init_producer_id(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    return blank(response, error_code=code, producer_id=-1, producer_epoch=-1)


def _add_partitions_to_txn(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    if version >= FIRST_BATCHED_ADD_PARTITIONS:
        return response(error_code=code)
    of_partition = response.AddPartitionsToTxnPartitionResult
    topics = [
        response.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                of_partition(partition_index=each, partition_error_code=code) for each in topic.partitions
            ],
        )
        for topic in request.v3_and_below_topics
    ]
    return response(results_by_topic_v3_and_below=topics)


def _alter_user_scram_credentials(
    response: Any, request: Any, version: int, code: ErrorCode, message: str | None
) -> Any:
    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    result = response.AlterUserScramCredentialsResult
    return response(results=[result(user=user, error_code=code, error_message=message) for user in users])


def _describe_transactions(response: Any, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    states = [
        blank(response.TransactionState, transactional_id=transactional_id, error_code=code)
        for transactional_id in request.transactional_ids
    ]
    return response(transaction_states=states)


_PER_ITEM: dict[int, Refuse] = {
    0: _produce,
    1: _fetch,
    2: _list_offsets,
    3: _metadata,
    8: _offset_commit,
    9: _offset_fetch,
    10: _find_coordinator,
    11: _join_group,
    15: _describe_groups,
    19: _create_topics,
    20: _delete_topics,
    21: _delete_records,
    22: _init_producer_id,
    23: _offset_for_leader_epoch,
    24: _add_partitions_to_txn,
    27: _write_txn_markers,
    28: _txn_offset_commit,
    30: _create_acls,
    31: _delete_acls,
    32: _describe_configs,
    33: _alter_configs,
    34: _alter_replica_log_dirs,
    35: _describe_log_dirs,
    37: _create_partitions,
    42: _delete_groups,
    43: _elect_leaders,
    44: _alter_configs,
    45: _alter_partition_reassignments,
    47: _offset_delete,
    49: _alter_client_quotas,
    50: _describe_users,
    51: _alter_user_scram_credentials,
    61: _describe_producers,
    65: _describe_transactions,
    69: _consumer_group_describe,
}
