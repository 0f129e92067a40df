"""Our consumers in one group with those of other libraries, whoever leads: each partition read by one, none twice."""

import asyncio
import importlib
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kbroker.client.admin import Admin
from kbroker.client.consumer import Consumer
from kbroker.client.producer import Producer
from kbroker.dev.broker_process import BrokerProcess
from tests.fixtures.java import JVM_FLAGS
from tests.system.kafka_python_members import until_it_knows

pytestmark = pytest.mark.slow
aiokafka = pytest.importorskip("aiokafka")
kafka = pytest.importorskip("kafka")
confluent_kafka = pytest.importorskip("confluent_kafka")

PARTITIONS = 10
RECORDS = 1_000
LIMIT_S = 60.0
JAVA_NAMES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}

Seen = list[bytes]
Member = Callable[[str, str, str, Seen, threading.Event], None]
"""(bootstrap, topic and group, assignor, values read, when to leave): reads in a thread of its own."""


def rdkafka_member(bootstrap: str, topic: str, assignor: str, seen: Seen, leave: threading.Event) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "partition.assignment.strategy": assignor,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 30_000,
        }
    )
    consumer.subscribe([topic])
    while not leave.is_set():
        seen += [message.value() for message in consumer.consume(100, 0.1) if message.error() is None]
    consumer.close()


def kafka_python_member(bootstrap: str, topic: str, assignor: str, seen: Seen, leave: threading.Event) -> None:
    assignors = kafka.coordinator.assignors
    strategies = {
        "range": assignors.range.RangePartitionAssignor,
        "roundrobin": assignors.roundrobin.RoundRobinPartitionAssignor,
    }
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        session_timeout_ms=30_000,
        metadata_max_age_ms=1000,  # whoever leads shares out what it has heard of
        partition_assignment_strategy=[strategies[assignor]],
    )
    until_it_knows(consumer, topic, PARTITIONS)
    while not leave.is_set():
        seen += [record.value for records in consumer.poll(100).values() for record in records]
    consumer.close()


def aiokafka_member(bootstrap: str, topic: str, assignor: str, seen: Seen, leave: threading.Event) -> None:
    module, name = {
        "range": ("range", "RangePartitionAssignor"),
        "roundrobin": ("roundrobin", "RoundRobinPartitionAssignor"),
        "sticky": ("sticky.sticky_assignor", "StickyPartitionAssignor"),
    }[assignor]
    strategy = getattr(importlib.import_module(f"aiokafka.coordinator.assignors.{module}"), name)

    async def run() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
            session_timeout_ms=30_000,
            metadata_max_age_ms=1000,
            partition_assignment_strategy=[strategy],
        )
        async with consumer:
            while not leave.is_set():
                found = await consumer.getmany(timeout_ms=100)
                seen.extend(record.value for records in found.values() for record in records)

    asyncio.run(run())


@contextmanager
def thread_of(member: Member, bootstrap: str, topic: str, assignor: str, seen: Seen) -> Iterator[None]:
    leave = threading.Event()
    thread = threading.Thread(target=member, args=(bootstrap, topic, assignor, seen, leave))
    thread.start()
    try:
        yield
    finally:
        leave.set()
        thread.join(LIMIT_S)
        assert not thread.is_alive(), f"{member.__name__} does not leave"


@contextmanager
def java_member(class_path: str, folder: Path, bootstrap: str, topic: str, assignor: str) -> Iterator[None]:
    logging = folder / "log4j.properties"
    logging.write_text("log4j.rootLogger=OFF\n")
    strategy = f"partition.assignment.strategy=org.apache.kafka.clients.consumer.{JAVA_NAMES[assignor]}"
    command = [
        *("java", *JVM_FLAGS, f"-Dlog4j.configuration={logging.as_uri()}", "-cp", class_path),
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--group", topic, "--from-beginning"),
        *("--consumer-property", strategy, "--consumer-property", "heartbeat.interval.ms=200"),
    ]
    with (folder / "java.out").open("wb") as out, subprocess.Popen(command, stdout=out) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(LIMIT_S)


async def fill(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(RECORDS):
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


class Ours:
    """Two of our members, polled together."""

    def __init__(self, bootstrap: str, topic: str, assignor: str) -> None:
        self.topic, self.seen = topic, Seen()
        self.consumers = [
            Consumer(
                bootstrap,
                group_id=topic,
                partition_assignment_strategy=assignor,
                auto_offset_reset="earliest",
                heartbeat_interval_ms=200,
                session_timeout_ms=30_000,
            )
            for _ in range(2)
        ]

    async def poll_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                for records in await asyncio.gather(*(consumer.poll(0.1) for consumer in self.consumers)):
                    self.seen += [record.value or b"" for record in records]

    @property
    def shares(self) -> list[int]:
        return [len(consumer.assignment()) for consumer in self.consumers]

    async def subscribe(self) -> None:
        for consumer in self.consumers:
            await consumer.subscribe([self.topic])

    async def close(self) -> None:
        for consumer in self.consumers:
            await consumer.close()


@pytest.mark.parametrize("ours_first", [True, False])
@pytest.mark.parametrize(
    ("assignor", "others"),
    [
        ("range", [rdkafka_member, kafka_python_member, aiokafka_member]),
        ("roundrobin", [rdkafka_member, kafka_python_member, aiokafka_member]),
        ("sticky", [aiokafka_member]),
        ("cooperative-sticky", [rdkafka_member, rdkafka_member]),
    ],
)
async def test_members_of_python_and_c_libraries_share_with_ours(
    broker: BrokerProcess, topic_name: str, assignor: str, others: list[Member], ours_first: bool
) -> None:
    bootstrap = broker.bootstrap
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic_name, PARTITIONS, 1)
    theirs: Seen = []
    ours = Ours(bootstrap, topic_name, assignor)
    members = 2 + len(others)
    fair = {PARTITIONS // members, -(-PARTITIONS // members)}
    with ExitStack() as stack:
        try:
            if ours_first:
                await ours.subscribe()
                await ours.poll_until(lambda: ours.shares == [5, 5])
            for other in others:
                stack.enter_context(thread_of(other, bootstrap, topic_name, assignor, theirs))
            if not ours_first:
                await ours.subscribe()
            await ours.poll_until(lambda: set(ours.shares) <= fair)
            await fill(bootstrap, topic_name)
            await ours.poll_until(lambda: len({*ours.seen, *theirs}) == RECORDS)
            assert theirs
            assert ours.seen
            leaving = asyncio.ensure_future(asyncio.to_thread(stack.close))
            await ours.poll_until(leaving.done)  # who leaves in a rebalance waits for those that poll
            await leaving
            await ours.poll_until(lambda: sum(ours.shares) == PARTITIONS)
        finally:
            await ours.close()


@pytest.mark.parametrize("assignor", JAVA_NAMES)
async def test_a_java_member_shares_with_ours(
    broker: BrokerProcess, topic_name: str, kafka_class_path: str, tmp_path: Path, assignor: str
) -> None:
    bootstrap = broker.bootstrap
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic_name, PARTITIONS, 1)
    ours = Ours(bootstrap, topic_name, assignor)

    def java_seen() -> list[bytes]:
        return (tmp_path / "java.out").read_bytes().split()

    try:
        await ours.subscribe()
        await ours.poll_until(lambda: ours.shares == [5, 5])
        with java_member(kafka_class_path, tmp_path, bootstrap, topic_name, assignor):
            await ours.poll_until(lambda: set(ours.shares) <= {3, 4})
            await fill(bootstrap, topic_name)
            await ours.poll_until(lambda: len({*ours.seen, *java_seen()}) == RECORDS)
            assert java_seen()
        await ours.poll_until(lambda: sum(ours.shares) == PARTITIONS)
    finally:
        await ours.close()
