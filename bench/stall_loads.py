"""Loads that try to make a broker forget its other clients: what one client may ask, what a hostile one does ask.

A load is prepared once on a broker, then run several times, each time for some seconds; it ends at `until`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

from bench.group_members import ClassicGroup
from bench.peers import Pump, ask, connect, framed
from bench.stall_requests import (
    BROKER_RESOURCE,
    MIB,
    SET,
    SNAPPY,
    TOPIC_RESOURCE,
    ZSTD,
    added,
    batch,
    changes,
    commits,
    committed,
    coordinators,
    deletions,
    elections,
    empty_pieces,
    groups,
    groups_to_delete,
    long_names,
    many_batches,
    metadata_by_name,
    moves,
    moves_under_way,
    offsets,
    one_resource,
    topics_settings,
    topics_to_delete,
    topics_to_make,
    transactional_batches,
    unknown_partitions,
    verified,
)
from bench.systems import System
from kbroker.protocol.messages.api_versions import ApiVersionsRequest
from kbroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
)
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.offsets import ListOffsetsRequest
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest

HUGE = (1 << 31) - 1
WIDE_PARTITIONS = 2_000

PLAIN, SLOW_SYNCS, SLOW_READS = "", "one sync in 20 takes 200 ms", "256 KiB from the disk take 20 ms"

Step = Callable[[System, float], None]
Run = Callable[[System, float, float], object]


@dataclass(frozen=True)
class Load:
    """What a broker has to bear."""

    name: str
    run: Run
    """(system, scale, until)"""
    prepare: Step = field(default=lambda system, scale: None)
    on_kafka: bool = True
    disk: str = PLAIN


def count(number: int, scale: float) -> int:
    """Scale a number, to one at least."""
    return max(1, int(number * scale))


# -- topics, batches ----------------------------------------------------------------------------------------------


def create(system: System, names: list[str], partitions: int, **configs: str) -> None:
    """Create topics, a thousand in one request."""
    settings = [
        CreateTopicsRequest.CreatableTopicConfig(name=name.replace("_", "."), value=value)
        for name, value in configs.items()
    ]
    for start in range(0, len(names), 1000):
        topics = [
            CreateTopicsRequest.CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=settings
            )
            for name in names[start : start + 1000]
        ]
        ask(system.port, CreateTopicsRequest(topics=topics, timeout_ms=110_000), 4)


def produce(topic: str, partition: int, records: bytes, acks: int = 1) -> ProduceRequest:
    """Return a request with one batch."""
    data = ProduceRequest.PartitionProduceData(index=partition, records=records)
    topic_data = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic_data])


def set_topic(system: System, topic: str, **configs: str) -> None:
    """Set a topic's overrides."""
    changes = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=name.replace("_", "."), config_operation=SET, value=value)
        for name, value in configs.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configs=changes
    )
    ask(system.port, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 0)


# -- small and large frames ---------------------------------------------------------------------------------------


def nothing(system: System, scale: float, until: float) -> None:
    """Let the honest client be alone."""
    time.sleep(until - time.monotonic())


def small_frames(system: System, scale: float, until: float) -> None:
    """Fill the sockets of 50 connections with ApiVersions."""
    frames = framed(ApiVersionsRequest(), 0) * 1000
    Pump(system.port, [frames] * 50).run(until)


def announcements(system: System, scale: float, until: float) -> None:
    """Announce a MiB with five bytes, on many connections."""
    peers = [connect(system.port) for _ in range(count(1000, scale))]
    for peer in peers:
        peer.sendall(MIB.to_bytes(4, "big") + b"\0")
    time.sleep(max(0.0, until - time.monotonic()))
    for peer in peers:
        peer.close()


def idle_connections(system: System, scale: float, until: float) -> None:
    """Connect five thousand times, ask once each, and say nothing more."""
    peers = []
    frame = framed(ApiVersionsRequest(), 0)
    for _ in range(count(5000, scale)):
        peers.append(connect(system.port))
        peers[-1].sendall(frame)
    time.sleep(max(0.0, until - time.monotonic()))
    for peer in peers:
        peer.close()


def comings_and_goings(system: System, scale: float, until: float) -> None:
    """Connect and leave, as fast as that goes."""
    while time.monotonic() < until:
        for peer in [connect(system.port) for _ in range(50)]:
            peer.close()


def repeated(request: Callable[[int], object], version: int, number: int, connections: int = 4) -> Run:
    """Send one large request again and again; `request` makes it of a number of elements."""

    def run(system: System, scale: float, until: float) -> None:
        frame = framed(request(count(number, scale)), version)  # type: ignore[arg-type]
        Pump(system.port, [frame] * connections, in_flight=2).run(until)

    return run


def given_up(request: Callable[[int], object], version: int, number: int, connections: int) -> Run:
    """Send one large request on many connections, and close all of them while the broker works on some."""

    def run(system: System, scale: float, until: float) -> None:
        frame = framed(request(number), version)  # type: ignore[arg-type]
        while time.monotonic() < until:
            peers = [connect(system.port) for _ in range(count(connections, scale))]
            senders = [Thread(target=peer.sendall, args=(frame,)) for peer in peers]
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join()
            time.sleep(0.5)
            for peer in peers:
                peer.close()

    return run


# -- requests of a few bytes that ask for much --------------------------------------------------------------------


def huge_topics(system: System, scale: float, until: float) -> None:
    """Ask for topics of 2^31-1 partitions."""
    topic = CreateTopicsRequest.CreatableTopic(
        name="huge", num_partitions=HUGE, replication_factor=1, assignments=[], configs=[]
    )
    more = CreatePartitionsRequest.CreatePartitionsTopic(name="t-0", count=HUGE, assignments=None)
    frames = [
        framed(CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=True), 4),
        framed(CreatePartitionsRequest(topics=[more], timeout_ms=1000, validate_only=True), 1),
    ]
    Pump(system.port, frames, in_flight=1).run(until)


def same_partition(system: System, scale: float, until: float) -> None:
    """Wait in one Fetch for one partition, named thousands of times, while records come."""
    fetch = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
    topic = FetchRequest.FetchTopic(topic="t-0", partitions=[fetch] * count(50_000, scale))
    waiting = framed(FetchRequest(max_wait_ms=HUGE, min_bytes=HUGE, topics=[topic]), 11)
    records = framed(produce("t-0", 0, batch(1, 100)), 8)
    Pump(system.port, [waiting, records, records], in_flight=1).run(until)


def make_bombs(system: System, scale: float) -> None:
    """Store batches that unpack to a hundred times their size."""
    create(system, ["bombs"], 1, max_message_bytes=str(20 * MIB))
    bomb = batch(count(64, scale), MIB, ZSTD)
    for _ in range(4):
        ask(system.port, produce("bombs", 0, bomb), 8)


def times_in_bombs(system: System, scale: float, until: float) -> None:
    """Look for a time inside such batches."""
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=1_600_000_000_000)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="bombs", partitions=[partition])
    frame = framed(ListOffsetsRequest(replica_id=-1, topics=[topic]), 5)
    Pump(system.port, [frame] * 4, in_flight=1).run(until)


# -- heavy, but honest --------------------------------------------------------------------------------------------


def make_recompressed(system: System, scale: float) -> None:
    """Make a topic whose batches are compressed by the broker."""
    create(system, ["recompressed"], 8, compression_type="gzip")


def recompressed(system: System, scale: float, until: float) -> None:
    """Let eight producers send what has to be compressed anew."""
    records = batch(900, 1000, SNAPPY)
    frames = [framed(produce("recompressed", partition, records), 8) for partition in range(8)]
    Pump(system.port, frames, in_flight=5).run(until)


def make_flushed(system: System, scale: float) -> None:
    """Make a topic that is flushed before each acknowledgement."""
    create(system, ["flushed"], 8, flush_messages="1")


def flushed(system: System, scale: float, until: float) -> None:
    """Produce with a flush each."""
    frames = [framed(produce("flushed", partition, batch(1, 1000)), 8) for partition in range(8)]
    Pump(system.port, frames, in_flight=2).run(until)


def fill_cold(system: System, scale: float) -> None:
    """Store what is to be read from a slow disk."""
    create(system, ["cold"], 4, segment_bytes=str(32 * MIB))
    frames = [framed(produce("cold", partition, batch(900, 1000)), 8) for partition in range(4)]
    Pump(system.port, frames, in_flight=5, times=count(1000, scale)).run(time.monotonic() + 60)


def cold_readers(system: System, scale: float, until: float) -> None:
    """Read from the beginning, one reader for each partition, while others produce."""
    readers = [Thread(target=read_from_begin, args=(system.port, each, until)) for each in range(4)]
    for reader in readers:
        reader.start()
    frames = [framed(produce("t-0", 0, batch(1, 1000)), 8)] * 2
    Pump(system.port, frames, in_flight=1).run(until)
    for reader in readers:
        reader.join()


def read_from_begin(port: int, partition: int, until: float) -> None:
    """Fetch one partition, offset by offset of 900 records, each answer read to its end."""
    offset = 0
    while time.monotonic() < until:
        wanted = FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=MIB)
        topic = FetchRequest.FetchTopic(topic="cold", partitions=[wanted])
        got = ask(port, FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=MIB, topics=[topic]), 11)
        offset = offset + 900 if len(got) > 1000 else 0


def make_rolling(system: System, scale: float) -> None:
    """Let a hundred thousand producers write to one partition."""
    create(system, ["rolling"], 1)
    producers = count(100_000, scale)
    shares = range(0, producers, max(1, producers // 16))
    frames = [
        b"".join(
            framed(produce("rolling", 0, batch(1, 10, producer_id=each, producer_epoch=0, base_sequence=0)), 8)
            for each in range(start + 1_000_000, min(start + producers // 16, producers) + 1_000_000)
        )
        for start in shares
    ]
    Pump(system.port, frames, times=producers - len(frames)).run(time.monotonic() + 60)
    set_topic(system, "rolling", segment_bytes=str(MIB))


def rolling(system: System, scale: float, until: float) -> None:
    """Roll its segments, one after the other."""
    frame = framed(produce("rolling", 0, batch(900, 1000)), 8)
    Pump(system.port, [frame], in_flight=2).run(until)


def make_many(system: System, scale: float) -> None:
    """Make ten thousand topics, with something in each."""
    names = [f"many-{each}" for each in range(count(10_000, scale))]
    create(system, names, 1, segment_bytes="2000")
    records = batch(1, 1000)
    for start in range(0, len(names), 500):
        topics = [
            ProduceRequest.TopicProduceData(
                name=name, partition_data=[ProduceRequest.PartitionProduceData(index=0, records=records)]
            )
            for name in names[start : start + 500]
        ]
        for _ in range(3):
            ask(system.port, ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), 8)


def retention_due(system: System, scale: float, until: float) -> None:
    """Let the old segments of all of them be due at once: the records are of long ago."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER_RESOURCE,
        resource_name="",
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(name="log.retention.ms", config_operation=SET, value="1000")
        ],
    )
    ask(system.port, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 0)
    nothing(system, scale, until)


def all_topics(system: System, scale: float, until: float) -> None:
    """Ask for all of them, a thousand times in one go."""
    frame = framed(MetadataRequest(topics=None, allow_auto_topic_creation=False), 9)
    Pump(system.port, [frame * 1000], times=count(1000, scale)).run(until)


def joining(system: System, scale: float, until: float) -> None:
    """Let a group of a thousand members form."""

    ask(system.port, FindCoordinatorRequest(key="joining", key_type=0), 3)  # makes the groups' topic

    async def form() -> None:
        group = ClassicGroup(f"joining-{time.monotonic_ns()}", "t-0", count(1000, scale))
        await group.connect(system.port)
        await group.join()
        await group.close()

    asyncio.run(form())


def subscribers(group: str, topics: list[str], members: int) -> list[bytes]:
    """The first heartbeats of members of the newer protocol."""
    common: dict[str, Any] = {"member_epoch": 0, "rebalance_timeout_ms": 10_000, "subscribed_topic_names": topics}
    common |= {"group_id": group, "topic_partitions": []}
    return [framed(ConsumerGroupHeartbeatRequest(member_id=str(each), **common), 1) for each in range(members)]


def subscribing(system: System, scale: float, until: float) -> str:
    """Let four hundred members join a group of the newer protocol, all of which want two thousand topics."""
    ask(system.port, FindCoordinatorRequest(key="subscribing", key_type=0), 3)
    group = f"subscribing-{time.monotonic_ns()}"
    joins = subscribers(group, [f"t-{each}" for each in range(count(2000, scale))], count(400, scale))
    Pump(system.port, [b"".join(joins[first::20]) for first in range(20)], times=len(joins)).run(until)
    return group


def described(system: System, scale: float, until: float) -> None:
    """Let four ask again and again for all that is known of such a group."""
    group = subscribing(system, scale, until)
    wanted = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    Pump(system.port, [framed(wanted, 0)] * 4, in_flight=1).run(until)


def make_large(system: System, scale: float) -> None:
    """One topic of very many partitions."""
    create(system, ["large"], count(10_000, scale))


def sharing(system: System, scale: float, until: float) -> None:
    """Let three members share it, one after the other."""
    ask(system.port, FindCoordinatorRequest(key="sharing", key_type=0), 3)
    for heartbeat in subscribers(f"sharing-{time.monotonic_ns()}", ["large"], 3):
        Pump(system.port, [heartbeat], in_flight=1, times=1).run(until)


# -- small requests for many partitions, from many connections ----------------------------------------------------


def wide_produce(connections: int, partitions: int) -> list[bytes]:
    """One batch for each of so many partitions, each connection beginning elsewhere."""
    records = batch(1, 10)
    return [
        framed(
            ProduceRequest(
                acks=1,
                timeout_ms=30_000,
                topic_data=[
                    ProduceRequest.TopicProduceData(
                        name="wide",
                        partition_data=[
                            ProduceRequest.PartitionProduceData(
                                index=(first * 37 + each) % WIDE_PARTITIONS, records=records
                            )
                            for each in range(partitions)
                        ],
                    )
                ],
            ),
            8,
        )
        for first in range(connections)
    ]


def wide_fetch(min_bytes: int) -> bytes:
    """All partitions of the wide topic."""
    wanted = [
        FetchRequest.FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=200)
        for each in range(WIDE_PARTITIONS)
    ]
    topic = FetchRequest.FetchTopic(topic="wide", partitions=wanted)
    return framed(FetchRequest(max_wait_ms=60_000, min_bytes=min_bytes, max_bytes=HUGE, topics=[topic]), 11)


def make_wide(system: System, scale: float) -> None:
    """Make a topic of many partitions, each with a record."""
    create(system, ["wide"], WIDE_PARTITIONS)
    Pump(system.port, wide_produce(1, WIDE_PARTITIONS), in_flight=1, times=1).run(time.monotonic() + 30)


def wide_producers(system: System, scale: float, until: float) -> None:
    """Produce to hundreds of partitions at a time."""
    Pump(system.port, wide_produce(count(50, scale), 500), in_flight=2).run(until)


def wide_readers(system: System, scale: float, until: float) -> None:
    """Read from all partitions at a time."""
    Pump(system.port, [wide_fetch(0)] * count(20, scale), in_flight=1).run(until)


def wide_waiters(system: System, scale: float, until: float) -> None:
    """Wait for more than there is, while it becomes more in hundreds of partitions at a time."""
    waiting = [wide_fetch(HUGE)] * count(50, scale)
    Pump(system.port, waiting + wide_produce(1, 500), in_flight=1).run(until)


def make_topics(system: System, scale: float) -> None:
    """Make what several loads need."""
    create(system, [f"t-{each}" for each in range(count(2000, scale))], 1)


LOADS = (
    Load("nothing", nothing, make_topics),
    Load("16 KB of small frames on 50 connections", small_frames),
    Load("1,000 connections announce a MiB each", announcements),
    Load("connections come and go", comings_and_goings),
    Load("5,000 idle connections", idle_connections),
    Load("Metadata of 1,000,000 names", repeated(metadata_by_name, 8, 1_000_000)),
    Load("Metadata of 45,000 names", repeated(metadata_by_name, 8, 45_000)),
    Load("DescribeConfigs, one resource 45,000 times", repeated(one_resource, 2, 45_000), on_kafka=False),
    Load("DescribeConfigs of 2,000 topics", repeated(topics_settings, 2, 2_000)),
    Load("ListOffsets of 45,000 partitions", repeated(offsets, 5, 45_000)),
    Load("OffsetCommit of 45,000 partitions", repeated(commits, 7, 45_000)),
    Load("OffsetFetch of 500,000 partitions", repeated(committed, 5, 500_000)),
    Load("FindCoordinator of 45,000 groups", repeated(coordinators, 4, 45_000)),
    Load("DescribeGroups of 45,000 groups", repeated(groups, 4, 45_000)),
    Load("DeleteRecords of 45,000 partitions", repeated(deletions, 1, 45_000)),
    Load("DeleteGroups of 45,000 groups", repeated(groups_to_delete, 1, 45_000)),
    Load("CreateTopics of 20,000 topics, only checked", repeated(topics_to_make, 5, 20_000)),
    Load("DeleteTopics of 45,000 topics", repeated(topics_to_delete, 4, 45_000)),
    Load("ElectLeaders of 45,000 partitions", repeated(elections, 1, 45_000)),
    Load("AlterPartitionReassignments of 24,000 partitions", repeated(moves, 0, 24_000)),
    Load("IncrementalAlterConfigs, 45,000 of one topic", repeated(changes, 0, 45_000)),
    Load("Produce of 30,000 batches", repeated(many_batches, 7, 30_000)),
    Load("Fetch of 45,000 unknown partitions", repeated(unknown_partitions, 11, 45_000)),
    Load("ListPartitionReassignments of 47,000 partitions", repeated(moves_under_way, 0, 47_000, connections=10)),
    Load("AddPartitionsToTxn verifies 190,000 partitions", repeated(verified, 5, 190_000, connections=10)),
    Load("AddPartitionsToTxn of 190,000 partitions", repeated(added, 3, 190_000, connections=10)),
    Load("Produce to 900 topics with names of 32 KB", repeated(long_names, 9, 900)),
    Load("Produce of 30,000 batches with a transactional id", repeated(transactional_batches, 9, 30_000)),
    Load("100 give up ListOffsets of 47,000 partitions", given_up(offsets, 5, 47_000, 100)),
    Load("topics of 2^31-1 partitions", huge_topics, on_kafka=False),
    Load("Fetch of one partition 50,000 times", same_partition, on_kafka=False),
    Load("ListOffsets by time in bombs", times_in_bombs, make_bombs),
    Load("8 producers of recompressed batches", recompressed, make_recompressed),
    Load("a roll with 100,000 producer ids", rolling, make_rolling),
    Load("a group of 1,000 members joins", joining),
    Load("400 members of 2,000 topics join", subscribing, on_kafka=False),
    Load("a group of 400 members of 2,000 topics is described", described, on_kafka=False),
    Load("members of a topic of 10,000 partitions join", sharing, make_large, on_kafka=False),
    Load("Metadata of 10,000 topics, 1,000 times", all_topics, make_many),
    Load("retention of 10,000 partitions is due", retention_due),
    Load("Produce of 500 batches on 50 connections", wide_producers, make_wide),
    Load("Fetch of 2,000 partitions on 20 connections", wide_readers),
    Load("90 batches of empty gzip members", repeated(empty_pieces, 7, 90)),
    Load("50 Fetches wait for 2,000 partitions", wide_waiters, on_kafka=False),
    Load("flushes", flushed, make_flushed, disk=SLOW_SYNCS),
    Load("cold readers", cold_readers, fill_cold, disk=SLOW_READS),
)
