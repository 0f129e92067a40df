"""The broker beside Apache Kafka: start, memory, CPU per GB, throughput, latency, many partitions, fsync.

Each system runs alone, one after the other, with the same clients and the same load; the rows give both figures and
their ratio (kbroker / Kafka: below 1 is better for costs, above 1 for rates). Fresh page cache costs the kernel CPU on
both sides, so a load of the same size runs first, unmeasured.
"""

from __future__ import annotations

import asyncio
import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.systems import System, run_java
from kbroker.client.connection import Connection
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceRequest
from protocol.records.builder import BatchBuilder

RECORD = 1024
BATCH = 131_072
Figures = dict[str, float]
SOURCES = Path(__file__).parent


def create_topic(system: System, name: str, partitions: int, **config: str) -> float:
    """Create a topic with confluent-kafka's admin client; returns the seconds until it was confirmed."""
    admin = AdminClient({"bootstrap.servers": system.bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    began = time.monotonic()
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
    admin.create_topics([topic], operation_timeout=60, request_timeout=90)[name].result(120)
    return time.monotonic() - began


def produce(system: System, topic: str, records: int, **properties: str) -> Figures:
    """Run Kafka's ProducerPerformance; returns MB/s, records/s and the broker's CPU seconds per GB."""
    settings = {"bootstrap.servers": system.bootstrap, "acks": "all", "batch.size": str(BATCH), "linger.ms": "5"}
    settings |= {key.replace("_", "."): value for key, value in properties.items()}
    arguments = ["--topic", topic, "--num-records", str(records), "--record-size", str(RECORD), "--throughput", "-1"]
    before = system.cpu_seconds()
    printed = run_java(
        "org.apache.kafka.tools.ProducerPerformance",
        *arguments,
        "--producer-props",
        *(f"{key}={value}" for key, value in settings.items()),
    )
    cpu = system.cpu_seconds() - before
    last = printed.strip().splitlines()[-1]
    match = re.search(r"records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\)", last)
    assert match, f"no result line: {last}"
    return {"records/s": float(match[1]), "MB/s": float(match[2]), "CPU-s/GB": cpu / (records * RECORD / 1e9)}


def consume(system: System, topic: str, records: int) -> Figures:
    """Read the topic with the Java consumer; returns MB/s and the broker's CPU seconds per GB."""
    before = system.cpu_seconds()
    printed = run_java(str(SOURCES / "AssignConsumer.java"), system.bootstrap, topic, str(records))
    cpu = system.cpu_seconds() - before
    messages, size, milliseconds = (int(word) for word in printed.split()[-3:])
    assert messages >= records, f"{messages} of {records} records came"
    return {"MB/s": size / 1e6 / (milliseconds / 1e3), "CPU-s/GB": cpu / (size / 1e9)}


def idle(system: System, seconds: float = 10) -> Figures:
    """Return what an idle broker uses of one core, in percent."""
    before = system.cpu_seconds()
    time.sleep(seconds)
    return {"% of a core": 100 * (system.cpu_seconds() - before) / seconds}


def latency(system: System, records: int = 10_000) -> Figures:
    """Run Kafka's EndToEndLatency (one 100-byte record at a time, acks=all); returns milliseconds."""
    create_topic(system, "latency", 1)
    printed = run_java(
        "org.apache.kafka.tools.EndToEndLatency", system.bootstrap, "latency", str(records), "all", "100"
    )
    average = re.search(r"Avg latency: ([\d.]+)", printed)
    percentiles = re.search(r"50th = (\d+), 99th = (\d+), 99.9th = (\d+)", printed)
    assert average, printed
    assert percentiles, printed
    return {"average ms": float(average[1]), "median ms": float(percentiles[1]), "p99 ms": float(percentiles[2])}


def spread(system: System, topic: str, partitions: int, records: int = 300_000) -> Figures:
    """Send records of 1 KB to random partitions with confluent-kafka; returns records/s until all are acknowledged."""
    failures: list[str] = []

    def delivered(error: object, _: object) -> None:
        if error:
            failures.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": system.bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    chooser, value = random.Random(7), bytes(RECORD)
    targets = [chooser.randrange(partitions) for _ in range(records)]
    began = time.monotonic()
    for target in targets:
        while True:
            try:
                producer.produce(topic, value, partition=target, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    left = producer.flush(300)
    seconds = time.monotonic() - began
    assert left == 0, f"{left} records were not acknowledged"
    assert not failures, failures[:3]
    return {"records/s": records / seconds}


def flushed(system: System, topic: str, records: int, batch_size: int) -> Figures:
    """Produce to a topic with flush.messages=1 with the Java tool's own way of batching; returns records/s."""
    return {"records/s": produce(system, topic, records, batch_size=str(batch_size), linger_ms="0")["records/s"]}


def flushed_by_many(system: System, topic: str, producers: int = 64, seconds: float = 5) -> Figures:
    """Let many connections send one record at a time to one flushed partition; returns acknowledged records/s."""
    builder = BatchBuilder(4 * RECORD)
    builder.append(None, bytes(RECORD))
    batch = bytes(builder.build())
    partition = ProduceRequest.PartitionProduceData(index=0, records=batch)
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])

    async def send_until(deadline: float) -> int:
        connection = await Connection.open("127.0.0.1", system.port)
        count = 0
        while time.monotonic() < deadline:
            answer = await connection.request(request, 8)
            assert answer.responses[0].partition_responses[0].error_code is ErrorCode.NONE
            count += 1
        await connection.close()
        return count

    async def run() -> int:
        deadline = time.monotonic() + seconds
        return sum(await asyncio.gather(*(send_until(deadline) for _ in range(producers))))

    asyncio.run(run())  # warm up
    return {"records/s": asyncio.run(run()) / seconds}


def crash_start(system: System) -> Figures:
    """Kill -9 the broker and start it again; returns the seconds until the first metadata answer.

    That includes what is left of the dead broker's ZooKeeper session.
    """
    system.stop(signal.SIGKILL)
    return {"seconds": system.start()}


def measure(system: System, scale: float) -> dict[str, Figures]:
    """Run every measurement on one system; `scale` shrinks the loads (1 = the published ones)."""
    records = int(1_500_000 * scale)
    rows: dict[str, Figures] = {"start": {"seconds": system.start_seconds}}
    rows["memory, idle"] = {"MB": system.resident_mb()}
    time.sleep(3)
    rows["idle"] = idle(system)
    create_topic(system, "load", 8)
    produce(system, "load", records)
    rows["produce 1 KB, 8 partitions, acks=all"] = produce(system, "load", records)
    consume(system, "load", 2 * records)
    rows["consume 1 KB, 8 partitions"] = consume(system, "load", 2 * records)
    rows["memory, after load"] = {"MB": system.resident_mb()}
    rows["end-to-end latency, 100 bytes"] = latency(system)
    create_topic(system, "flushed", 8, flush_messages="1")
    create_topic(system, "flushed-one", 1, flush_messages="1")
    few, many = int(20_000 * scale), int(100_000 * scale)
    rows["fsync before each answer, 1 partition, one record a batch"] = flushed(system, "flushed-one", few, 1)
    rows["fsync before each answer, 1 partition, 64 producers"] = flushed_by_many(system, "flushed-one")
    rows["fsync before each answer, 1 partition, 16 KB batches"] = flushed(system, "flushed-one", many, 16_384)
    rows["fsync before each answer, 8 partitions, 16 KB batches"] = flushed(system, "flushed", many, 16_384)
    rows["300,000 records over 8 partitions"] = spread(system, "load", 8, int(300_000 * scale))
    rows["create 4,000 partitions"] = {"seconds": create_topic(system, "many", 4_000)}
    rows["300,000 records over 4,000 partitions"] = spread(system, "many", 4_000, int(300_000 * scale))
    create_topic(system, "more", 6_000)
    rows["memory, 10,000 partitions"] = {"MB": system.resident_mb()}
    rows["start after kill -9, 10,000 partitions"] = crash_start(system)
    return rows


Step = Callable[[System, float], dict[str, Figures]]
