"""Microseconds per Produce and Fetch inside the broker, from the complete frame to the parts of the answer.

No sockets: the dispatcher is called as the server would call it, on real logs in a temporary folder.

    python bench/broker_path.py [--seconds 1] [--rules 10000]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.peers import framed
from kbroker.cluster.metadata_cache import MetadataCache
from kbroker.config.broker_config import BrokerConfig
from kbroker.handlers import fetch as fetch_handler
from kbroker.handlers import produce as produce_handler
from kbroker.network.dispatch import PENDING, Dispatcher
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.replication import LeaderAndIsrRequest, UpdateMetadataRequest
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.replica.replica_manager import ReplicaManager
from kbroker.security.acls import (
    ANONYMOUS,
    CLUSTER_NAME,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    Entry,
    Pattern,
)
from kbroker.security.authorizer import EVERYTHING, Authorizer
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_manager import LogManager

TOPIC, TOPIC_ID = "bench", bytes(range(16))
HANDLERS = (produce_handler, fetch_handler)


class Connection:
    """What the dispatcher needs of one."""

    listener, host, principal, takes_brokers = "PLAINTEXT", "127.0.0.1", ANONYMOUS, True
    received, last_active, timing = 0.0, 0.0, None

    def __init__(self) -> None:
        self.authority = EVERYTHING
        self.answered: asyncio.Event = asyncio.Event()

    def answer(self, parts: Any, timing: Any = None) -> None:
        """Note that a delayed answer has come."""
        self.answered.set()

    def cancel_when_closed(self, answer: Any) -> None:
        """Nobody goes away here."""

    def answer_late(self, late: Any, parts: Any) -> None:
        """Note that a delayed answer has come."""
        self.answered.set()


def authorizer_with(rules: int) -> Authorizer:
    """So many access rules, two of which allow the bench's connections what they do."""
    authorizer = Authorizer()
    resources = AclResource.TOPIC, AclResource.GROUP
    for number in range(rules - 2):
        kind = AclPattern.PREFIXED if number % 3 == 0 else AclPattern.LITERAL
        pattern = Pattern(resources[number % 2], kind, f"{number * 7919 % rules}-resource")
        authorizer.replace(pattern, [Entry(f"User:u{number}", "*", AclOperation.READ, AclPermission.ALLOW)])
    for resource, name in ((AclResource.TOPIC, TOPIC), (AclResource.CLUSTER, CLUSTER_NAME)):
        allowed = Entry(ANONYMOUS, "*", AclOperation.ALL, AclPermission.ALLOW)
        authorizer.replace(Pattern(resource, AclPattern.LITERAL, name), [allowed])
    return authorizer


class Bench:
    """A broker's data path on logs in a folder."""

    def __init__(self, folder: Path, rules: int = 0, **topic_config: Any) -> None:
        self.config = LogConfig(**topic_config)
        self.metadata = MetadataCache()
        self.logs = LogManager([folder], self.config)
        self.logs.open(1, "bench")
        self.logs.load()
        config = BrokerConfig()
        self.replicas = ReplicaManager(config, self.logs, self.metadata, 1, lambda: 1, lambda topic: self.config)
        services: Any = SimpleNamespace(config=config, replicas=self.replicas, metadata=self.metadata, quotas=None)
        self.dispatch = Dispatcher(services, authorizer_with(rules) if rules else None)
        self.connection: Any = Connection()

    async def warm_up(self, frame: bytes) -> None:
        """Fetch until all is in memory: what was rolled is looked up by a thread at first."""
        while self.dispatch(self.connection, memoryview(bytearray(frame))) is PENDING:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def create(self, partitions: int) -> float:
        """Have all partitions led here; returns the seconds that took."""
        began = time.perf_counter()
        state, entry = LeaderAndIsrRequest.LeaderAndIsrPartitionState, LeaderAndIsrRequest.LeaderAndIsrTopicState
        base: dict[str, Any] = {"controller_epoch": 1, "leader": 1, "leader_epoch": 0, "isr": [1], "replicas": [1]}
        states = [state(partition_index=p, partition_epoch=0, is_new=True, **base) for p in range(partitions)]
        topics = [entry(topic_name=TOPIC, topic_id=TOPIC_ID, partition_states=states)]
        await self.replicas.become_leader_or_follower(
            LeaderAndIsrRequest(
                controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=topics, live_leaders=[]
            )
        )
        known, group = (
            UpdateMetadataRequest.UpdateMetadataPartitionState,
            UpdateMetadataRequest.UpdateMetadataTopicState,
        )
        self.replicas.update_metadata(
            UpdateMetadataRequest(
                controller_id=1,
                controller_epoch=1,
                broker_epoch=1,
                topic_states=[
                    group(
                        topic_name=TOPIC,
                        topic_id=TOPIC_ID,
                        partition_states=[known(partition_index=p, zk_version=0, **base) for p in range(partitions)],
                    )
                ],
                live_brokers=[],
            )
        )
        return time.perf_counter() - began


def batch_of(size: int) -> bytes:
    builder = BatchBuilder(batch_size=size * 2)
    builder.append(b"key", bytes(size), (), 1_700_000_000_000)
    return bytes(builder.build())


def produce_frame(batch: bytes, partitions: int, acks: int = -1) -> bytes:
    data = [ProduceRequest.PartitionProduceData(index=p, records=batch) for p in range(partitions)]
    topics = [ProduceRequest.TopicProduceData(name=TOPIC, partition_data=data)]
    return frame_of(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics), 9)


def fetch_frame(
    partitions: int, offset: int, session: tuple[int, int] = (0, -1), max_wait_ms: int = 0, max_bytes: int = 1 << 20
) -> bytes:
    wanted = [
        FetchRequest.FetchPartition(partition=p, fetch_offset=offset, partition_max_bytes=max_bytes)
        for p in range(partitions)
    ]
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=55 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchRequest.FetchTopic(topic_id=TOPIC_ID, partitions=wanted)] if wanted else [],
        forgotten_topics_data=[],
    )
    return frame_of(request, 16)


def frame_of(request: Any, version: int) -> bytes:
    return framed(request, version)[4:]


def measure(name: str, seconds: float, once: Callable[[], None], per: int = 1, unit: str = "") -> float:
    """Call for about so many seconds; print and return the median microseconds."""
    once()
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        once()
        times.append(time.perf_counter() - began)
    times.sort()
    median = times[len(times) // 2] * 1e6
    each = f"  ({median / per:6.2f} µs per {unit})" if per > 1 else ""
    print(f"{name:58} {median:9.1f} µs   p99 {times[len(times) * 99 // 100] * 1e6:8.1f} µs{each}", flush=True)
    return median


def call(bench: Bench, frame: bytes) -> Callable[[], None]:
    def once() -> None:
        answer = bench.dispatch(bench.connection, memoryview(bytearray(frame)))
        assert answer is not None
        assert answer is not PENDING

    return once


async def wake_up(bench: Bench, seconds: float) -> None:
    """A consumer waits, a producer appends: until the consumer's answer is encoded."""
    small = produce_frame(batch_of(100), 1)
    times = []
    replica = bench.replicas.replica(TOPIC, 0)
    assert replica is not None
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        waiting = fetch_frame(1, replica.log.log_end_offset, max_wait_ms=1000)
        bench.connection.answered.clear()
        assert bench.dispatch(bench.connection, memoryview(bytearray(waiting))) is PENDING
        await asyncio.sleep(0)
        began = time.perf_counter()
        bench.dispatch(bench.connection, memoryview(bytearray(small)))
        await bench.connection.answered.wait()
        times.append(time.perf_counter() - began)
    times.sort()
    print(
        f"{'append -> waiting consumer answered (100 bytes)':58} {times[len(times) // 2] * 1e6:9.1f} µs   "
        f"p99 {times[len(times) * 99 // 100] * 1e6:8.1f} µs"
    )


async def grouped_fsync(folder: Path, seconds: float, connections: int) -> None:
    """flush.messages=1: many connections, each with one 1 KB request at a time."""
    bench = Bench(folder, flush_messages=1)
    await bench.create(4)
    data = batch_of(1000)
    frame = produce_frame(data, 1)
    done = 0
    end = time.perf_counter() + seconds

    async def one() -> None:
        nonlocal done
        connection: Any = Connection()
        while time.perf_counter() < end:
            connection.answered.clear()
            if not isinstance(bench.dispatch(connection, memoryview(bytearray(frame))), list):
                await connection.answered.wait()
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(connections)))
    rate = done / (time.perf_counter() - began)
    print(f"grouped fsync, {connections} connections: {rate:,.0f} requests/s in {bench.replicas.flusher.rounds} rounds")
    bench.logs.abandon()


async def run(seconds: float, rules: int) -> None:
    """All figures."""
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(Path(place) / "a", rules)
        took = await bench.create(1000)
        print(f"1,000 partitions created and led in {took:.2f} s")
        measure("produce, 1 partition, 1 KB", seconds, call(bench, produce_frame(batch_of(1000), 1)))
        measure("produce, 1 partition, 128 KB", seconds, call(bench, produce_frame(batch_of(128_000), 1)))
        measure(
            "produce, 100 partitions, 1 KB", seconds, call(bench, produce_frame(batch_of(1000), 100)), 100, "partition"
        )
        await bench.warm_up(fetch_frame(1, 0))
        measure("fetch, 1 partition with data", seconds, call(bench, fetch_frame(1, 0)))
        measure(
            "fetch, 100 partitions with data",
            seconds,
            call(bench, fetch_frame(100, 0, max_bytes=2000)),
            100,
            "partition",
        )
        await idle_session(bench, 1000, seconds)
        await wake_up(bench, seconds)
        bench.logs.abandon()
        for connections in (1, 64, 512):
            await grouped_fsync(Path(place) / f"flush-{connections}", seconds, connections)


async def idle_session(bench: Bench, partitions: int, seconds: float) -> None:
    """A consumer of many idle partitions polls with an incremental session (its wait is left out)."""
    replica = bench.replicas.replica(TOPIC, partitions - 1)
    assert replica is not None
    wanted = []
    for p in range(partitions):
        hosted = bench.replicas.replica(TOPIC, p)
        assert hosted is not None
        wanted.append(
            FetchRequest.FetchPartition(
                partition=p, fetch_offset=hosted.log.log_end_offset, partition_max_bytes=1 << 20
            )
        )
    first = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=55 << 20,
        session_id=0,
        session_epoch=0,
        topics=[FetchRequest.FetchTopic(topic_id=TOPIC_ID, partitions=wanted)],
        forgotten_topics_data=[],
    )
    bench.dispatch(bench.connection, memoryview(bytearray(frame_of(first, 16))))
    session = list(bench.replicas.sessions.sessions)[-1]
    epoch = 0

    def once() -> None:
        nonlocal epoch
        epoch += 1
        bench.dispatch(bench.connection, memoryview(bytearray(fetch_frame(0, 0, (session, epoch)))))

    measure(f"poll of an idle session with {partitions} partitions", seconds, once)

    async def waiting() -> None:
        nonlocal epoch
        epoch += 1
        frame = fetch_frame(0, 0, (session, epoch), max_wait_ms=1)
        bench.connection.answered.clear()
        bench.dispatch(bench.connection, memoryview(bytearray(frame)))
        await bench.connection.answered.wait()

    await waiting()
    began = time.process_time()
    for _ in range(100):
        await waiting()
    print(f"{'the same, waiting: CPU per poll':58} {(time.process_time() - began) * 1e4:9.1f} µs")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="per figure")
    parser.add_argument("--rules", type=int, default=0, help="access rules; 0: no authorizer")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.seconds, arguments.rules))
