"""Consumers that read from the replica in their rack (KIP-392), and never see what may be taken back."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer

from kbroker import Admin, Consumer, Producer, TopicPartition
from kbroker.client.errors import UnknownTopicOrPartitionError
from kbroker.client.plain_cluster import PlainCluster
from kbroker.dev.broker_process import BrokerProcess
from tests.fixtures.brokers import MakeBroker, kill_and_expire
from tests.fixtures.java import JavaTool
from tests.system.test_replication import until
from tests.system.wire import Peer, fetch, fetch_request, one_batch, produce, produce_request, read_copy

pytestmark = pytest.mark.slow

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER, FOLLOWER = 1, 2
RECORDS = 300
PROPERTIES = {
    "replica.selector.class": SELECTOR,
    "zookeeper.session.timeout.ms": "12000",
    "replica.fetch.wait.max.ms": "100",
    "unclean.leader.election.enable": "false",
}


class Racks:
    """Brokers 1, 2, 3 in the racks r1, r2, r3; a topic of one partition that broker 1 leads."""

    def __init__(self, make_broker: MakeBroker, topic: str, **configs: str) -> None:
        self.topic = topic
        self.brokers = {
            broker_id: make_broker(broker_id, properties={**PROPERTIES, "broker.rack": f"r{broker_id}"}, wait=False)
            for broker_id in (1, 2, 3)
        }
        for broker in self.brokers.values():
            broker.wait_until_ready(60)
        with Admin(self.bootstrap) as admin:
            admin.create_topic(topic, assignments={0: [1, 2, 3]}, configs=configs)
        self.until_in_sync()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def broker(self, broker_id: int) -> BrokerProcess:
        return self.brokers[broker_id]

    def until_in_sync(self) -> None:
        def in_sync() -> bool:
            with contextlib.suppress(UnknownTopicOrPartitionError):  # the broker asked may not have heard of it yet
                return set(admin.describe_topics([self.topic])[self.topic].partitions[0].isr) == {1, 2, 3}
            return False

        with Admin(self.bootstrap) as admin:
            until(in_sync)

    def fill(self, count: int = RECORDS) -> None:
        with Producer(self.bootstrap, acks="all", linger_ms=5) as producer:
            for number in range(count):
                producer.send(self.topic, b"%d" % number)
            producer.flush(30)

    def until_everywhere(self, offset: int) -> None:
        """Wait until consumers may read up to the offset at every replica."""

        def high_watermarks() -> set[int]:
            found = set()
            for broker in self.brokers.values():
                with Peer(broker) as peer:
                    found.add(fetch(peer, self.topic, 0).high_watermark)
            return found

        until(lambda: high_watermarks() == {offset})


@pytest.fixture
def racks(make_broker: MakeBroker, topic_name: str) -> Racks:
    return Racks(make_broker, topic_name)


@pytest.fixture
def leader_hangs(racks: Racks) -> Iterator[BrokerProcess]:
    """The leader, to be made to hang: it goes on in the end."""
    broker = racks.broker(LEADER)
    yield broker
    broker.resume()


def read_values(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(values) < count:
        assert time.monotonic() < deadline, len(values)
        values += [bytes(record.value or b"") for record in consumer.poll(0.5)]
    return values


def test_our_consumer_reads_from_its_rack_and_goes_back_to_the_leader_when_that_broker_is_gone(racks: Racks) -> None:
    racks.fill()
    racks.until_everywhere(RECORDS)
    with Consumer(racks.bootstrap, client_rack="r2", max_partition_fetch_bytes=500, prefetch_bytes=500) as consumer:
        consumer.assign([TopicPartition(racks.topic, 0)])
        consumer.seek_to_beginning()
        expected = [b"%d" % number for number in range(RECORDS)]
        values = read_values(consumer, 50)
        state = consumer._client._assignment.states[TopicPartition(racks.topic, 0)]
        assert state.replica == FOLLOWER
        kill_and_expire(racks.broker(FOLLOWER))
        values += read_values(consumer, RECORDS - len(values))
        assert values == expected


def test_our_ranges_are_read_from_the_rack_even_while_the_leader_hangs(
    racks: Racks, leader_hangs: BrokerProcess
) -> None:
    range_reader = pytest.importorskip("kbroker.client.range_reader")
    racks.fill()
    racks.until_everywhere(RECORDS)
    options = {"client.rack": "r2", "max.partition.fetch.bytes": 500}
    with PlainCluster(racks.bootstrap, options) as cluster:
        values: list[bytes] = []
        for batch in range_reader.RangeReader(cluster, racks.topic, 0, 0, RECORDS, max_rows=20):
            leader_hangs.pause()
            values += batch["value"].to_pylist()
    assert values == [b"%d" % number for number in range(RECORDS)]


def test_confluent_kafka_reads_from_its_rack(racks: Racks) -> None:
    racks.fill()
    racks.until_everywhere(RECORDS)
    sources: set[int] = set()

    def note(text: str) -> None:
        partition: dict[str, Any] = json.loads(text)["topics"].get(racks.topic, {}).get("partitions", {}).get("0", {})
        if partition.get("fetch_state") == "active":
            sources.add(partition["broker"])

    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": racks.bootstrap,
            "group.id": racks.topic,
            "client.rack": "r2",
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 50,
            "stats_cb": note,
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([racks.topic])
        values: list[bytes] = []
        deadline = time.monotonic() + 60
        while len(values) < RECORDS or FOLLOWER not in sources:
            assert time.monotonic() < deadline, (len(values), sources)
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
        assert values == [b"%d" % number for number in range(RECORDS)]
    finally:
        consumer.close()


def test_kafkas_consumer_reads_from_its_rack(racks: Racks, java_tool: JavaTool, tmp_path: Any) -> None:
    racks.fill()
    racks.until_everywhere(RECORDS)
    read = java_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", racks.bootstrap, "--topic", racks.topic, "--partition", "0", "--offset", "earliest"),
        *("--max-messages", str(RECORDS), "--timeout-ms", "30000", "--consumer-property", "client.rack=r3"),
    )
    assert read.split() == [str(number) for number in range(RECORDS)]


def test_a_leader_hands_out_nothing_that_may_be_taken_back(make_broker: MakeBroker, topic_name: str) -> None:
    racks = Racks(make_broker, topic_name, **{"min.insync.replicas": "2"})
    racks.fill(10)
    racks.until_everywhere(10)
    followers = [racks.broker(broker_id) for broker_id in (2, 3)]
    try:
        for follower in followers:
            follower.pause()
        with Peer(racks.broker(LEADER)) as peer:
            for _ in range(3):
                answer = peer.ask(produce_request(topic_name, one_batch(b"lost"), acks=1), 9)
                assert not answer.responses[0].partition_responses[0].error_code
            answer = fetch(peer, topic_name, 10, max_wait_ms=300)
            assert (answer.error_code, answer.high_watermark, answer.records or b"") == (0, 10, b"")
            assert not fetch(peer, topic_name, 12).error_code, "it exists, and is not to be seen"
        kill_and_expire(racks.broker(LEADER))
    finally:
        for follower in followers:
            follower.resume()
    with Admin(",".join(each.bootstrap for each in followers)) as admin:
        until(lambda: admin.describe_topics([topic_name])[topic_name].partitions[0].leader in (2, 3))
        leader = racks.broker(admin.describe_topics([topic_name])[topic_name].partitions[0].leader or 0)
    with Peer(leader) as peer:
        kept = produce(peer, topic_name, one_batch(b"kept")).base_offset
        assert kept <= 11, "at most the first one was on its way to the followers when they were halted"
    racks.broker(LEADER).start().wait_until_ready(60)
    racks.until_in_sync()
    racks.until_everywhere(kept + 1)
    expected = [*(b"%d" % number for number in range(10)), b"lost", b"kept"]
    if kept == 10:
        expected.remove(b"lost")
    for broker in racks.brokers.values():
        assert read_copy(broker, topic_name, 0) == expected


def test_a_follower_hands_out_nothing_above_its_high_watermark_and_wakes_who_waits(racks: Racks) -> None:
    racks.fill(10)
    racks.until_everywhere(10)
    with Peer(racks.broker(FOLLOWER)) as reader, Peer(racks.broker(LEADER)) as writer:
        for number in range(10, 30):
            request = fetch_request(racks.topic, number, max_wait_ms=60_000)  # for longer than the reader waits
            produce(writer, racks.topic, one_batch(b"%d" % number))
            answer = reader.ask(request, 12).responses[0].partitions[0]
            assert not answer.error_code
            assert answer.high_watermark == number + 1
            assert len(answer.records) > 0
        beyond = fetch(reader, racks.topic, 31)
        assert beyond.error_code == 1
