"""DescribeLogDirs: which partitions lie in which directory, how large they are and how far behind."""

from __future__ import annotations

from collections import defaultdict

from kbroker.context import RequestContext, Services
from kbroker.dispatch import handles
from protocol.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

Partition = DescribeLogDirsResponse.DescribeLogDirsPartition


@handles(DescribeLogDirsRequest)
def describe_log_dirs(
    services: Services, ctx: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """List all directories with the partitions asked for (null: all of them)."""
    wanted: dict[str, set[int]] | None = None
    if request.topics is not None:
        wanted = defaultdict(set)
        for topic in request.topics:
            wanted[topic.topic].update(topic.partitions)
    results = []
    for directory in services.replicas.describe_log_dirs(wanted):
        topics: dict[str, list[Partition]] = defaultdict(list)
        for name, partition, size, offset_lag, is_future in directory.replicas:
            topics[name].append(
                Partition(
                    partition_index=partition, partition_size=size, offset_lag=offset_lag, is_future_key=is_future
                )
            )
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
