"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: questions and orders about a partition's offsets."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Container, Generator, Sequence

from kbroker.cluster.topic_names import INTERNAL_TOPICS
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import CLUSTER_ACTION, DELETE, DESCRIBE, if_on_cluster, on_topics
from kbroker.handlers.registry import handles
from kbroker.protocol.codec import ElementWriter
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.grouping import Key
from kbroker.protocol.messages.offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kbroker.replica.delayed import DelayedAnswer
from kbroker.replica.hosted import HostedPartition
from kbroker.replica.turns import finished, in_turns
from kbroker.segment.log import Log, TimestampOffset

FIRST_VERSION_OF = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
CONSUMER = -1
DEBUGGING_CONSUMER = -2
READ_COMMITTED = 1
NOT_FOUND = TimestampOffset(-1, -1, -1)
FIRST_NOT_AVAILABLE_VERSION = 5
FIRST_VERSION_WITH_EPOCH = 4

Found = dict[Key, TimestampOffset | KafkaError]
ListedPartition = ListOffsetsResponse.ListOffsetsPartitionResponse
EpochEndOffset = OffsetForLeaderEpochResponse.EpochEndOffset
DeletedPartition = DeleteRecordsResponse.DeleteRecordsPartitionResult


@handles(ListOffsetsRequest, on_topics(DESCRIBE), ends_with_connection=True)
def list_offsets(
    services: Services, ctx: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    """Find offsets by timestamp, or one of the special ones."""
    return in_turns(_list_offsets(services, ctx.api_version, request))


def _list_offsets(
    services: Services, version: int, request: ListOffsetsRequest
) -> Generator[None, None, ListOffsetsResponse | Awaitable[ListOffsetsResponse]]:
    times: Counter[Key] = Counter()
    wanted: dict[str, dict[Key, tuple[Log, int]]] = {}
    for topic in request.topics:
        yield
        for each in topic.partitions:
            key = topic.name, each.partition_index
            times[key] += 1
            hosted = services.replicas.find(*key) if _is_searched(each.timestamp) else None
            if isinstance(hosted, HostedPartition):
                wanted.setdefault(hosted.log.log_dir, {})[key] = hosted.log, each.timestamp
            yield
    if wanted:
        return _list_when_searched(services, version, request, times, wanted)
    return (yield from _listed_in_turns(services, version, request, times, {}))


async def _list_when_searched(
    services: Services,
    version: int,
    request: ListOffsetsRequest,
    times: Counter[Key],
    wanted: dict[str, dict[Key, tuple[Log, int]]],
) -> ListOffsetsResponse:
    """Timestamps are looked for in worker threads of the logs' disks: batches may have to be read and unpacked."""
    run = asyncio.get_running_loop().run_in_executor
    reading = services.replicas.workers.reading
    found: Found = {}
    for part in await asyncio.gather(*(run(reading(log_dir), _search, logs) for log_dir, logs in wanted.items())):
        found |= part
    return await finished(in_turns(_listed_in_turns(services, version, request, times, found)))


def _is_searched(timestamp: int) -> bool:
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


def _search(wanted: dict[Key, tuple[Log, int]]) -> Found:
    found: Found = {}
    for key, (log, timestamp) in wanted.items():
        try:
            found[key] = log.offset_for_timestamp(timestamp) or NOT_FOUND
        except KafkaError as error:
            found[key] = error.with_traceback(None)
    return found


def _listed_in_turns(
    services: Services, version: int, request: ListOffsetsRequest, times: Counter[Key], searched: Found
) -> Generator[None, None, ListOffsetsResponse]:
    topics = []
    for topic in request.topics:
        yield
        answers = ElementWriter(ListOffsetsResponse, version)
        for wanted in topic.partitions:
            asked_twice = times[topic.name, wanted.partition_index] > 1
            answers.append(_listed(services, version, request, topic.name, wanted, asked_twice, searched))
            yield
        topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=answers.array()))
    return ListOffsetsResponse(topics=topics)


def _listed(
    services: Services,
    version: int,
    request: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsRequest.ListOffsetsPartition,
    asked_twice: bool,
    searched: Found,
) -> ListedPartition:
    try:
        if asked_twice:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a partition is asked for twice")
        found = _find_offset(services, version, request, topic, wanted, searched)
    except KafkaError as error:
        return ListedPartition(partition_index=wanted.partition_index, error_code=error.code)
    return ListedPartition(
        partition_index=wanted.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=found.leader_epoch if version >= FIRST_VERSION_WITH_EPOCH else -1,
    )


def _find_offset(
    services: Services,
    version: int,
    request: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsRequest.ListOffsetsPartition,
    searched: Found,
) -> TimestampOffset:
    timestamp = wanted.timestamp
    if timestamp < 0 and version < FIRST_VERSION_OF.get(timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    hosted = _hosted(
        services, topic, wanted.partition_index, wanted.current_leader_epoch, request.replica_id != DEBUGGING_CONSUMER
    )
    log = hosted.log
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.offset_for_timestamp(timestamp) or NOT_FOUND
    if timestamp == LATEST_TIERED:
        return NOT_FOUND
    if not _is_searched(timestamp):
        found = log.offset_for_timestamp(timestamp) or NOT_FOUND
    else:
        found = _found(searched, (topic, wanted.partition_index))
    if request.replica_id != CONSUMER:
        return found
    limit = log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark
    if timestamp == LATEST:
        _require_offsets(hosted, version)
        return TimestampOffset(-1, limit, log.latest_epoch)
    if 0 <= found.offset < limit:
        return found
    _require_offsets(hosted, version)
    return NOT_FOUND


def _found(searched: Found, key: Key) -> TimestampOffset:
    found = searched.get(key)
    if found is None:  # it has come here since
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if isinstance(found, KafkaError):
        raise found
    return found


def _require_offsets(hosted: HostedPartition, version: int) -> None:
    """A new leader does not yet know what is committed: answering now could make offsets go back."""
    if not hosted.state.is_offset_available:
        new = version >= FIRST_NOT_AVAILABLE_VERSION
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if new else ErrorCode.LEADER_NOT_AVAILABLE)


def _hosted(
    services: Services, topic: str, partition: int, current_leader_epoch: int, leader_only: bool
) -> HostedPartition:
    found = services.replicas.find(topic, partition)
    if not isinstance(found, HostedPartition):
        raise KafkaError(found)
    error = found.state.leader_error(current_leader_epoch, leader_only)
    if error is not ErrorCode.NONE:
        raise KafkaError(error)
    return found


@handles(
    OffsetForLeaderEpochRequest,
    on_topics(DESCRIBE, name="topic", unless=if_on_cluster(CLUSTER_ACTION)),
    ends_with_connection=True,
)
def offset_for_leader_epoch(
    services: Services, ctx: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse | Awaitable[OffsetForLeaderEpochResponse]:
    """Say where the leader's records of an epoch end (KIP-101)."""
    return in_turns(_ends_of_epochs(services, ctx.api_version, request))


def _ends_of_epochs(
    services: Services, version: int, request: OffsetForLeaderEpochRequest
) -> Generator[None, None, OffsetForLeaderEpochResponse]:
    topics = []
    for topic in request.topics:
        yield
        answers = ElementWriter(OffsetForLeaderEpochResponse, version)
        for wanted in topic.partitions:
            try:
                hosted = _hosted(services, topic.topic, wanted.partition, wanted.current_leader_epoch, leader_only=True)
                epoch, end_offset = hosted.log.offset_for_leader_epoch(wanted.leader_epoch)
                answer = EpochEndOffset(
                    partition=wanted.partition, error_code=ErrorCode.NONE, leader_epoch=epoch, end_offset=end_offset
                )
            except KafkaError as error:
                answer = EpochEndOffset(partition=wanted.partition, error_code=error.code)
            answers.append(answer)
            yield
        topics.append(
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers.array())
        )
    return OffsetForLeaderEpochResponse(topics=topics)


@handles(DeleteRecordsRequest, on_topics(DELETE))
def delete_records(
    services: Services, ctx: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]:
    """Move log starts up; answered when every live replica has done so."""
    return in_turns(_delete_records(services, ctx.api_version, request))


def _delete_records(
    services: Services, version: int, request: DeleteRecordsRequest
) -> Generator[None, None, DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]]:
    metadata = services.metadata
    waiting = DelayedAnswer(request.timeout_ms, lambda results: results)
    waiting.hold()  # what is waited for so far must not be all there is
    results: list[KafkaError | HostedPartition] = waiting.results
    refusals: dict[ErrorCode, KafkaError] = {}
    for topic in request.topics:
        yield
        for wanted in topic.partitions:
            yield
            try:
                results.append(_delete(services, topic.name, wanted.partition_index, wanted.offset))
            except KafkaError as error:  # there may be many: one for each code, without a traceback
                results.append(refusals.setdefault(error.code, KafkaError(error.code)))
    for place, result in enumerate(results):
        if not isinstance(result, KafkaError) and result.low_watermark(metadata.brokers) < result.log.log_start_offset:
            waiting.wait_for(place, result.deletions, result.log.log_start_offset)
        yield
    deleted = waiting.release()
    answer = _deletion_answer(request, version, results, metadata.brokers)
    return (yield from answer) if deleted.done() else _when_deleted(deleted, answer)


async def _when_deleted(
    future: Awaitable[object], answer: Generator[None, None, DeleteRecordsResponse]
) -> DeleteRecordsResponse:
    await future
    return await finished(in_turns(answer))


def _delete(services: Services, topic: str, partition: int, offset: int) -> HostedPartition:
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "records of internal topics cannot be deleted")
    hosted = _hosted(services, topic, partition, -1, leader_only=True)
    hosted.log.delete_records(offset)
    hosted.changed()
    return hosted


def _deletion_answer(
    request: DeleteRecordsRequest,
    version: int,
    results: Sequence[KafkaError | HostedPartition],
    alive: Container[int],
) -> Generator[None, None, DeleteRecordsResponse]:
    topics = []
    remaining = iter(results)
    for topic in request.topics:
        yield
        answers = ElementWriter(DeleteRecordsResponse, version)
        for wanted, result in zip(topic.partitions, remaining, strict=False):
            if isinstance(result, KafkaError):
                low_watermark, error = -1, result.code
            else:
                low_watermark, error = result.low_watermark(alive), ErrorCode.NONE
            answers.append(
                DeletedPartition(partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=error)
            )
            yield
        topics.append(DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic.name, partitions=answers.array()))
    return DeleteRecordsResponse(topics=topics)
