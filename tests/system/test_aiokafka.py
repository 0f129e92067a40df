"""aiokafka: produce, consume, administer, in one event loop."""

from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.system.records import CODECS, SystemRecord, all_sorts_of_records

pytestmark = pytest.mark.slow
aiokafka = pytest.importorskip("aiokafka")
admin_module = pytest.importorskip("aiokafka.admin")

TIMEOUT = 60.0


async def produce(broker: BrokerProcess, topic: str, records: list[SystemRecord], **settings: Any) -> list[int]:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=20, **settings) as producer:
        futures = [
            await producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                timestamp_ms=record.timestamp,
                partition=0,
            )
            for record in records
        ]
        return [(await future).offset for future in futures]


async def consume(broker: BrokerProcess, topic: str, count: int, **settings: Any) -> list[Any]:
    async with aiokafka.AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, enable_auto_commit=False, **settings
    ) as consumer:
        partition = aiokafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        messages: list[Any] = []
        while len(messages) < count:
            polled = await consumer.getmany(timeout_ms=int(TIMEOUT * 1000))
            assert polled, "nothing came in time"
            for part in polled.values():
                messages += part
        return messages


def as_record(message: Any) -> SystemRecord:
    return SystemRecord(message.key, message.value, message.timestamp, tuple(message.headers))


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", CODECS)
async def test_every_record_comes_back_as_it_was_sent(
    broker: BrokerProcess, topic_name: str, codec: str, idempotent: bool, isolation_level: str
) -> None:
    records = all_sorts_of_records()
    settings: dict[str, Any] = {"compression_type": None if codec == "none" else codec}
    if idempotent:
        settings["enable_idempotence"] = True
    assert await produce(broker, topic_name, records, **settings) == list(range(len(records)))
    messages = await consume(broker, topic_name, len(records), isolation_level=isolation_level)
    assert [message.offset for message in messages] == list(range(len(records)))
    assert [as_record(message) for message in messages] == records


async def test_the_topic_is_made_described_widened_and_deleted(broker: BrokerProcess, topic_name: str) -> None:
    admin = admin_module.AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([admin_module.NewTopic(topic_name, num_partitions=2, replication_factor=1)])
        (described,) = await admin.describe_topics([topic_name])
        assert len(described["partitions"]) == 2
        await admin.create_partitions({topic_name: admin_module.NewPartitions(4)})
        (described,) = await admin.describe_topics([topic_name])
        assert len(described["partitions"]) == 4
        await admin.delete_topics([topic_name])
        assert topic_name not in await admin.list_topics()
    finally:
        await admin.close()
