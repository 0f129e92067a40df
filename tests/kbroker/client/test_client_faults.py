"""Our clients when something goes wrong around them: brokers away, full buffers, forks, callbacks, cancelled calls."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

import kbroker.client.arrow  # noqa: F401 - now: pytest's rewriting of it on the way, deep in a task, may fail in 3.11
from kbroker import Admin as BlockingAdmin
from kbroker import Consumer as BlockingConsumer
from kbroker import Producer as BlockingProducer
from kbroker.client import errors
from kbroker.client.admin import Admin
from kbroker.client.consumer import Consumer
from kbroker.client.producer import Producer
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.records.batch import HEADER_SIZE, split_batches, write_crc
from tests.fixtures.brokers import kill_and_expire

LIMIT_S = 60.0
QUICK: dict[str, Any] = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 200, "session_timeout_ms": 10_000}
IMPATIENT: dict[str, Any] = {"request_timeout_ms": 2_000, "connect_timeout_ms": 1_000}


@contextmanager
def nothing_left(broker: BrokerProcess) -> Iterator[None]:
    """In the end no task is there that was not before, and no connection to the broker."""
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before
    assert not left
    assert not connections_to(broker)


def connections_to(broker: BrokerProcess) -> list[Any]:
    return [c for c in psutil.Process().net_connections("tcp") if c.raddr and c.raddr.port == broker.port]


# --- brokers that are away, topics that change ----------------------------------------------------------------------


async def test_a_broker_away_for_a_while_costs_nobody_anything(own_broker: BrokerProcess) -> None:
    bootstrap = own_broker.bootstrap
    async with (
        Admin(bootstrap) as admin,
        Producer(bootstrap, **IMPATIENT) as producer,
        Consumer(bootstrap, auto_offset_reset="earliest", **IMPATIENT) as consumer,
        Consumer(bootstrap, group_id="g", **IMPATIENT, **QUICK) as member,
    ):
        await admin.create_topic("t", 2)
        await consumer.subscribe(["t"])
        await member.subscribe(["t"])
        sent = [await producer.send("t", b"%d" % number, partition=number % 2) for number in range(10)]
        await producer.flush(LIMIT_S)
        seen = [await collect(each, 10) for each in (consumer, member)]
        await asyncio.to_thread(kill_and_expire, own_broker)
        sent += [await producer.send("t", b"%d" % number, partition=number % 2) for number in range(10, 20)]
        for each in (consumer, member):
            assert await each.poll(1.5) == [], "longer than any of the clients' patience with one request"
        await asyncio.to_thread(lambda: own_broker.start().wait_until_ready(LIMIT_S))
        for delivery in sent:
            await asyncio.wait_for(asyncio.ensure_future(result_of(delivery)), LIMIT_S)
        for records, each in zip(seen, (consumer, member), strict=True):
            records += await collect(each, 10)
            assert sorted(int(value) for value in records) == list(range(20))
        async with asyncio.timeout(LIMIT_S):
            await member.commit()
        assert "t" in await admin.list_topics()


async def result_of(delivery: Awaitable[Any]) -> Any:
    return await delivery


async def collect(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    async with asyncio.timeout(LIMIT_S):
        while len(values) < count:
            values += [record.value or b"" for record in await consumer.poll(0.5)]
    return values


async def test_a_producer_learns_of_partitions_that_were_added(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap, metadata_max_age_ms=200, linger_ms=0) as producer, Admin(bootstrap) as admin:
        await producer.send_and_wait(topic, b"x")
        await admin.create_partitions({topic: 6})
        async with asyncio.timeout(LIMIT_S):
            while True:  # until the broker knows
                try:
                    assert (await producer.send_and_wait(topic, b"x", partition=5)).partition == 5
                    break
                except errors.UnknownTopicOrPartitionError:
                    await asyncio.sleep(0.05)
            while (await producer.send_and_wait(topic, b"x")).partition < 3:
                pass


def test_a_blocking_producer_learns_of_partitions_that_were_added(broker: BrokerProcess, topic_name: str) -> None:
    with BlockingAdmin(broker.bootstrap) as admin, BlockingProducer(broker.bootstrap) as producer:
        admin.create_topic(topic_name, partitions=1)
        producer.send(topic_name, b"x").result(LIMIT_S)
        with pytest.raises(errors.UnknownTopicOrPartitionError, match="has 1 partitions"):
            producer.send(topic_name, b"x", partition=1)
        admin.create_partitions({topic_name: 2})
        assert producer.send(topic_name, b"x", partition=1).result(LIMIT_S).partition == 1


async def test_a_topic_deleted_under_a_member_and_made_again_is_read_again(bootstrap: str, topic: str) -> None:
    arguments = {**QUICK, "metadata_max_age_ms": 200, "enable_auto_commit": False}
    async with (
        Consumer(bootstrap, group_id=topic, **arguments) as member,
        Producer(bootstrap) as producer,
        Admin(bootstrap) as admin,
    ):
        await producer.send_and_wait(topic, b"old", partition=0)
        await member.subscribe([topic])
        assert await collect(member, 1) == [b"old"]
        await admin.delete_topic(topic)
        async with asyncio.timeout(LIMIT_S):
            while member.assignment() or topic in await admin.list_topics():
                assert await member.poll(0.1) == []
            await admin.create_topic(topic, 3)
            while len(member.assignment()) != 3:
                assert await member.poll(0.1) == []
        async with Producer(bootstrap) as another:
            await another.send_and_wait(topic, b"new", partition=0)
        assert await collect(member, 1) == [b"new"]


async def write_and_spoil(
    broker: BrokerProcess, compression: str, spoil: Callable[[bytearray, int, int], None]
) -> None:
    """Three batches of ten; with the broker stopped, the second is spoiled on its disk."""
    async with Producer(broker.bootstrap, compression=compression) as producer:
        for number in range(3):
            await asyncio.gather(*[await producer.send("t", b"%d" % number, partition=0) for _ in range(10)])
    (segment,) = (broker.log_dir / "t-0").glob("*.log")
    await asyncio.to_thread(broker.stop)
    data = bytearray(segment.read_bytes())
    positions = split_batches(data)
    assert len(positions) == 3
    spoil(data, *positions[1])
    segment.write_bytes(data)
    await asyncio.to_thread(lambda: broker.start().wait_until_ready(LIMIT_S))


async def write_and_flip_a_bit(broker: BrokerProcess) -> None:
    """The checksum is wrong."""

    def flip(data: bytearray, position: int, size: int) -> None:
        data[position + size - 2] ^= 0xFF

    await write_and_spoil(broker, "none", flip)


async def write_what_cannot_be_unpacked(broker: BrokerProcess) -> None:
    """The checksum is right, and what it is of is no compressed data: as a broker stored that did not look into it."""

    def garble(data: bytearray, position: int, size: int) -> None:
        batch = data[position : position + size]
        batch[HEADER_SIZE : HEADER_SIZE + 4] = bytes(4)
        write_crc(batch, 0)
        data[position : position + size] = batch

    await write_and_spoil(broker, "zstd", garble)


@pytest.mark.parametrize("form", ["records", "columns"])
@pytest.mark.parametrize("spoil", [write_and_flip_a_bit, write_what_cannot_be_unpacked])
async def test_a_poisoned_batch_is_named_and_can_be_skipped(
    own_broker: BrokerProcess, spoil: Callable[[BrokerProcess], Awaitable[None]], form: str
) -> None:
    await spoil(own_broker)
    async with Consumer(own_broker.bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign([("t", 0)])

        async def read() -> list[int]:
            if form == "records":
                return [record.offset for record in await consumer.poll(LIMIT_S)]
            batch = await consumer.next_batch(timeout=LIMIT_S)
            assert batch is not None
            offsets: list[int] = batch["offset"].to_pylist()
            return offsets

        assert await read() == list(range(10)), "what is before it is delivered first"
        for _ in range(2):
            with pytest.raises(errors.BrokerError, match=r"t-0.*offset 10 .*seek") as raised:
                await read()
            assert raised.value.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
        assert await consumer.position(("t", 0)) == 10
        consumer.seek(("t", 0), 20)
        assert await read() == list(range(20, 30))


# --- memory -----------------------------------------------------------------------------------------------------------


async def test_a_full_buffer_is_an_error_when_no_room_comes_in_time(own_broker: BrokerProcess) -> None:
    options = {"buffer_memory": 30_000, "max_block_ms": 500, "batch_size": 10_000}
    async with Producer(own_broker.bootstrap, **options) as producer:
        with BlockingProducer(own_broker.bootstrap, **options) as blocking:
            await producer.send_and_wait("t", b"x")
            blocking.send("t", b"x").result(LIMIT_S)
            await asyncio.to_thread(own_broker.pause)
            sent: list[Any] = []

            async def fill() -> None:
                while True:
                    sent.append(await producer.send("t", b"x" * 1000))

            def fill_blocking() -> None:
                while True:
                    sent.append(blocking.send("t", b"x" * 1000))

            told = r"buffer_memory=30000 is used up.*max_block_ms=500"
            with pytest.raises(errors.BufferFull, match=told):
                await fill()
            with pytest.raises(errors.BufferFull, match=told):
                fill_blocking()
            assert len(sent) < 80
            await asyncio.to_thread(own_broker.resume)
            for delivery in sent:
                assert (await asyncio.to_thread(delivery.result, LIMIT_S)).offset > 0
            assert (await producer.send_and_wait("t", b"after")).offset > 0


@pytest.mark.slow
async def test_a_buffer_is_full_too_where_no_answers_are_wanted(own_broker: BrokerProcess) -> None:
    options = {"acks": 0, "buffer_memory": 1 << 20, "max_block_ms": 500}
    async with Producer(own_broker.bootstrap, **options) as producer:
        await producer.send_and_wait("t", b"x")
        await asyncio.to_thread(own_broker.pause)
        sent = []

        async def fill() -> None:
            for _ in range(640):  # of 100 kB, more than the system takes for a peer that does not read
                sent.append(await producer.send("t", b"x" * 100_000))

        with pytest.raises(errors.BufferFull, match=r"buffer_memory=1048576 is used up.*max_block_ms=500"):
            await fill()
        await asyncio.to_thread(own_broker.resume)
        for delivery in sent:
            assert (await asyncio.wait_for(delivery, LIMIT_S)).offset == -1
        await producer.send_and_wait("t", b"after")
        assert producer.statistics()["buffer-available-bytes"] == 1 << 20


SLOW_READER = """
import resource, sys
from kbroker import Consumer

MB = 1 << 20
with Consumer(sys.argv[1], auto_offset_reset="earliest", prefetch_bytes=8 * MB, fetch_max_bytes=8 * MB,
              max_partition_fetch_bytes=2 * MB) as consumer:
    consumer.subscribe([sys.argv[2]])
    assert consumer.poll(30, 1)
    began, most, seen = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, 0, 1
    assignment = consumer._client._assignment
    while seen < int(sys.argv[3]):
        if seen % 50 == 0:
            key = consumer.assignment()[0]
            consumer.pause(key)
            consumer.poll(0.05, 1)
            consumer.resume(key)
        records = consumer.poll(30, 1)
        assert records, seen
        seen += len(records)
        most = max(most, assignment.buffered_bytes)
    print(most, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - began)
"""


@pytest.mark.slow
async def test_a_slow_reader_of_large_messages_stays_within_its_bound(broker: BrokerProcess, topic_name: str) -> None:
    count, size = 240, 1_000_000
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic(topic_name, 8, 1, {"retention.ms": "-1", "max.message.bytes": "2000000"})
    async with Producer(broker.bootstrap, max_request_size=2_000_000) as producer:
        for number in range(count):
            await producer.send(topic_name, os.urandom(size), partition=number % 8)
    command = [sys.executable, "-c", SLOW_READER, broker.bootstrap, topic_name, str(count - 5)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=90, check=False)
    async with Admin(broker.bootstrap) as admin:
        await admin.delete_topic(topic_name)
    assert done.returncode == 0, done.stderr
    most_buffered, growth = map(int, done.stdout.split())
    assert most_buffered <= (8 + 16) << 20, (
        "what waits, and one answer beyond that in a buffer of the next power of two"
    )
    assert growth < 100 << 20, "240 MB were read"


# --- forks ------------------------------------------------------------------------------------------------------------


def in_child(attempt: Callable[[], object]) -> int:
    """7 when the attempt ends in ClientClosed in a forked child."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            attempt()
        except errors.ClientClosed as error:
            status = 7 if "fork" in str(error) else 2
        except BaseException:
            status = 3
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_children_of_every_client_are_told_and_their_parents_go_on(bootstrap: str, topic_name: str) -> None:
    with BlockingAdmin(bootstrap) as admin:
        admin.create_topic(topic_name, partitions=2)
        with (
            BlockingProducer(bootstrap, linger_ms=60_000) as producer,
            BlockingConsumer(bootstrap, auto_offset_reset="earliest") as consumer,
            BlockingConsumer(bootstrap, group_id=topic_name, **QUICK) as member,
        ):
            consumer.subscribe([topic_name])
            member.subscribe([topic_name])
            while not member.assignment():
                member.poll(0.2)
            waiting = producer.send(topic_name, b"before")
            attempts: list[Callable[[], object]] = [
                lambda: producer.send(topic_name, b"x"),
                lambda: producer.flush(),
                lambda: waiting.result(),
                lambda: consumer.poll(1),
                lambda: next(iter(consumer)),
                lambda: next(consumer.batches()),
                lambda: member.poll(1),
                lambda: member.commit(),
                lambda: admin.list_topics(),
            ]
            assert [in_child(attempt) for attempt in attempts] == [7] * len(attempts)
            assert in_child(lambda: [each.close() for each in (producer, consumer, member, admin)]) == 1
            producer.send(topic_name, b"after")
            producer.flush(LIMIT_S)
            assert waiting.result(LIMIT_S).offset >= 0
            for each in (consumer, member):
                values: list[bytes | None] = []
                while len(values) < 2:
                    records = each.poll(LIMIT_S)
                    assert records
                    values += [record.value for record in records]
                assert sorted(str(value) for value in values) == ["b'after'", "b'before'"]
            member.commit()
            assert topic_name in admin.list_topics()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_asyncio_clients_are_of_no_use_in_a_child_and_unharmed_by_it(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer, Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.subscribe([topic])
        await producer.send_and_wait(topic, b"x")
        attempts: list[Callable[[], Any]] = [
            lambda: producer.send(topic, b"y"),
            lambda: producer.flush(),
            lambda: consumer.poll(1),
            lambda: consumer.subscribe([topic]),
        ]
        assert [in_child(lambda attempt=attempt: attempt().send(None)) for attempt in attempts] == [7] * 4  # type: ignore[misc]
        await producer.send_and_wait(topic, b"z")
        assert sorted(await collect(consumer, 2)) == [b"x", b"z"]


# --- callbacks, closing, cancelling -----------------------------------------------------------------------------------


def test_a_callback_that_would_wait_for_its_own_thread_is_told(
    broker: BrokerProcess, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard = threading.Event()
    with BlockingProducer(broker.bootstrap) as producer:

        def close(metadata: object, error: object) -> None:
            heard.set()
            producer.close()

        producer.send(topic_name, b"x", on_delivery=close)
        assert heard.wait(LIMIT_S)
        assert producer.send(topic_name, b"y").result(LIMIT_S).offset >= 0
    assert "waits for that thread for ever" in caplog.text


def test_a_callback_that_would_wait_for_another_delivery_is_told(
    broker: BrokerProcess, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with BlockingProducer(broker.bootstrap, linger_ms=0) as producer:

        def send_another(metadata: object, error: object) -> None:
            producer.send(topic_name, b"y").result(5)

        producer.send(topic_name, b"x", on_delivery=send_another)
        producer.flush(LIMIT_S)
        producer.flush(LIMIT_S)
        assert producer.send(topic_name, b"z").result(LIMIT_S).offset == 2
    assert "await it, or use add_done_callback" in caplog.text


async def test_who_would_hold_up_the_loop_that_brings_the_delivery_is_told(
    broker: BrokerProcess, topic_name: str
) -> None:
    async with Producer(broker.bootstrap) as producer:
        delivery = await producer.send(topic_name, b"x")
        with pytest.raises(errors.IllegalState, match="await it"):
            delivery.result(5)
        assert (await delivery).offset == 0


async def test_a_commit_callback_or_partitioner_that_raises_disturbs_nobody(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard = asyncio.Event()

    def broken(*arguments: object) -> None:
        heard.set()
        raise ZeroDivisionError("mine")

    async with Consumer(bootstrap, group_id=topic, **QUICK) as consumer:
        await consumer.assign([(topic, 0)])
        consumer.commit_async({(topic, 0): 5}, broken)
        await asyncio.wait_for(heard.wait(), LIMIT_S)
        await consumer.commit({(topic, 0): 6})
    assert "a commit callback raised" in caplog.text
    async with Producer(bootstrap, partitioner=broken) as producer:
        with pytest.raises(ZeroDivisionError, match="mine"):
            await producer.send(topic, b"x")
        assert (await producer.send_and_wait(topic, b"x", partition=1)).offset == 0


@pytest.mark.parametrize("state", ["new", "known", "lingering", "in flight", "full", "flushing", "connecting"])
async def test_a_producer_closed_in_any_state_leaves_nothing(own_broker: BrokerProcess, state: str) -> None:
    with nothing_left(own_broker):
        options = {"buffer_memory": 20_000, "batch_size": 5_000, "linger_ms": 60_000 if state == "lingering" else 0}
        producer = Producer(own_broker.bootstrap, **options)
        others: list[asyncio.Task[Any]] = []
        if state != "new":
            await producer.send_and_wait("t", b"x") if state != "lingering" else await producer.send("t", b"x")
        if state in ("in flight", "full", "flushing", "connecting"):
            await asyncio.to_thread(own_broker.pause)
            if state == "connecting":
                producer.cluster._connections.popitem()[1].abort()
            await producer.send("t", b"y" * 3_000)
            await asyncio.sleep(0.05)
        if state == "full":
            others = [asyncio.create_task(result_of(producer.send("t", b"y" * 3_000))) for _ in range(20)]
        if state == "flushing":
            others = [asyncio.create_task(producer.flush())]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(LIMIT_S):
            await producer.close(0.2)
            await producer.close()
            outcomes = await asyncio.gather(*others, return_exceptions=True)
        assert all(not isinstance(one, BaseException) or isinstance(one, errors.ClientClosed) for one in outcomes)
        with pytest.raises(errors.ClientClosed):
            await producer.send("t", b"z")
        if own_broker.exit_status is None:
            await asyncio.to_thread(own_broker.resume)


@pytest.mark.parametrize("waits_in", ["poll", "batches", "commit", "flush", "send"])
def test_a_client_closed_while_another_thread_waits_in_it(own_broker: BrokerProcess, waits_in: str) -> None:
    options = {"buffer_memory": 10_000, "linger_ms": 0}
    producer = BlockingProducer(own_broker.bootstrap, **options)
    consumer = BlockingConsumer(own_broker.bootstrap, group_id="g", **QUICK)
    producer.send("t", b"x").result(LIMIT_S)
    consumer.assign([("t", 0)])
    assert consumer.poll(LIMIT_S)
    if waits_in not in ("poll", "batches"):
        own_broker.pause()
        producer.send("t", b"y" * 11_000)
    calls: dict[str, Callable[[], object]] = {
        "poll": lambda: consumer.poll(3600),
        "batches": lambda: next(consumer.batches()),
        "commit": lambda: consumer.commit({("t", 0): 1}),
        "flush": producer.flush,
        "send": lambda: producer.send("t", b"z"),
    }
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(calls[waits_in])
        with pytest.raises(TimeoutError):
            future.result(0.3)
        producer.close(0.2)
        consumer.close(0.2)
        error = future.exception(LIMIT_S)
    # What was in the buffer when the producer was closed has an outcome: flush may have seen that.
    assert isinstance(error, errors.ClientClosed) or (waits_in == "flush" and error is None), error
    if waits_in not in ("poll", "batches"):
        own_broker.resume()


@pytest.mark.parametrize("state", ["new", "assigned", "located", "fetching", "delivering", "iterating"])
async def test_a_consumer_closed_in_any_state_leaves_nothing(own_broker: BrokerProcess, state: str) -> None:
    async with Producer(own_broker.bootstrap) as producer:
        for number in range(10):
            await producer.send("t", b"%d" % number, partition=0)
    with nothing_left(own_broker):
        consumer = Consumer(own_broker.bootstrap, auto_offset_reset="earliest", **IMPATIENT)
        iterating: asyncio.Task[None] | None = None
        if state != "new":
            await consumer.assign([("t", 0)])
        if state == "assigned":
            await asyncio.to_thread(own_broker.pause)
            assert await consumer.poll(0.2) == []
        elif state in ("located", "fetching"):
            assert await consumer.position(("t", 0)) == 0
            await asyncio.to_thread(own_broker.pause)
            if state == "fetching":
                consumer.seek(("t", 0), 10)
                assert await consumer.poll(0.2) == []
        elif state == "delivering":
            assert len(await consumer.poll(LIMIT_S, 3)) == 3
        elif state == "iterating":
            iterating = asyncio.create_task(read_on_and_on(consumer))
            await asyncio.sleep(0.1)
        async with asyncio.timeout(LIMIT_S):
            await consumer.close(0.5)
            await consumer.close()
            if iterating is not None:
                with pytest.raises(errors.ClientClosed):
                    await iterating
        with pytest.raises(errors.ClientClosed):
            await consumer.poll(1)
        await asyncio.to_thread(own_broker.resume)


async def read_on_and_on(consumer: Consumer) -> None:
    async for record in consumer:
        assert record.offset < 10


async def test_cancelled_calls_leave_nothing_behind_and_the_clients_go_on(own_broker: BrokerProcess) -> None:
    bootstrap = own_broker.bootstrap
    with nothing_left(own_broker):
        async with (
            Admin(bootstrap) as admin,
            Producer(bootstrap, buffer_memory=20_000) as producer,
            Consumer(bootstrap, **{**QUICK, "session_timeout_ms": 30_000}, group_id="g") as member,
        ):
            await admin.create_topic("t", 1)
            await producer.send_and_wait("t", b"x")
            await member.subscribe(["t"])
            assert await collect(member, 1) == [b"x"]
            await asyncio.to_thread(own_broker.pause)

            async def fill() -> None:
                while True:
                    await producer.send("t", b"y" * 1_000)

            calls: list[Callable[[], Any]] = [
                fill,
                producer.flush,
                lambda: producer.send_and_wait("new-topic", b"x"),
                lambda: member.poll(60),
                lambda: member.commit({("t", 0): 1}),
                lambda: member.committed([("t", 0)]),
                lambda: member.end_offsets([("t", 0)]),
                lambda: admin.create_topic("t2"),
                lambda: admin.list_groups(),
            ]
            for call in calls:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await call()
            await asyncio.to_thread(own_broker.resume)
            async with asyncio.timeout(LIMIT_S):
                await producer.flush()
                await member.commit({("t", 0): 2})
                assert "t" in await admin.list_topics()
                await collect(member, 5)


async def test_a_client_that_is_cancelled_while_it_connects_leaves_nothing(own_broker: BrokerProcess) -> None:
    await asyncio.to_thread(own_broker.pause)
    with nothing_left(own_broker):
        for make in (Admin, Producer, Consumer):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3), make(own_broker.bootstrap) as client:
                    await client.cluster.refresh(["t"])
    await asyncio.to_thread(own_broker.resume)
