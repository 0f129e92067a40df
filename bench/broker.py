"""The broker beside Apache Kafka: start, memory, CPU per GB, throughput, latency, many partitions.

Each system runs alone, one after the other, with the same clients and the same load; the rows give both figures and
their ratio (kbroker / Kafka: below 1 is better for costs, above 1 for rates). Fresh page cache costs the kernel CPU on
both sides, so a load of the same size runs first, unmeasured.
"""

from __future__ import annotations

import random
import re
import signal
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.systems import Measured, System, Unfinished, run_java

RECORD = 1024
BATCH = 131_072
Figures = dict[str, float]
SOURCES = Path(__file__).parent
CRASH_START_LIMIT_S = 900
"""Kafka takes most of a minute on a machine that is quiet."""


def create_topic(system: Measured, name: str, partitions: int, replicas: int = 1, **config: str) -> float:
    """Create a topic with confluent-kafka's admin client; returns the seconds until it was confirmed."""
    admin = AdminClient({"bootstrap.servers": system.bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    began = time.monotonic()
    topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=settings)
    admin.create_topics([topic], operation_timeout=240, request_timeout=250)[name].result(300)
    return time.monotonic() - began


def produce(system: Measured, topic: str, records: int, **properties: str) -> Figures:
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


def consume(system: Measured, topic: str, records: int) -> Figures:
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


def latency(system: Measured, records: int = 10_000, replicas: int = 1) -> Figures:
    """Run Kafka's EndToEndLatency (one 100-byte record at a time, acks=all); returns milliseconds."""
    create_topic(system, "latency", 1, replicas)
    printed = run_java(
        "org.apache.kafka.tools.EndToEndLatency", system.bootstrap, "latency", str(records), "all", "100"
    )
    average = re.search(r"Avg latency: ([\d.]+)", printed)
    percentiles = re.search(r"50th = (\d+), 99th = (\d+), 99.9th = (\d+)", printed)
    assert average, printed
    assert percentiles, printed
    return {"average ms": float(average[1]), "median ms": float(percentiles[1]), "p99 ms": float(percentiles[2])}


def spread(system: Measured, topic: str, partitions: int, records: int = 300_000) -> Figures:
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


def crash_start(system: System) -> Figures:
    """Kill -9 the broker and start it again; returns the seconds until the first metadata answer.

    That includes what is left of the dead broker's ZooKeeper session.
    """
    system.stop(signal.SIGKILL)
    return {"seconds": system.start(CRASH_START_LIMIT_S)}


def measure(kind: type[System], scale: float) -> dict[str, Figures]:
    """Run every measurement on one system; `scale` shrinks the loads (1 = the published ones)."""
    rows: dict[str, Figures] = {}
    with kind() as system:
        try:
            fill(rows, system, scale)
        except Exception as error:
            raise Unfinished(rows) from error
    return rows


def fill(rows: dict[str, Figures], system: System, scale: float) -> None:
    """Run every measurement on a running broker."""
    records = int(1_500_000 * scale)
    rows["start"] = {"seconds": system.start_seconds}
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
    rows["300,000 records over 8 partitions"] = spread(system, "load", 8, int(300_000 * scale))
    rows["create 4,000 partitions"] = {"seconds": create_topic(system, "many", 4_000)}
    rows["300,000 records over 4,000 partitions"] = spread(system, "many", 4_000, int(300_000 * scale))
    create_topic(system, "more", 6_000)
    rows["memory, 10,000 partitions"] = {"MB": system.resident_mb()}
    rows["start after kill -9, 10,000 partitions"] = crash_start(system)
