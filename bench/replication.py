"""Three brokers on one machine beside Apache Kafka: throughput, latency, failover, shutdown, catching up.

Replication factor 3, min.insync.replicas 2, acks=all, session timeout 2 s. What is asked of both:

- writes: Kafka's ProducerPerformance and EndToEndLatency; CPU is that of all three brokers;
- many partitions: 1,000 of three replicas created; the controller, which leads a third of them, stopped in order
  under load (errors, longest wait for an acknowledgement), then killed: the time until each partition has acknowledged
  a write;
- a follower that missed all of a load: the rate at which it catches up, from its start to its return to the ISR.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable

from confluent_kafka import Producer

from bench.broker import RECORD, Figures, create_topic, latency, produce
from bench.clusters import SIZE, Cluster
from bench.systems import System
from kbroker.client.connection import Connection
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.protocol.records.builder import BatchBuilder

MANY = 1_000
FAILOVER_LIMIT_S = 60.0
ROUND_S = 0.05
SEND_EVERY_S = 0.004
# A client that is not the slowest part of a move: on NOT_LEADER it asks and sends again at once.
EAGER = {
    "enable.idempotence": True,
    "linger.ms": 0,
    "retry.backoff.ms": 5,
    "topic.metadata.refresh.fast.interval.ms": 5,
    "reconnect.backoff.ms": 5,
    "log_level": 0,
}


def creation(cluster: Cluster, topic: str, partitions: int) -> Figures:
    """Create a topic of many partitions; returns the seconds until it was confirmed and until all are in sync."""
    seconds = create_topic(cluster, topic, partitions, SIZE)
    return {"seconds": seconds, "seconds until in sync": seconds + cluster.until_in_sync(topic)}


class Writes:
    """A producer that sends to one partition after the other, one every 4 ms, and notes what it waits for."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.waits: list[float] = []
        self.errors: list[str] = []
        self._topic = topic
        self._partitions = partitions
        self._producer = Producer({"bootstrap.servers": bootstrap, **EAGER})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Writes:
        """Return once every partition has been written to."""
        self._thread.start()
        while len(self.waits) < self._partitions and self._thread.is_alive():
            time.sleep(0.01)
        self.waits.clear()
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for what is on its way."""
        self._stop.set()
        self._thread.join(120)

    def _run(self) -> None:
        number, due = 0, time.monotonic()
        while not self._stop.is_set():
            self._producer.produce(
                self._topic, b"x" * 100, partition=number % self._partitions, on_delivery=self._noting()
            )
            number += 1
            due = max(due + SEND_EVERY_S, time.monotonic() - 1)
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)
        self._producer.flush(60)

    def _noting(self) -> Callable[[object, object], None]:
        began = time.monotonic()

        def delivered(error: object, _: object) -> None:
            self.waits.append(time.monotonic() - began)
            if error:
                self.errors.append(str(error))

        return delivered


def planned_shutdown(cluster: Cluster, topic: str, partitions: int) -> Figures:
    """Stop the controller in order under load; returns errors and the longest wait, then starts it again."""
    stopped = cluster.brokers[cluster.controller()]
    with Writes(cluster.bootstrap, topic, partitions) as writes:
        time.sleep(2)
        before = max(writes.waits)
        writes.waits.clear()
        began = time.monotonic()
        stopped.stop()
        seconds = time.monotonic() - began
        time.sleep(1)
    figures = {
        "errors": float(len(writes.errors)),
        "longest wait ms": 1e3 * max(writes.waits),
        "longest wait before ms": 1e3 * before,
        "seconds": seconds,
    }
    stopped.start()
    cluster.until_in_sync(topic)
    cluster.balance(topic)
    return figures


def failover(cluster: Cluster, topic: str) -> Figures:
    """Kill the controller; returns the seconds until every partition has acknowledged a write, then starts it again."""
    killed = cluster.brokers[cluster.controller()]
    pending = set(cluster.leaders(topic))
    share = sum(leader == killed.broker_id for leader, _ in cluster.leaders(topic).values())
    began = time.monotonic()
    killed.stop(signal.SIGKILL)
    asyncio.run(_until_written([broker.port for broker in cluster.running.values()], topic, pending))
    figures = {"seconds": time.monotonic() - began, "partitions it led": float(share)}
    killed.start()
    cluster.until_in_sync(topic)
    return figures


async def _until_written(ports: list[int], topic: str, pending: set[int]) -> None:
    """Write to all partitions through whoever leads them, until each has acknowledged a record."""
    async with asyncio.timeout(FAILOVER_LIMIT_S), asyncio.TaskGroup() as group:
        in_flight: set[int] = set()
        ask = await Connection.open("127.0.0.1", ports[0])
        wanted = [MetadataRequest.MetadataRequestTopic(topic_id=ZERO_UUID, name=topic)]
        while pending:
            answer = await ask.request(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 9)
            addresses = {each.node_id: each.port for each in answer.brokers if each.port in ports}
            by_port: dict[int, set[int]] = {}
            for each in answer.topics[0].partitions:
                if each.partition_index in pending - in_flight and each.leader_id in addresses:
                    by_port.setdefault(addresses[each.leader_id], set()).add(each.partition_index)
            for port, partitions in by_port.items():
                in_flight |= partitions
                group.create_task(_write_once(port, topic, partitions, pending, in_flight))
            await asyncio.sleep(ROUND_S)
        await ask.close()


async def _write_once(port: int, topic: str, partitions: set[int], pending: set[int], in_flight: set[int]) -> None:
    """Send a record to each partition; what is acknowledged is no longer pending."""
    builder = BatchBuilder(RECORD)
    builder.append(None, b"alive")
    batch = bytes(builder.build())
    data = [ProduceRequest.PartitionProduceData(index=each, records=batch) for each in partitions]
    topic_data = [ProduceRequest.TopicProduceData(name=topic, partition_data=data)]
    connection = await Connection.open("127.0.0.1", port)
    answer = await connection.request(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topic_data), 8, timeout=60)
    for each in answer.responses[0].partition_responses:
        if each.error_code is ErrorCode.NONE:
            pending.discard(each.index)
    in_flight -= partitions
    await connection.close()


def catching_up(cluster: Cluster, topic: str, records: int) -> Figures:
    """Stop broker 3, write, start it again; returns the rate at which it came back, from its start to the ISR."""
    create_topic(cluster, topic, 8, SIZE)
    late = cluster.brokers[SIZE]
    late.stop()
    produce(cluster, topic, records)
    late.start()
    before = cluster.cpu_seconds()
    seconds = cluster.until_in_sync(topic)
    gigabytes = records * RECORD / 1e9
    return {"MB/s": 1e3 * gigabytes / seconds, "CPU-s/GB": (cluster.cpu_seconds() - before) / gigabytes}


def measure(kind: type[System], scale: float) -> dict[str, Figures]:
    """Run every measurement on three brokers of one kind; `scale` shrinks the loads, not the number of partitions."""
    records = int(1_000_000 * scale)
    rows: dict[str, Figures] = {}
    with Cluster(kind) as cluster:
        create_topic(cluster, "load", 8, SIZE)
        produce(cluster, "load", records)  # warm up
        rows["produce 1 KB, 8 partitions, three replicas, acks=all"] = produce(cluster, "load", records)
        rows["end to end, 100 bytes, three replicas"] = latency(cluster, max(1_000, int(10_000 * scale)), SIZE)
        rows["a follower catches up"] = catching_up(cluster, "late", records)
        rows[f"create {MANY} partitions of three replicas"] = creation(cluster, "many", MANY)
        rows[f"planned shutdown of the controller, {MANY} partitions"] = planned_shutdown(cluster, "many", MANY)
        rows[f"kill -9 of the controller, {MANY} partitions"] = failover(cluster, "many")
    return rows
