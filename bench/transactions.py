"""Transactions beside Apache Kafka, with one librdkafka client each.

- a topic of which half was aborted, transactions of 100 records of 1 KB in turns, read to its end: by a reader of
  what is committed, and by one of everything, which tells what the other's work is;
- transactions of 1, 100 and 10,000 records of 100 bytes over 1, 10 and 100 partitions, one after the other: how many
  a second, and how long a commit takes; and what a bare client waits for, of which nothing is the client's work;
- the same on three brokers with three replicas, where a commit follows the last record at once;
- 10,000 transactional ids that nobody uses: the broker's memory; and 10,000 open ones whose coordinator is killed: how
  long until another broker knows them all (it hears of the death after two seconds, the session with ZooKeeper).
"""

from __future__ import annotations

import statistics
import time

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from bench.bare_commits import bare_commits
from bench.broker import Figures, create_topic
from bench.replicated_transactions import replicated
from bench.systems import System
from bench.transactional_ids import failover, idle

ONE_REPLICA = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
SCANNED = "half-aborted"
SCANNED_MB = 400
SCANNED_RECORD = bytes(1024)
RECORDS_PER_TRANSACTION = 100
WRITTEN = "written"
RECORD = bytes(100)
SIZES = (1, 100, 10_000)
PARTITIONS = (1, 10, 100)
MEASURED_RECORDS = 200_000
MOST_TRANSACTIONS = 200
LIMIT_S = 60.0
IDS = 10_000
AT_MOST_LATE_S = 0.005
"""How much later than it came the end of a scanned topic is noticed."""


def transactional(bootstrap: str, transactional_id: str) -> Producer:
    """Return a producer that may begin a transaction."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions(LIMIT_S)
    return producer


def write_half_aborted(system: System, megabytes: int) -> int:
    """Commit and abort transactions in turns; returns how many records were committed."""
    producer = transactional(system.bootstrap, "writer-of-halves")
    pairs = max(1, megabytes * 1_000_000 // (2 * RECORDS_PER_TRANSACTION * len(SCANNED_RECORD)))
    for _ in range(pairs):
        for aborts in (True, False):
            producer.begin_transaction()
            for _ in range(RECORDS_PER_TRANSACTION):
                producer.produce(SCANNED, SCANNED_RECORD, partition=0)
            if aborts:
                producer.flush(LIMIT_S)  # what is not sent would be dropped
                producer.abort_transaction(LIMIT_S)
            else:
                producer.commit_transaction(LIMIT_S)
    return pairs * RECORDS_PER_TRANSACTION


def scan(system: System, isolation_level: str, records: int) -> Figures:
    """Read the topic to its end; raises RuntimeError when not all that shall be seen is seen."""
    settings = {"bootstrap.servers": system.bootstrap, "group.id": "scan", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": isolation_level, "enable.partition.eof": True})
    consumer.assign([TopicPartition(SCANNED, 0, 0)])  # by its number: OFFSET_BEGINNING costs a pause of half a second
    seen, before, began = 0, system.cpu_seconds(), time.monotonic()
    while time.monotonic() - began < LIMIT_S:
        messages = consumer.consume(10_000, AT_MOST_LATE_S)
        ends = [error.code() for each in messages if (error := each.error()) is not None]
        seen += len(messages) - len(ends)
        if KafkaError._PARTITION_EOF in ends:
            break
    seconds, cpu = time.monotonic() - began, system.cpu_seconds() - before
    consumer.close()
    if seen != records:
        raise RuntimeError(f"{seen} records were read {isolation_level}, not {records}")
    return {"records/s": seen / seconds, "MB/s": seen * len(SCANNED_RECORD) / 1e6 / seconds, "CPU-s": cpu}


def transactions_of(size: int, scale: float) -> int:
    """Return how many transactions of so many records are measured."""
    return max(3, int(scale * min(MOST_TRANSACTIONS, MEASURED_RECORDS // size)))


def transact(system: System, size: int, partitions: int, scale: float) -> Figures:
    """Write transactions of one size, over so many partitions in turns, and commit each."""
    topic = f"{WRITTEN}-{partitions}"
    producer = transactional(system.bootstrap, f"writer-{size}-{partitions}")
    count = transactions_of(size, scale)
    commits = []
    for number in range(-2, count):
        if number == 0:
            before, began = system.cpu_seconds(), time.monotonic()
        producer.begin_transaction()
        for record in range(size):
            producer.produce(topic, RECORD, partition=record % partitions)
        producer.flush(LIMIT_S)
        at = time.monotonic()
        producer.commit_transaction(LIMIT_S)
        commits.append(1e3 * (time.monotonic() - at))
    seconds = time.monotonic() - began
    del commits[:2]
    return {
        "transactions/s": count / seconds,
        "records/s": count * size / seconds,
        "median commit ms": statistics.median(commits),
        "longest commit ms": max(commits),
        "CPU-ms a transaction": 1e3 * (system.cpu_seconds() - before) / count,
    }


def measure(kind: type[System], scale: float) -> dict[str, Figures]:
    """Run every measurement on one broker of a kind; `scale` shrinks the topic and the number of transactions."""
    rows: dict[str, Figures] = {}
    with kind(settings=ONE_REPLICA) as system:
        create_topic(system, SCANNED, 1)
        committed = write_half_aborted(system, max(2, int(SCANNED_MB * scale)))
        for isolation_level, records in (("read_uncommitted", 2 * committed), ("read_committed", committed)):
            scan(system, isolation_level, records)  # once, unmeasured: the page cache is warm for both
            rows[f"half aborted, {isolation_level}"] = scan(system, isolation_level, records)
        for partitions in PARTITIONS:
            create_topic(system, f"{WRITTEN}-{partitions}", partitions)
        for size in SIZES:
            for partitions in PARTITIONS:
                if partitions <= size:
                    row = rows[f"{size:,} records over {partitions} partitions"] = transact(
                        system, size, partitions, scale
                    )
                    count = transactions_of(size, scale)
                    row |= bare_commits(system, f"{WRITTEN}-{partitions}", size, partitions, count, RECORD)
    rows |= replicated(kind, scale, transactional, RECORD)
    ids = max(100, int(IDS * scale))
    with kind(settings=ONE_REPLICA) as system:
        rows[f"{ids:,} idle transactional ids"] = idle(system, ids)
    rows[f"the coordinator of {ids:,} open ones is killed"] = failover(kind, ids)
    return rows
