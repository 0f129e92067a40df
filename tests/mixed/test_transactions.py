"""Transactions that Kafka's brokers coordinate, on partitions that our broker leads."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from kbroker import Admin
from tests.faults.cluster_view import TIMEOUT, until
from tests.fixtures.java import compiled
from tests.fixtures.kafka import KAFKA, KBROKER
from tests.mixed.cluster import MixedCluster

PARTITIONS = 3
RECORDS = 30
TRANSACTIONS_TIMEOUT = 150.0


def run_transactions(cluster: MixedCluster, topic: str) -> list[str]:
    """Commit a transaction, abort one, commit one; returns what the producer says of them."""
    program = compiled(Path(__file__).with_name("Transactions.java"), cluster.class_path)
    command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *program]
    command += [cluster.bootstrap, topic, str(PARTITIONS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TRANSACTIONS_TIMEOUT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith(("committed", "aborted"))]


def read(cluster: MixedCluster, topic: str, isolation_level: str) -> list[str]:
    """All values up to the end of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    values, ended, deadline = [], 0, time.monotonic() + TIMEOUT
    try:
        while ended < PARTITIONS:
            assert time.monotonic() < deadline, values
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                values.append(message.value().decode())
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
    finally:
        consumer.close()
    return values


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kafkas_coordinator_ends_its_transactions_on_partitions_that_our_broker_leads(
    mixed_cluster: MixedCluster,
) -> None:
    mixed_cluster.start({1: KAFKA, 2: KAFKA, 3: KBROKER})
    mixed_cluster.create_topic("t", leaders=(3, 1, 3))
    assert run_transactions(mixed_cluster, "t") == ["committed 0", "aborted 1", "committed 2"]
    committed = sorted(f"{transaction}-{number}" for transaction in (0, 2) for number in range(RECORDS))
    with Admin(mixed_cluster.bootstrap) as admin:
        keys = [("t", partition) for partition in range(PARTITIONS)]

        def all_decided() -> bool:
            stable, ends = admin.list_offsets(keys, read_committed=True), admin.list_offsets(keys)
            return [each.offset for each in stable.values()] == [each.offset for each in ends.values()]

        until(all_decided, "the last stable offset stands still")
    assert sorted(read(mixed_cluster, "t", "read_committed")) == committed
    assert len(read(mixed_cluster, "t", "read_uncommitted")) == 3 * RECORDS
    mixed_cluster.become(3, KAFKA)
    mixed_cluster.until_whole("t")
    mixed_cluster.balance("t")
    assert sorted(read(mixed_cluster, "t", "read_committed")) == committed
