"""Transactions that Kafka's brokers coordinate, on partitions that our broker leads."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from kbroker import Admin
from kbroker.client.connection import Connection
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.java_hash import partition_for
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.transactions import AddPartitionsToTxnRequest, InitProducerIdRequest
from kbroker.protocol.records.builder import BatchBuilder
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
    values: list[str] = []
    ended, deadline = 0, time.monotonic() + TIMEOUT
    try:
        while ended < PARTITIONS:
            assert time.monotonic() < deadline, values
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                values.append((message.value() or b"").decode())
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


# --- coordinators of both kinds -------------------------------------------------------------------------------

COORDINATORS = {KAFKA: 0, KBROKER: 1}
"""Who leads which partition of __transaction_state and __consumer_offsets."""


def start_with_both_coordinators(cluster: MixedCluster) -> None:
    cluster.start({1: KAFKA, 2: KAFKA, 3: KBROKER})
    for topic in ("__transaction_state", "__consumer_offsets"):
        cluster.create_topic(topic, leaders=(1, 3, 1), cleanup_policy="compact")


def id_coordinated_by(kind: str, start: str) -> str:
    """A transactional id, or a group, whose coordinator is of this kind."""
    return next(f"{start}-{n}" for n in range(100) if partition_for(f"{start}-{n}", 3) == COORDINATORS[kind])


def committed(consumer: Consumer, topic: str) -> list[int]:
    wanted = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    return [each.offset for each in consumer.committed(wanted, TIMEOUT)]


def transact(cluster: MixedCluster, topic: str, transactional_id: str, group: str) -> None:
    """Abort a transaction and commit one, with records for all partitions and the group's offsets."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(settings)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(TIMEOUT)
    try:
        for decision in ("aborted", "committed"):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce(topic, f"{decision} by {transactional_id} for {group}", partition=partition)
            offsets = [TopicPartition(topic, partition, 5 + partition) for partition in range(PARTITIONS)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT)
            producer.flush(TIMEOUT)
            if decision == "aborted":
                producer.abort_transaction(TIMEOUT)
                assert all(offset < 0 for offset in committed(consumer, topic))
            else:
                producer.commit_transaction(TIMEOUT)
                assert committed(consumer, topic) == [5, 6, 7]
    finally:
        consumer.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_whoever_coordinates_transactions_and_groups_records_and_offsets_are_decided_together(
    mixed_cluster: MixedCluster,
) -> None:
    start_with_both_coordinators(mixed_cluster)
    mixed_cluster.create_topic("t", leaders=(3, 1, 3))
    ids = {kind: id_coordinated_by(kind, "transactions") for kind in COORDINATORS}
    expected = []
    for transactional_id in ids.values():
        for kind in COORDINATORS:
            group = id_coordinated_by(kind, f"group-of-{transactional_id}")
            transact(mixed_cluster, "t", transactional_id, group)
            expected += [f"committed by {transactional_id} for {group}"] * PARTITIONS
    assert sorted(read(mixed_cluster, "t", "read_committed")) == sorted(expected)
    mixed_cluster.until_identical("t")


# --- partitions that were not added ---------------------------------------------------------------------------


async def try_to_produce(cluster: MixedCluster, topic: str, transactional_id: str, coordinator: int) -> list[ErrorCode]:
    """Add partitions 0 and 1 to a transaction and produce to all four: each partition's error."""
    connections: dict[int, Connection] = {}
    for broker_id, broker in cluster.brokers.items():
        connections[broker_id] = await Connection.open("127.0.0.1", broker.port)
        await connections[broker_id].negotiate()
    begun = await ask_until_ready(
        connections[coordinator],
        InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000),
        4,
    )
    producer = begun.producer_id, begun.producer_epoch
    added = await ask_until_ready(
        connections[coordinator],
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=begun.producer_id,
            v3_and_below_producer_epoch=begun.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0, 1])],
        ),
        3,
    )
    assert [each.partition_error_code for each in added.results_by_topic_v3_and_below[0].results_by_partition] == [0, 0]
    errors = []
    for partition, leader in enumerate((3, 1, 3, 1)):
        builder = BatchBuilder()
        builder.append(b"k", b"v", (), int(time.time() * 1000))
        data = ProduceRequest.PartitionProduceData(
            index=partition, records=builder.build(*producer, 0, transactional=True)
        )
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=20_000,
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
        )
        answer = await connections[leader].request(request, 11, timeout=TIMEOUT)
        errors.append(answer.responses[0].partition_responses[0].error_code)
    for connection in connections.values():
        await connection.close()
    return errors


async def ask_until_ready(connection: Connection, request: Any, version: int) -> Any:
    """A coordinator may still be reading its partition, or ending the transaction before."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        answer = await connection.request(request, version, timeout=TIMEOUT)
        if getattr(answer, "error_code", ErrorCode.NONE) not in (14, 15, 16, 51):
            return answer
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_whoever_leads_and_whoever_coordinates_partitions_take_no_transaction_they_were_not_added_to(
    mixed_cluster: MixedCluster,
) -> None:
    start_with_both_coordinators(mixed_cluster)
    mixed_cluster.create_topic("t", leaders=(3, 1, 3, 1))
    for kind, coordinator in ((KAFKA, 1), (KBROKER, 3)):
        transactional_id = id_coordinated_by(kind, "transactions")
        errors = asyncio.run(try_to_produce(mixed_cluster, "t", transactional_id, coordinator))
        not_added = ErrorCode.TRANSACTION_ABORTABLE
        assert errors == [ErrorCode.NONE, ErrorCode.NONE, not_added, not_added], kind
