"""What lies in the log directories of this broker, as DescribeLogDirs shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.protocol.errors import ErrorCode
from kbroker.replica.turns import finished, in_turns
from kbroker.segment.log_table import LogDirDescription

if TYPE_CHECKING:
    from kbroker.replica.replica_manager import ReplicaManager


@dataclass(frozen=True, slots=True)
class LogDirState:
    """One log directory."""

    path: str
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    replicas: list[tuple[str, int, int, int, bool]]
    """(topic, partition, size, offset lag, is_future)"""


async def describe_log_dirs(manager: ReplicaManager, topics: dict[str, set[int]] | None) -> list[LogDirState]:
    """Sizes and offset lags per log directory; all partitions when `topics` is None. A thread asks the disks."""
    run = asyncio.get_running_loop().run_in_executor
    found = await run(manager.workers.upkeep, manager.logs.describe)
    return await finished(in_turns(log_dir_states(manager, found, topics)))


def log_dir_states(
    manager: ReplicaManager, found: Iterable[LogDirDescription], topics: dict[str, set[int]] | None
) -> Generator[None, None, list[LogDirState]]:
    """Add the lags to what the logs tell, in turns."""
    states = []
    for each in found:
        error = ErrorCode.NONE if each.error is None else ErrorCode.KAFKA_STORAGE_ERROR
        replicas = []
        for topic, partition, size, is_future in each.logs:
            if topics is None or partition in topics.get(topic, ()):
                replicas.append((topic, partition, size, _lag(manager, topic, partition, is_future), is_future))
            yield
        states.append(LogDirState(each.path, error, each.total_bytes, each.usable_bytes, replicas))
    return states


def _lag(manager: ReplicaManager, topic: str, partition: int, is_future: bool) -> int:
    """How far a log lacks behind its high watermark, or a copy behind its log; -1 where nothing is hosted."""
    hosted = manager.replica(topic, partition)
    if hosted is None:
        return -1
    if not is_future:
        return max(hosted.log.high_watermark - hosted.log.log_end_offset, 0)
    future = manager.logs.future(topic, partition)
    return 0 if future is None else hosted.log.log_end_offset - future.log_end_offset
