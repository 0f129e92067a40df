"""Committed offsets of groups: OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, NamedTuple

from kbroker.coordinator.any_group import AnyGroup
from kbroker.coordinator.group_offsets import CommittedOffset, Key
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.registry import handles
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

FIRST_BATCHED_VERSION = 8
FIRST_TOP_LEVEL_ERROR = 2

# --- OffsetCommit ---------------------------------------------------------------------------------------------


@handles(OffsetCommitRequest)
def offset_commit(
    services: Services, ctx: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """Store offsets; each partition has its own error. Unknown partitions do not keep the others from being stored."""
    offsets: list[tuple[Key, CommittedOffset]] = []
    refused: dict[Key, ErrorCode] = {}
    topics = services.metadata.topics
    longest = services.config.offset_metadata_max_bytes
    now = ctx.received_at
    expires = -1 if request.retention_time_ms == -1 else now + request.retention_time_ms
    for topic in request.topics:
        name = topic.name
        known = topics.get(name)
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
    outcome = services.groups.commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        offsets,
        lambda error: _committed(request, error, refused),
    )
    if isinstance(outcome, asyncio.Future):
        return outcome
    if outcome is not ErrorCode.NONE:  # about the member, so about all partitions there are
        refused = {key: code for key, code in refused.items() if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    return _committed(request, outcome, refused)


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


# --- OffsetFetch ----------------------------------------------------------------------------------------------


class _Found(NamedTuple):
    """One partition's answer."""

    partition_index: int
    committed: CommittedOffset
    error: ErrorCode


NOTHING = CommittedOffset(-1)

Wanted = Iterable[tuple[str, Sequence[int]]]


@handles(OffsetFetchRequest)
def offset_fetch(services: Services, ctx: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Return committed offsets: of one group, or from version 8 on of several; -1 where there is none."""
    if ctx.api_version >= FIRST_BATCHED_VERSION:
        return OffsetFetchResponse(groups=[_fetch_group(services, group, request) for group in request.groups])
    wanted = None if request.topics is None else [(topic.name, topic.partition_indexes) for topic in request.topics]
    error, topics = _fetch(services, request.group_id, wanted, request.require_stable)
    if error is not ErrorCode.NONE and ctx.api_version < FIRST_TOP_LEVEL_ERROR:
        topics = {name: [_Found(index, NOTHING, error) for index in partitions] for name, partitions in (wanted or ())}
    return OffsetFetchResponse(
        error_code=error,
        topics=_topics(
            OffsetFetchResponse.OffsetFetchResponseTopic, OffsetFetchResponse.OffsetFetchResponsePartition, topics
        ),
    )


def _fetch_group(
    services: Services, group: OffsetFetchRequest.OffsetFetchRequestGroup, request: OffsetFetchRequest
) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    wanted = None if group.topics is None else [(topic.name, topic.partition_indexes) for topic in group.topics]
    error, topics = _fetch(services, group.group_id, wanted, request.require_stable)
    if group.member_id is not None and group.member_epoch >= 0 and error is ErrorCode.NONE:
        error = services.groups.read_error(group.group_id, group.member_id, group.member_epoch)
        if error is not ErrorCode.NONE:
            topics = {}
    return OffsetFetchResponse.OffsetFetchResponseGroup(
        group_id=group.group_id,
        error_code=error,
        topics=_topics(
            OffsetFetchResponse.OffsetFetchResponseTopics, OffsetFetchResponse.OffsetFetchResponsePartitions, topics
        ),
    )


def _topics(of_topic: Any, of_partition: Any, topics: dict[str, list[_Found]]) -> list[Any]:
    """Return what was found in structs of the version's kind: before version 8, or since then."""
    return [
        of_topic(
            name=name,
            partitions=[
                of_partition(
                    partition_index=each.partition_index,
                    committed_offset=each.committed.offset,
                    committed_leader_epoch=each.committed.leader_epoch,
                    metadata=each.committed.metadata,
                    error_code=each.error,
                )
                for each in found
            ],
        )
        for name, found in topics.items()
    ]


def _fetch(
    services: Services, group_id: str, wanted: Wanted | None, require_stable: bool
) -> tuple[ErrorCode, dict[str, list[_Found]]]:
    group, error = services.groups.committed(group_id)
    if error is not ErrorCode.NONE:
        return error, {}
    topics: dict[str, list[_Found]] = {}
    if wanted is None:
        for name, index in () if group is None else group.offsets.committed:
            topics.setdefault(name, []).append(_look_up(group, (name, index), require_stable))
    else:
        for name, partitions in wanted:
            found = topics.setdefault(name, [])
            found += [_look_up(group, (name, index), require_stable) for index in partitions]
    return ErrorCode.NONE, topics


def _look_up(group: AnyGroup | None, key: Key, require_stable: bool) -> _Found:
    if group is None:
        return _Found(key[1], NOTHING, ErrorCode.NONE)
    if require_stable and group.offsets.is_unstable(key):
        return _Found(key[1], NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return _Found(key[1], group.offsets.committed.get(key, NOTHING), ErrorCode.NONE)


# --- OffsetDelete ---------------------------------------------------------------------------------------------


@handles(OffsetDeleteRequest)
async def offset_delete(services: Services, ctx: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete committed offsets of topics that the group does not read."""
    asked = [(topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions]
    metadata = services.metadata
    known = [key for key in asked if metadata.partition(*key) is not None]
    error, errors = await services.groups.delete_offsets(request.group_id, known)
    if error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=error, topics=[])
    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        topics=[
            OffsetDeleteResponse.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponse.OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=errors.get(
                            (topic.name, partition.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
