"""The group coordinator beside Apache Kafka's: rebalances, commits, reading a partition of __consumer_offsets.

- 100 members of a classic group join at once, and rebalance again and again (heartbeats every 0.1 s); the same of
  the newer protocol, which Kafka 3.9 does not have with ZooKeeper;
- 10,000 commits a second from 100 connections, then as many as they get through;
- a broker starts on an offsets partition of 1,000,000 records, written here and copied: the time until it answers an
  OffsetFetch, with ten commits of each partition, and with one of each as after compaction.
"""

from __future__ import annotations

import asyncio
import functools
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from bench.broker import Figures, create_topic
from bench.commit_load import CONNECTIONS, CommitLoad
from bench.group_members import ClassicGroup, ConsumerGroup
from bench.systems import System
from kbroker.client.connection import Connection
from kbroker.cluster.topic_names import OFFSETS_TOPIC
from kbroker.coordinator.group_offsets import CommittedOffset
from kbroker.coordinator.offsets_records import commit_key, commit_value
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.groups import FindCoordinatorRequest, OffsetFetchRequest, OffsetFetchResponse
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_manager import LogManager

TOPIC = "read-by-groups"
"""As many partitions as a group has members."""
COMMITTED_TOPIC = "committed"
COMMITS_PER_SECOND = 10_000
BATCH_RECORDS = 10
"""Partitions that one commit tells of."""
KEYS_PER_GROUP = 100
SEGMENT_BYTES = 1 << 30
ONE_PARTITION = {"offsets.topic.num.partitions": "1", "offsets.topic.segment.bytes": str(SEGMENT_BYTES)}
"""One segment, so that no cleaner gets in between."""
LIMIT_S = 120.0
POLL_S = 0.005


# --- members --------------------------------------------------------------------------------------------------


async def membership(system: System, size: int) -> dict[str, Figures]:
    """Measure groups of so many members."""
    rows: dict[str, Figures] = {}
    await find_coordinator(system.port)
    warm = ClassicGroup("warm", TOPIC, size)
    await warm.connect(system.port)
    await warm.join()
    await warm.close()
    classic = ClassicGroup("classic", TOPIC, size)
    await classic.connect(system.port)
    before = system.cpu_seconds()
    seconds = await classic.join()
    rows[f"{size} members join"] = {"seconds": seconds, "CPU-s": system.cpu_seconds() - before}
    for _ in range(5):
        await classic.rebalance()
    before = system.cpu_seconds()
    times = [1e3 * await classic.rebalance() for _ in range(20)]
    cpu_ms = 1e3 * (system.cpu_seconds() - before) / len(times)
    rows[f"{size} members rebalance"] = {
        "median ms": statistics.median(times),
        "longest ms": max(times),
        "CPU-ms": cpu_ms,
    }
    await classic.close()
    newer = ConsumerGroup("newer", TOPIC, size)
    await newer.connect(system.port)
    if newer.is_served:
        before = system.cpu_seconds()
        seconds = await newer.join()
        figures = {"seconds": seconds, "CPU-s": system.cpu_seconds() - before}
        rows[f"{size} members of the newer protocol join"] = figures
    await newer.close()
    return rows


async def find_coordinator(port: int) -> None:
    """Have __consumer_offsets created and wait until its partitions are led."""
    connection = await Connection.open("127.0.0.1", port)
    await connection.negotiate()
    async with asyncio.timeout(LIMIT_S):
        while True:
            answer = await connection.request(FindCoordinatorRequest(key="warm"), 2)
            if answer.error_code is ErrorCode.NONE:
                break
            await asyncio.sleep(POLL_S)
    await until_fetched(connection, "warm", TOPIC, 0)
    await connection.close()


async def until_fetched(connection: Connection, group_id: str, topic: str, partition: int) -> int:
    """Ask for a committed offset until the group's coordinator answers; returns the offset."""
    wanted = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])
    request = OffsetFetchRequest(group_id=group_id, topics=[wanted])
    async with asyncio.timeout(LIMIT_S):
        while True:
            answer: OffsetFetchResponse = await connection.request(request, 7)
            if answer.error_code is ErrorCode.NONE:
                return answer.topics[0].partitions[0].committed_offset
            await asyncio.sleep(POLL_S)


# --- commits --------------------------------------------------------------------------------------------------


def commits(system: System, seconds: float) -> dict[str, Figures]:
    """Measure commits for so long each."""
    with CommitLoad(system, system.port, COMMITTED_TOPIC) as load:
        load.saturate(min(seconds, 3))  # warm up
        return {
            f"{COMMITS_PER_SECOND:,} commits/s asked for": load.hold(COMMITS_PER_SECOND, seconds),
            "commits, one under way per connection": load.saturate(seconds),
        }


# --- loading --------------------------------------------------------------------------------------------------


def place_of(key: int) -> tuple[str, str, int]:
    """Return (group, topic, partition) of a key: groups of 100 partitions, in topics of ten."""
    group, rest = divmod(key, KEYS_PER_GROUP)
    return f"group-{group:06}", f"topic-{rest // BATCH_RECORDS:03}", rest % BATCH_RECORDS


@functools.cache
def written_log(records: int, keys: int) -> tempfile.TemporaryDirectory[str]:
    """Write an offsets partition: commits of ten partitions each, every key as often as any other."""
    folder = tempfile.TemporaryDirectory(prefix="bench-offsets-")
    manager = LogManager([Path(folder.name)])
    manager.open(1, "bench-groups-cluster-i")
    manager.load()
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=SEGMENT_BYTES)
    log = manager.create(OFFSETS_TOPIC, 0, bytes(range(16)), config)
    now = int(time.time() * 1000)
    for first in range(0, records, BATCH_RECORDS):
        builder = BatchBuilder(1 << 20)
        for number in range(first, first + BATCH_RECORDS):
            builder.append(
                commit_key(*place_of(number % keys)), commit_value(CommittedOffset(number, 0, "", now)), (), now
            )
        log.append_as_leader(builder.build(), 0, now)
    manager.shutdown()
    return folder


def loading(kind: type[System], records: int, keys: int) -> Figures:
    """Start a broker on the written log; returns the seconds until its first answers and the CPU seconds by then."""
    with kind(ONE_PARTITION) as system:
        asyncio.run(find_coordinator(system.port))
        system.stop()
        target = system.log_dir / f"{OFFSETS_TOPIC}-0"
        for file in target.iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        source = Path(written_log(records, keys).name) / f"{OFFSETS_TOPIC}-0"
        for suffix in ("log", "index", "timeindex"):
            shutil.copy(source / f"{0:020}.{suffix}", target)
        began = time.monotonic()
        started = system.start()
        asyncio.run(until_loaded(system.port, records, keys))
        fetched = time.monotonic() - began
        return {
            "seconds to the first OffsetFetch": fetched,
            "of these after the first Metadata": fetched - started,
            "CPU-s": system.cpu_seconds(),
            "resident MB": system.resident_mb(),
        }


async def until_loaded(port: int, records: int, keys: int) -> None:
    """Ask for the last committed offset until it is answered; raises RuntimeError when that is another one."""
    group_id, topic, partition = place_of((records - 1) % keys)
    connection = await Connection.open("127.0.0.1", port)
    found = await until_fetched(connection, group_id, topic, partition)
    await connection.close()
    if found != records - 1:
        raise RuntimeError(f"{group_id} is answered offset {found}, {records - 1} was committed last")


def measure(kind: type[System], scale: float) -> dict[str, Figures]:
    """Run every measurement on one broker of a kind; `scale` shrinks groups, times and the log."""
    records = max(1_000, int(1_000_000 * scale) // 1_000 * 1_000)
    with kind() as system:
        size = max(3, min(100, int(100 * scale)))
        create_topic(system, TOPIC, size)
        create_topic(system, COMMITTED_TOPIC, CONNECTIONS)
        rows = asyncio.run(membership(system, size))
        rows |= commits(system, max(1.0, 10 * scale))
    for keys in (records // 10, records):
        rows[f"start on {records:,} offsets records of {keys:,} keys"] = loading(kind, records, keys)
    return rows
