"""The age of the next record, on a real broker."""

import asyncio
import socket
import time

import pytest

import kbroker.client.record_ages as record_ages_module
from kbroker.client.admin import Admin
from kbroker.client.consumer import Consumer
from kbroker.client.producer import Producer
from kbroker.client.record_ages import record_ages
from kbroker.client.types import TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.records.record import Record

HOUR_MS = 3_600_000
PATIENT = {"request_timeout_ms": 60_000, "default.api.timeout.ms": "60000"}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes its time."""
    monkeypatch.setattr(record_ages_module, "WITHIN_S", 60.0)


async def test_each_place_has_the_age_of_its_next_record_also_several_of_one_partition(
    broker: BrokerProcess, topic_name: str
) -> None:
    now = int(time.time() * 1000)
    first, second = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    async with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        await admin.create_topic(topic_name, 2)
        for hours in (3, 2, 1):
            await producer.send_and_wait(topic_name, b"x", partition=0, timestamp_ms=now - hours * HOUR_MS)
        await producer.send_and_wait(topic_name, b"x", partition=1, timestamp_ms=now + HOUR_MS)
    places = {(first, 0): 3, (first, 1): 3, (first, 2): 3, (first, 3): 3, (second, 0): 1}
    ages = await record_ages(broker.bootstrap, PATIENT, places)
    assert {place: age // HOUR_MS for place, age in ages.items()} == {
        (first, 0): 3,
        (first, 1): 2,
        (first, 2): 1,
        (second, 0): 0,
    }


async def test_where_only_the_end_of_a_transaction_is_left_nothing_is_behind(
    broker: BrokerProcess, topic_name: str
) -> None:
    key = TopicPartition(topic_name, 0)
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic(topic_name, 1)
    async with Producer(broker.bootstrap, transactional_id=topic_name) as producer:
        async with producer.transaction():
            await producer.send(topic_name, b"x", timestamp_ms=int(time.time() * 1000) - HOUR_MS)
    began = time.monotonic()
    ages = await record_ages(broker.bootstrap, PATIENT, {(key, 0): 2, (key, 1): 2})
    assert ages.keys() == {(key, 0), (key, 1)}
    assert ages[key, 0] >= HOUR_MS
    assert ages[key, 1] == 0
    assert time.monotonic() - began < 30, "it is known as soon as the end is read"


async def test_of_who_does_not_answer_nothing_is_told_and_nobody_waits_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_ages_module, "WITHIN_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        bootstrap = "{}:{}".format(*silent.getsockname())
        async with asyncio.timeout(20):
            assert await record_ages(bootstrap, PATIENT, {(TopicPartition("t", 0), 0): 5}) == {}


@pytest.mark.slow
async def test_a_topic_that_is_gone_does_not_keep_the_others_from_being_told(
    broker: BrokerProcess, topic_name: str
) -> None:
    here, gone = TopicPartition(topic_name, 0), TopicPartition(f"{topic_name}-gone", 0)
    async with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        await admin.create_topic(topic_name, 1)
        await producer.send_and_wait(topic_name, b"x")
    ages = await record_ages(broker.bootstrap, {"request_timeout_ms": 2_000}, {(here, 0): 1, (gone, 0): 1})
    assert ages.keys() == {(here, 0)}


async def test_of_very_many_places_those_farthest_from_their_ends_are_looked_at(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = TopicPartition(topic_name, 0)
    async with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        await admin.create_topic(topic_name, 1)
        for _ in range(3):
            await producer.send_and_wait(topic_name, b"x")
    monkeypatch.setattr("kbroker.client.record_ages.MOST_PLACES", 2)
    ages = await record_ages(broker.bootstrap, PATIENT, {(key, at): 3 for at in range(3)})
    assert ages.keys() == {(key, 0), (key, 1)}


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each poll has returned."""
    counts: list[int] = []
    poll = Consumer.poll

    async def counted(consumer: Consumer, timeout: float, limit: int) -> list[Record]:
        records = await poll(consumer, timeout, limit)
        counts.append(len(records))
        return records

    monkeypatch.setattr(Consumer, "poll", counted)
    return counts


async def test_what_lies_between_two_places_is_not_read(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch, polls: list[int]
) -> None:
    key = TopicPartition(topic_name, 0)
    async with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        await admin.create_topic(topic_name, 1)
        for _ in range(500):
            await producer.send(topic_name, b"x", timestamp_ms=1)
    monkeypatch.setattr("kbroker.client.record_ages.POLL_RECORDS", 1)
    ages = await record_ages(broker.bootstrap, PATIENT, {(key, 0): 500, (key, 499): 500})
    assert ages.keys() == {(key, 0), (key, 499)}
    assert sum(polls) < 10


async def test_small_batches_of_many_partitions_come_together(
    broker: BrokerProcess, topic_name: str, polls: list[int]
) -> None:
    keys = [TopicPartition(topic_name, number) for number in range(60)]
    async with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        await admin.create_topic(topic_name, len(keys))
        for key in keys:
            await producer.send(topic_name, b"x", partition=key.partition)
    ages = await record_ages(broker.bootstrap, PATIENT, {(key, 0): 1 for key in keys})
    assert len(ages) == len(keys)
    assert len([count for count in polls if count]) <= 20
