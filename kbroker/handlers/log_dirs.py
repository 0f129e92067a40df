"""AlterReplicaLogDirs, DescribeLogDirs: which partitions lie in which directory, and how to have them elsewhere."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable

from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import ALTER, DESCRIBE, Asked, on_cluster, when
from kbroker.handlers.registry import handles
from kbroker.protocol.messages.log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.replica import log_dir_states
from kbroker.replica.turns import Turn

Partition = DescribeLogDirsResponse.DescribeLogDirsPartition
AlterResult = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


@handles(AlterReplicaLogDirsRequest, on_cluster(ALTER))
async def alter_replica_log_dirs(
    services: Services, ctx: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Begin to move replicas between the directories of this broker; DescribeLogDirs tells how far they are."""
    wanted = {
        (topic.name, partition): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for partition in topic.partitions
    }
    results: dict[str, list[AlterResult]] = defaultdict(list)
    turn = Turn()
    for (topic, partition), path in wanted.items():
        error = await services.replicas.alter_log_dir(topic, partition, path)
        results[topic].append(AlterResult(partition_index=partition, error_code=error))
        await turn.end_if_over()
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(topic_name=topic, partitions=partitions)
            for topic, partitions in results.items()
        ]
    )


def _asks_for_scrub(request: DescribeLogDirsRequest) -> bool:
    return request.scrub_id != ZERO_UUID


def _wants_scrub(asked: Asked) -> bool:
    return _asks_for_scrub(asked.request)


@handles(
    DescribeLogDirsRequest,
    when(_wants_scrub, on_cluster(ALTER), otherwise=on_cluster(DESCRIBE)),
    asks_for_much=lambda request: request.topics is None,
)
def describe_log_dirs(
    services: Services, ctx: RequestContext, request: DescribeLogDirsRequest
) -> Awaitable[DescribeLogDirsResponse]:
    """List all directories with the partitions asked for (null: all of them), or have these scrubbed."""
    ctx.ends_with_connection = not _asks_for_scrub(request)
    return _describe_log_dirs(services, request)


async def _describe_log_dirs(services: Services, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    turn = Turn()
    wanted: dict[str, set[int]] | None = None
    if request.topics is not None:
        wanted = defaultdict(set)
        for topic in request.topics:
            wanted[topic.topic].update(topic.partitions)
            await turn.end_if_over()
    if _asks_for_scrub(request):
        return DescribeLogDirsResponse(results=[], scrubs=await _scrub(services, request.scrub_id, wanted))
    results = []
    for directory in await log_dir_states.describe_log_dirs(services.replicas, wanted):
        topics: dict[str, list[Partition]] = defaultdict(list)
        for name, partition, size, offset_lag, is_future in directory.replicas:
            topics[name].append(
                Partition(
                    partition_index=partition, partition_size=size, offset_lag=offset_lag, is_future_key=is_future
                )
            )
            await turn.end_if_over()
        results.append(
            DescribeLogDirsResponse.DescribeLogDirsResult(
                error_code=directory.error,
                log_dir=directory.path,
                topics=[
                    DescribeLogDirsResponse.DescribeLogDirsTopic(name=name, partitions=partitions)
                    for name, partitions in topics.items()
                ],
                total_bytes=directory.total_bytes,
                usable_bytes=directory.usable_bytes,
            )
        )
    return DescribeLogDirsResponse(results=results)


async def _scrub(
    services: Services, scrub_id: bytes, wanted: dict[str, set[int]] | None
) -> list[DescribeLogDirsResponse.Scrub]:
    """Begin a scrub, or tell how far it is; nothing while the broker is still starting."""
    care = services.replicas.care
    if care is None:
        return []
    run = asyncio.get_running_loop().run_in_executor
    found = await run(services.workers.upkeep, care.wanted_scrubs.ask, scrub_id, wanted)
    is_over = found.is_over  # first: what is found until then is told
    damages = [
        DescribeLogDirsResponse.ScrubDamage(
            topic=damage.log.topic,
            partition=damage.log.partition,
            log_dir=damage.log.log_dir,
            segment=damage.segment.base_offset,
            position=damage.position,
            offset=damage.offset,
            end_offset=damage.end_offset,
            state=care.state_of(damage),
            why=damage.why,
        )
        for damage in found.damages
    ]
    return [
        DescribeLogDirsResponse.Scrub(
            is_over=is_over and all(damage.state != "mending" for damage in damages),
            segments=found.segments,
            checked_segments=found.checked_segments,
            bytes=found.bytes,
            checked_bytes=found.checked_bytes,
            damages=damages,
        )
    ]
