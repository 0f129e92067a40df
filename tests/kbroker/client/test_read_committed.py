"""Transactions of a producer that others wrote, on Apache Kafka: what was aborted or is undecided stays hidden."""

import asyncio
from typing import Any

import pytest

from kbroker.client.admin import Admin
from kbroker.client.consumer import Consumer
from kbroker.client.types import TopicPartition

ck = pytest.importorskip("confluent_kafka")
pytestmark = pytest.mark.slow


def write(bootstrap: str, topic: str) -> Any:
    """Three of each: committed, aborted, plain, committed; then one that stays open."""
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 0}
    producer = ck.Producer({**settings, "transactional.id": topic})
    producer.init_transactions(30)

    def send(who: Any, kind: str) -> None:
        for number in range(3):
            who.produce(topic, f"{kind}{number}".encode(), partition=0)
        assert who.flush(30) == 0

    for kind, ends in (("a", True), ("b", False), ("c", True)):
        producer.begin_transaction()
        send(producer, kind)
        producer.commit_transaction(30) if ends else producer.abort_transaction(30)
        if kind == "b":
            send(ck.Producer(settings), "plain")
    producer.begin_transaction()
    send(producer, "open")
    return producer


async def values(bootstrap: str, topic: str, level: str, columns: bool) -> list[str]:
    """All that a reader of that level is given, up to the last offset that it may read."""
    found: list[bytes] = []
    key = TopicPartition(topic, 0)
    async with (
        Consumer(bootstrap, auto_offset_reset="earliest", isolation_level=level) as consumer,
        asyncio.timeout(60),
    ):
        await consumer.assign([key])
        end = (await consumer.end_offsets([key]))[key]
        while await consumer.position(key) < end:
            if not columns:
                found += [record.value or b"" for record in await consumer.poll(0.1)]
            elif (batch := await consumer.next_batch(timeout=0.1)) is not None:
                found += batch["value"].to_pylist()
    return [value.decode() for value in found]


@pytest.mark.parametrize("columns", [False, True])
async def test_only_decided_and_committed_records_are_delivered(
    kafka_bootstrap: str, topic_name: str, columns: bool
) -> None:
    async with Admin(kafka_bootstrap) as admin:
        await admin.create_topic(topic_name, 1, 1)
    producer = await asyncio.to_thread(write, kafka_bootstrap, topic_name)
    try:
        committed = await values(kafka_bootstrap, topic_name, "read_committed", columns)
        everything = await values(kafka_bootstrap, topic_name, "read_uncommitted", columns)
    finally:
        await asyncio.to_thread(producer.abort_transaction, 30)
    kinds = ("a", "plain", "c")
    assert committed == [f"{kind}{number}" for kind in kinds for number in range(3)]
    assert everything == [f"{kind}{number}" for kind in ("a", "b", "plain", "c", "open") for number in range(3)]
