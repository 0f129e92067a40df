"""Transactions as their users wait for them: on three brokers, three replicas of all. For bench/transactions.py.

`commit_transaction()` follows the last `produce()` at once: what it takes has the sending of the records in it, their
replication, and that of the decision. Several producers take part one after the other, each with another coordinator
and other leaders, so that it matters little which of them lie on one broker.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from confluent_kafka import Producer

from bench.broker import Figures, create_topic
from bench.clusters import SIZE, Cluster
from bench.systems import System

TOPIC = "replicated"
SHAPES = ((1, 1), (100, 1), (100, 10), (100, 100), (10_000, 10))
"""Records of a transaction, and the partitions that they are spread over."""
PRODUCERS = 6
WARM_UP = 600
"""Transactions of ten records before the measured ones: a young JVM is slow."""
MEASURED_RECORDS = 300_000
MEASURED_PARTITIONS = 12_000
"""Written to, by all transactions of a shape together."""
MOST_TRANSACTIONS = 300
UNCOUNTED = 2
LIMIT_S = 60.0

Begin = Callable[[str, str], Producer]
"""Makes a transactional producer of bootstrap addresses and a transactional id."""


def replicated(kind: type[System], scale: float, begin: Begin, record: bytes) -> dict[str, Figures]:
    """Measure each shape on a cluster of one kind."""
    rows: dict[str, Figures] = {}
    with Cluster(kind) as cluster:
        create_topic(cluster, TOPIC, max(partitions for _, partitions in SHAPES) + PRODUCERS, SIZE)
        cluster.until_in_sync(TOPIC)
        transact(cluster, 10, 10, max(PRODUCERS, int(WARM_UP * scale)), begin, record)
        for size, partitions in SHAPES:
            most = min(MOST_TRANSACTIONS, MEASURED_RECORDS // size, MEASURED_PARTITIONS // partitions)
            count = max(2 * PRODUCERS, int(scale * most))
            what = f"{size:,} records over {partitions} partitions, three brokers, three replicas"
            rows[what] = transact(cluster, size, partitions, count, begin, record)
    return rows


def transact(cluster: Cluster, size: int, partitions: int, count: int, begin: Begin, record: bytes) -> Figures:
    """Write so many transactions, a share of them by each producer, and commit each without a flush before."""
    commits: list[float] = []
    seconds = cpu = 0.0
    each = count // PRODUCERS
    for first in range(PRODUCERS):
        producer = begin(cluster.bootstrap, f"replicated-{size}-{partitions}-{first}")
        for number in range(-UNCOUNTED, each):
            if number == 0:
                before, began = cluster.cpu_seconds(), time.monotonic()
            producer.begin_transaction()
            for place in range(size):
                producer.produce(TOPIC, record, partition=first + place % partitions)
            at = time.monotonic()
            producer.commit_transaction(LIMIT_S)
            if number >= 0:
                commits.append(1e3 * (time.monotonic() - at))
        seconds += time.monotonic() - began
        cpu += cluster.cpu_seconds() - before
    return {
        "transactions/s": len(commits) / seconds,
        "median commit ms": statistics.median(commits),
        "mean commit ms": statistics.mean(commits),
        "99 % commit ms": sorted(commits)[len(commits) * 99 // 100],
        "CPU-ms a transaction": 1e3 * cpu / len(commits),
    }
