"""Committed offsets of groups: OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Iterable, Sequence
from itertools import chain
from typing import Any

from kbroker.coordinator.any_group import AnyGroup
from kbroker.coordinator.group_offsets import CommittedOffset
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import (
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    each,
    on_group,
    on_topics,
    since_version,
    when,
)
from kbroker.handlers.registry import handles
from kbroker.protocol.codec import ElementWriter
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.grouping import Key
from kbroker.protocol.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kbroker.replica.turns import Turn, finished, in_turns, portions

FIRST_BATCHED_VERSION = 8
FIRST_TOP_LEVEL_ERROR = 2
LATEST_EXPIRY_MS = (1 << 63) - 1
MOST_ANSWERED_AT_ONCE = 1000
"""Partitions of a commit whose answer is made in one go."""
MOST_ASKED_AT_ONCE = 200
"""Offsets that are looked up without standing in line."""
DELETED_AT_ONCE = 1000
"""Offsets that are deleted together."""

# --- OffsetCommit ---------------------------------------------------------------------------------------------


@handles(OffsetCommitRequest, on_group(READ), on_topics(READ))
def offset_commit(
    services: Services, ctx: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """Store offsets; each partition has its own error. Unknown partitions do not keep the others from being stored."""
    return in_turns(_commit(services, ctx, request))


def _commit(
    services: Services, ctx: RequestContext, request: OffsetCommitRequest
) -> Generator[None, None, OffsetCommitResponse | Awaitable[OffsetCommitResponse]]:
    now = ctx.received_at
    expires = -1 if request.retention_time_ms == -1 else min(now + request.retention_time_ms, LATEST_EXPIRY_MS)
    offsets, refused = yield from gather_offsets(services, request.topics, now, expires)
    is_large = len(refused) + len(offsets) > MOST_ANSWERED_AT_ONCE
    outcome = services.groups.commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        offsets,
        (lambda error: error) if is_large else lambda error: _committed(request, error, refused),
    )
    if isinstance(outcome, asyncio.Future):
        return _committed_later(ctx.api_version, request, outcome, refused) if is_large else outcome
    return (yield from _committed_in_turns(ctx.api_version, request, outcome, refused, is_about_member=True))


def gather_offsets(
    services: Services, topics: Sequence[Any], now: int, expires: int
) -> Generator[None, None, tuple[list[tuple[Key, CommittedOffset]], dict[Key, ErrorCode]]]:
    """Return what a request wants to be stored, and why the rest of it cannot be."""
    offsets: list[tuple[Key, CommittedOffset]] = []
    refused: dict[Key, ErrorCode] = {}
    there = services.metadata.topics
    longest = services.config.offset_metadata_max_bytes
    for topic in topics:
        yield
        name = topic.name
        known = there.get(name)
        for partition in topic.partitions:
            index = partition.partition_index
            metadata = partition.committed_metadata or ""
            if known is None or index not in known.partitions:
                refused[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata) * 2 > longest and _utf16_units(metadata) > longest:
                refused[name, index] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                committed = CommittedOffset(
                    partition.committed_offset, partition.committed_leader_epoch, metadata, now, expires
                )
                offsets.append(((name, index), committed))
            yield
    return offsets, refused


def _utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _committed(request: OffsetCommitRequest, error: ErrorCode, refused: dict[Key, ErrorCode]) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=refused.get((topic.name, partition.partition_index), error),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _committed_in_turns(
    version: int,
    request: OffsetCommitRequest,
    error: ErrorCode,
    refused: dict[Key, ErrorCode],
    is_about_member: bool = False,
) -> Generator[None, None, OffsetCommitResponse]:
    """Answer; an error about the member is about all partitions there are."""
    goes_first = is_about_member and error is not ErrorCode.NONE
    topics = []
    for topic in request.topics:
        yield
        answers = ElementWriter(OffsetCommitResponse, version)
        for partition in topic.partitions:
            index = partition.partition_index
            code = refused.get((topic.name, index), error)
            if goes_first and code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                code = error
            answers.append(OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=index, error_code=code))
            yield
        topics.append(OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, partitions=answers.array()))
    return OffsetCommitResponse(topics=topics)


async def _committed_later(
    version: int, request: OffsetCommitRequest, outcome: Awaitable[ErrorCode], refused: dict[Key, ErrorCode]
) -> OffsetCommitResponse:
    return await finished(in_turns(_committed_in_turns(version, request, await outcome, refused)))


# --- OffsetFetch ----------------------------------------------------------------------------------------------


NOTHING = CommittedOffset(-1)

AskedGroup = OffsetFetchRequest.OffsetFetchRequestGroup
Work = Generator[None, None, Any]


def _asks_for_much(request: OffsetFetchRequest) -> bool:
    """Each offset may have kilobytes of metadata."""
    asked: list[Sequence[Any] | None] = [group.topics for group in request.groups] or [request.topics]
    named = [topics for topics in asked if topics is not None]
    if len(named) < len(asked):
        return True
    return sum(len(topic.partition_indexes) for topics in named for topic in topics) > MOST_ASKED_AT_ONCE


@handles(
    OffsetFetchRequest,
    when(since_version(FIRST_BATCHED_VERSION), each(GROUP, DESCRIBE, "groups", "group_id"), on_group(DESCRIBE)),
    ends_with_connection=True,
    asks_for_much=_asks_for_much,
)
def offset_fetch(
    services: Services, ctx: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    """Return committed offsets: of one group, or from version 8 on of several; -1 where there is none.

    What is named several times is told once.
    """
    if ctx.api_version >= FIRST_BATCHED_VERSION:
        return in_turns(_fetch_groups(services, ctx, request))
    return in_turns(_fetch_group(services, ctx, request))


def _fetch_groups(services: Services, ctx: RequestContext, request: OffsetFetchRequest) -> Work:
    version = ctx.api_version
    structs = OffsetFetchResponse.OffsetFetchResponseTopics, OffsetFetchResponse.OffsetFetchResponsePartitions
    named: dict[str, list[AskedGroup]] = {}
    for group in request.groups:
        named.setdefault(group.group_id, []).append(group)
        yield
    groups = ElementWriter(OffsetFetchResponse, version)
    for group_id, asked in named.items():
        found, error = services.groups.committed(group_id)
        for group in asked:
            yield
            if error is ErrorCode.NONE and group.member_id is not None and group.member_epoch >= 0:
                error = services.groups.read_error(group_id, group.member_id, group.member_epoch)
        topics = []
        if error is ErrorCode.NONE:
            topics = yield from _topics(ctx, found, _wanted_topics(asked), request.require_stable, structs, error)
        groups.append(OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group_id, error_code=error, topics=topics))
    return OffsetFetchResponse(groups=groups.array())


def _wanted_topics(asked: Sequence[AskedGroup]) -> Iterable[Any] | None:
    """Return what all namings of a group ask for together; None for everything."""
    wanted = [group.topics for group in asked if group.topics is not None]
    return chain.from_iterable(wanted) if len(wanted) == len(asked) else None


def _fetch_group(services: Services, ctx: RequestContext, request: OffsetFetchRequest) -> Work:
    structs = OffsetFetchResponse.OffsetFetchResponseTopic, OffsetFetchResponse.OffsetFetchResponsePartition
    found, error = services.groups.committed(request.group_id)
    topics = []
    if error is ErrorCode.NONE or ctx.api_version < FIRST_TOP_LEVEL_ERROR:
        topics = yield from _topics(ctx, found, request.topics, request.require_stable, structs, error)
    return OffsetFetchResponse(error_code=error, topics=topics)


def _topics(
    ctx: RequestContext,
    group: AnyGroup | None,
    wanted: Iterable[Any] | None,
    require_stable: bool,
    structs: tuple[Any, Any],
    error: ErrorCode,
) -> Work:
    """Look offsets up and put them into structs of the version's kind: before version 8, or since then.

    Topics that may not be described are refused where they are named, and left out where all are asked for.
    """
    asked: dict[str, dict[int, None]] = {}
    if wanted is None:
        for name, index in () if group is None else list(group.offsets.committed):
            if ctx.authority.could(DESCRIBE, TOPIC, name, "OffsetFetch"):
                asked.setdefault(name, {})[index] = None
            yield
    else:
        asked = yield from each_once(wanted)
    of_topic, of_partition = structs
    topics = []
    for name, indexes in asked.items():
        yield
        answers = ElementWriter(OffsetFetchResponse, ctx.api_version)
        refused = error
        if not error and wanted is not None and not ctx.authority.may(DESCRIBE, TOPIC, name, "OffsetFetch"):
            refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for index in indexes:
            committed, code = _look_up(group, (name, index), require_stable) if not refused else (NOTHING, refused)
            answers.append(
                of_partition(
                    partition_index=index,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                    error_code=code,
                )
            )
            yield
        topics.append(of_topic(name=name, partitions=answers.array()))
    return topics


def each_once(topics: Iterable[Any]) -> Generator[None, None, dict[str, dict[int, None]]]:
    """Return the partitions that are named, by topic, in the order in which they are named first."""
    named: dict[str, dict[int, None]] = {}
    for topic in topics:
        yield
        indexes = named.setdefault(topic.name, {})
        for portion in portions(topic.partition_indexes):
            indexes.update(dict.fromkeys(portion))
            yield
    return named


def _look_up(group: AnyGroup | None, key: Key, require_stable: bool) -> tuple[CommittedOffset, ErrorCode]:
    if group is None:
        return NOTHING, ErrorCode.NONE
    if require_stable and group.offsets.is_unstable(key):
        return NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT
    return group.offsets.committed.get(key, NOTHING), ErrorCode.NONE


# --- OffsetDelete ---------------------------------------------------------------------------------------------


@handles(OffsetDeleteRequest, on_group(DELETE), on_topics(READ))
async def offset_delete(services: Services, ctx: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete committed offsets of topics that the group does not read."""
    metadata, turn = services.metadata, Turn()
    known: list[Key] = []
    for topic in request.topics:
        await turn.end_if_over()
        for partition in topic.partitions:
            if metadata.partition(topic.name, partition.partition_index) is not None:
                known.append((topic.name, partition.partition_index))
            await turn.end_if_over()
    errors: dict[Key, ErrorCode] = {}
    for portion in portions(known, DELETED_AT_ONCE) if known else ([],):
        error, found = await services.groups.delete_offsets(request.group_id, portion)
        if error is not ErrorCode.NONE:
            return OffsetDeleteResponse(error_code=error, topics=[])
        errors |= found
    topics = []
    for topic in request.topics:
        await turn.end_if_over()
        answers = ElementWriter(OffsetDeleteResponse, ctx.api_version)
        for partition in topic.partitions:
            index = partition.partition_index
            code = errors.get((topic.name, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            answers.append(OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=index, error_code=code))
            await turn.end_if_over()
        topics.append(OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name, partitions=answers.array()))
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics)
