"""librdkafka's Python client: produce, consume, administer."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.system.records import CODECS, SystemRecord, all_sorts_of_records

pytestmark = pytest.mark.slow
confluent_kafka = pytest.importorskip("confluent_kafka")
admin_module = pytest.importorskip("confluent_kafka.admin")

TIMEOUT = 60.0


@pytest.fixture
def admin(broker: BrokerProcess) -> Any:
    return admin_module.AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def topic(admin: Any, topic_name: str) -> Iterator[str]:
    create(admin, topic_name)
    yield topic_name
    admin.delete_topics([topic_name])[topic_name].result(TIMEOUT)


def create(admin: Any, name: str, **arguments: Any) -> None:
    new = admin_module.NewTopic(name, **{"num_partitions": 1, "replication_factor": 1, **arguments})
    admin.create_topics([new])[name].result(TIMEOUT)


def produce(broker: BrokerProcess, topic: str, records: list[SystemRecord], **settings: Any) -> list[int]:
    offsets: list[int] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, **settings})
    for record in records:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp,
            partition=0,
            on_delivery=delivered,
        )
    assert producer.flush(TIMEOUT) == 0
    return offsets


def consume(broker: BrokerProcess, topic: str, count: int, offset: int = 0, **settings: Any) -> list[Any]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False, **settings}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, offset)])
        messages: list[Any] = []
        deadline = time.monotonic() + TIMEOUT
        while len(messages) < count and time.monotonic() < deadline:
            messages += consumer.consume(count - len(messages), timeout=1.0)
        for message in messages:
            assert message.error() is None, message.error()
        return messages
    finally:
        consumer.close()


def as_record(message: Any) -> SystemRecord:
    return SystemRecord(message.key(), message.value(), message.timestamp()[1], tuple(message.headers() or ()))


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_every_record_comes_back_as_it_was_sent(
    broker: BrokerProcess, topic: str, codec: str, idempotent: bool
) -> None:
    records = all_sorts_of_records()
    settings = {"compression.type": codec, "enable.idempotence": idempotent, "acks": "all"}
    assert produce(broker, topic, records, **settings) == list(range(len(records)))
    messages = consume(broker, topic, len(records))
    assert [message.offset() for message in messages] == list(range(len(records)))
    assert [as_record(message) for message in messages] == records


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_all_kinds_of_acknowledgement_store_the_records(broker: BrokerProcess, topic: str, acks: str) -> None:
    records = all_sorts_of_records()[:50]
    produce(broker, topic, records, acks=acks)
    assert [as_record(message) for message in consume(broker, topic, len(records))] == records


def test_offsets_are_found_by_time_and_reading_starts_there(broker: BrokerProcess, topic: str) -> None:
    records = all_sorts_of_records()[8:]
    produce(broker, topic, records)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    try:
        wanted = confluent_kafka.TopicPartition(topic, 0, records[100].timestamp)
        (found,) = consumer.offsets_for_times([wanted], timeout=TIMEOUT)
        assert found.offset == 100
        assert consumer.get_watermark_offsets(wanted, timeout=TIMEOUT) == (0, len(records))
    finally:
        consumer.close()
    (message,) = consume(broker, topic, 1, offset=found.offset)
    assert as_record(message) == records[100]


def test_the_topic_is_listed_described_widened_and_deleted(broker: BrokerProcess, admin: Any, topic_name: str) -> None:
    create(admin, topic_name, num_partitions=3, config={"retention.ms": "86400000"})
    metadata = admin.list_topics(topic_name, timeout=TIMEOUT).topics[topic_name]
    assert sorted(metadata.partitions) == [0, 1, 2]
    assert {partition.leader for partition in metadata.partitions.values()} == {1}
    admin.create_partitions([admin_module.NewPartitions(topic_name, 5)])[topic_name].result(TIMEOUT)
    described = admin.describe_topics(confluent_kafka.TopicCollection([topic_name]))[topic_name].result(TIMEOUT)
    assert len(described.partitions) == 5
    admin.delete_topics([topic_name])[topic_name].result(TIMEOUT)
    assert topic_name not in admin.list_topics(timeout=TIMEOUT).topics


def test_topic_settings_are_described_and_altered(admin: Any, topic: str) -> None:
    resource = admin_module.ConfigResource(admin_module.ResourceType.TOPIC, topic)
    before = admin.describe_configs([resource])[resource].result(TIMEOUT)
    assert before["cleanup.policy"].value == "delete"
    resource.add_incremental_config(
        admin_module.ConfigEntry("retention.ms", "123456", incremental_operation=admin_module.AlterConfigOpType.SET)
    )
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT)
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        entry = admin.describe_configs([resource])[resource].result(TIMEOUT)["retention.ms"]
        if entry.value == "123456":
            break
        time.sleep(0.05)
    assert entry.value == "123456"
    assert not entry.is_default


def test_records_before_an_offset_are_deleted(broker: BrokerProcess, admin: Any, topic: str) -> None:
    produce(broker, topic, all_sorts_of_records())
    request = confluent_kafka.TopicPartition(topic, 0, 100)
    deleted = admin.delete_records([request])[request].result(TIMEOUT)
    assert deleted.low_watermark == 100
    (message,) = consume(broker, topic, 1, offset=confluent_kafka.OFFSET_BEGINNING)
    assert message.offset() == 100


def test_the_cluster_is_described(broker: BrokerProcess, admin: Any) -> None:
    cluster = admin.describe_cluster().result(TIMEOUT)
    assert [(node.id, node.host, node.port) for node in cluster.nodes] == [(1, "127.0.0.1", broker.port)]
    assert cluster.controller.id == 1
    assert cluster.cluster_id


def test_a_record_that_is_too_large_is_refused_and_the_next_one_taken(broker: BrokerProcess, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 10_000_000})
    errors: list[Any] = []
    producer.produce(topic, value=b"x" * 2_000_000, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT) == 0
    assert errors[0].code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE
    assert produce(broker, topic, all_sorts_of_records()[:1]) == [0]


def test_writing_to_an_unknown_topic_makes_it(broker: BrokerProcess, admin: Any, topic_name: str) -> None:
    produce(broker, topic_name, all_sorts_of_records()[:3])
    assert len(consume(broker, topic_name, 3)) == 3
    admin.delete_topics([topic_name])[topic_name].result(TIMEOUT)
