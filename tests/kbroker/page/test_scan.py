import asyncio
import threading
from collections.abc import Iterable
from contextlib import aclosing

import pytest

from kbroker.client.admin import Admin
from kbroker.client.consumer import Consumer
from kbroker.client.producer import Producer
from kbroker.client.types import TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from kbroker.page import held
from kbroker.page.held import Held
from kbroker.page.record_query import RecordQuery, Start
from kbroker.page.scan import POLL_BYTES, POLL_RECORDS, Pace, scan
from kbroker.protocol.records.record import Record


async def fill(bootstrap: str, topic: str, counts: Iterable[int]) -> None:
    """Make partitions of so many records; value: partition and number, timestamps rise over all."""
    counts = list(counts)
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.create_topic(topic, len(counts))
        moment = 1_000_000
        for number in range(max(counts)):
            for partition, count in enumerate(counts):
                if number < count:
                    moment += 1
                    value = b"%d/%d" % (partition, number)
                    await producer.send(topic, value, partition=partition, timestamp_ms=moment)
        await producer.flush()


def test_records_are_asked_for_as_their_size_allows() -> None:
    pace = Pace()
    asked = []
    for size in (10, 10, 10, POLL_BYTES // 3, 2 * POLL_BYTES, 10):
        asked.append(pace.records)
        pace.note([Record(0, 0, 0, None, bytes(10)), Record(1, 0, 0, None, bytes(size))])
        pace.note([])
    assert asked == [1, 4, 16, 64, 3, 1]
    for _ in range(6):
        pace.note([Record(0, 0, 0, None, b"1")])
    assert pace.records == POLL_RECORDS


def value_of(record: Record) -> bytes:
    """What a search keeps of a record here."""
    return bytes(record.value or b"")


async def keys_of(consumer: Consumer, topic: str, query: RecordQuery) -> list[TopicPartition]:
    count = len(await consumer.partitions_for(topic))
    return [TopicPartition(topic, number) for number in query.partitions(count)]


async def found(bootstrap: str, topic: str, query: RecordQuery) -> list[bytes]:
    async with Consumer(bootstrap) as consumer, asyncio.timeout(60):
        values: list[bytes] = []
        scanned = 0
        async for step in scan(consumer, await keys_of(consumer, topic, query), query, value_of, Held()):
            values += step.records
            assert step.scanned >= scanned
            assert step.total is not None
            assert step.scanned <= step.total
            scanned = step.scanned
        return values


@pytest.mark.slow
async def test_records_are_found_forwards_and_from_the_newest(broker: BrokerProcess, topic_name: str) -> None:
    await fill(broker.bootstrap, topic_name, (3_000, 10, 0))

    async def of(**wishes: object) -> list[bytes]:
        return await found(broker.bootstrap, topic_name, RecordQuery(**wishes))  # type: ignore[arg-type]

    assert await of(limit=3) == [b"0/2999", b"0/2998", b"0/2997"]
    assert await of(limit=2, partition=1) == [b"1/9", b"1/8"]
    assert await of(limit=2, partition=2) == []
    # Far from the end: the windows grow until it is found, and no record is looked at twice.
    assert await of(text=b"1/3", limit=5) == [b"1/3"]
    assert await of(where='value == "0/7"', limit=5) == [b"0/7"]
    assert len(await of(text=b"/", limit=None)) == 3_010
    assert len(await of(start="start", limit=None)) == 3_010
    assert await of(start="start", partition=0, limit=2) == [b"0/0", b"0/1"]
    assert await of(start="offset", at=2_998, limit=None) == [b"0/2998", b"0/2999"]
    assert await of(start="time", at=1_000_000 + 3_009, limit=None) == [b"0/2998", b"0/2999"]
    assert await of(start="time", at=9_000_000, limit=None) == []


async def test_a_live_tail_tells_what_comes_from_now_on(broker: BrokerProcess, topic_name: str) -> None:
    await fill(broker.bootstrap, topic_name, (5,))
    async with (
        Consumer(broker.bootstrap) as consumer,
        Producer(broker.bootstrap) as producer,
        asyncio.timeout(60),
    ):
        values: list[bytes] = []
        is_told = False
        async for step in scan(
            consumer, [TopicPartition(topic_name, 0)], RecordQuery("live", limit=None), value_of, Held()
        ):
            if not is_told:
                is_told = True
                await producer.send_and_wait(topic_name, b"new")
            values += step.records
            if values:
                break
        assert values == [b"new"]


@pytest.mark.slow
async def test_what_is_written_during_a_search_is_not_waited_for(broker: BrokerProcess, topic_name: str) -> None:
    await fill(broker.bootstrap, topic_name, (5,))
    async with (
        Consumer(broker.bootstrap) as consumer,
        Producer(broker.bootstrap) as producer,
        asyncio.timeout(60),
    ):
        values = []
        async for step in scan(
            consumer, [TopicPartition(topic_name, 0)], RecordQuery("start", limit=None), value_of, Held()
        ):
            await producer.send_and_wait(topic_name, b"late")
            values += step.records
        assert values == [b"0/%d" % number for number in range(5)]


@pytest.mark.parametrize("start", ["start", "end"])
async def test_records_are_looked_at_beside_the_loop_and_held_until_the_next_step(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    monkeypatch.setattr(held, "FREE", 0)
    await fill(broker.bootstrap, topic_name, (3,))
    holding, threads, most = Held(), set(), 0

    def looked_at(record: Record) -> bytes:
        threads.add(threading.get_ident())
        return value_of(record)

    query = RecordQuery(start, limit=3)
    async with Consumer(broker.bootstrap) as consumer, asyncio.timeout(60):
        async with aclosing(scan(consumer, [TopicPartition(topic_name, 0)], query, looked_at, holding)) as steps:
            async for _ in steps:
                most = max(most, holding.worked)
    assert most >= len(b"0/0")
    assert holding.worked == 0
    assert threading.get_ident() not in threads
    assert threads
