"""kafka-python: produce, consume, administer."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.system.records import CODECS, SystemRecord, all_sorts_of_records

pytestmark = pytest.mark.slow
kafka = pytest.importorskip("kafka")
admin_module = pytest.importorskip("kafka.admin")

TIMEOUT = 60.0


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Any]:
    client = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


@pytest.fixture
def topic(admin: Any, topic_name: str) -> Iterator[str]:
    admin.create_topics([admin_module.NewTopic(topic_name, num_partitions=1, replication_factor=1)])
    yield topic_name
    admin.delete_topics([topic_name])


def produce(broker: BrokerProcess, topic: str, records: list[SystemRecord], **settings: Any) -> list[int]:
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=20, **settings)
    try:
        futures = [
            producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                timestamp_ms=record.timestamp,
                partition=0,
            )
            for record in records
        ]
        return [future.get(TIMEOUT).offset for future in futures]
    finally:
        producer.close(timeout=TIMEOUT)


def consume(broker: BrokerProcess, topic: str, count: int, offset: int = 0) -> list[Any]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, enable_auto_commit=False)
    try:
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, offset)
        messages: list[Any] = []
        deadline = time.monotonic() + TIMEOUT
        while len(messages) < count and time.monotonic() < deadline:
            for polled in consumer.poll(timeout_ms=1000).values():
                messages += polled
        return messages[:count]
    finally:
        consumer.close()


def has_snappy() -> bool:
    from kafka.codec import has_snappy as client_has_snappy

    return bool(client_has_snappy())


def as_record(message: Any) -> SystemRecord:
    return SystemRecord(message.key, message.value, message.timestamp, tuple(message.headers))


@pytest.mark.parametrize("codec", CODECS)
def test_every_record_comes_back_as_it_was_sent(broker: BrokerProcess, topic: str, codec: str) -> None:
    if codec == "snappy" and not has_snappy():
        pytest.skip("the client finds no snappy library")
    # The client cannot write a header that is null.
    records = [record for record in all_sorts_of_records() if all(value is not None for _, value in record.headers)]
    compression = None if codec == "none" else codec
    assert produce(broker, topic, records, compression_type=compression) == list(range(len(records)))
    messages = consume(broker, topic, len(records))
    assert [message.offset for message in messages] == list(range(len(records)))
    assert [as_record(message) for message in messages] == records


def test_offsets_are_found_by_time_and_at_both_ends(broker: BrokerProcess, topic: str) -> None:
    records = all_sorts_of_records()[8:]
    produce(broker, topic, records)
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, enable_auto_commit=False)
    try:
        partition = kafka.TopicPartition(topic, 0)
        assert consumer.offsets_for_times({partition: records[100].timestamp})[partition].offset == 100
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: len(records)}
    finally:
        consumer.close()


def test_the_topic_is_listed_described_and_deleted(admin: Any, topic_name: str) -> None:
    admin.create_topics([admin_module.NewTopic(topic_name, num_partitions=3, replication_factor=1)])
    assert topic_name in admin.list_topics()
    (described,) = admin.describe_topics([topic_name])
    assert len(described["partitions"]) == 3
    admin.delete_topics([topic_name])
    assert topic_name not in admin.list_topics()


def test_the_cluster_is_described(broker: BrokerProcess, admin: Any) -> None:
    described = admin.describe_cluster()
    assert [node["port"] for node in described["brokers"]] == [broker.port]
    assert described["controller_id"] == 1
