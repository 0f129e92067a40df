import pytest

from kbroker.client import errors
from kbroker.client.admin import Admin
from kbroker.client.producer import Producer
from kbroker.client.types import NewTopic, TopicPartition


async def test_topics_come_grow_and_go(bootstrap: str, topic_name: str) -> None:
    names = [f"{topic_name}-{index}" for index in range(3)]
    async with Admin(bootstrap) as admin:
        created = await admin.create_topics([NewTopic(name, 2, 1) for name in names])
        assert sorted(created) == names
        with pytest.raises(errors.TopicAlreadyExistsError, match=names[0]):
            await admin.create_topic(names[0])
        await admin.create_partitions({names[0]: 5})
        assert set(names) <= set(await admin.list_topics())
        await admin.delete_topics(names)
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            await admin.delete_topic(names[0])


async def test_configurations_are_changed_key_by_key(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.alter_configs("topic", topic, {"segment.ms": "12345", "retention.ms": None})
        entries = (await admin.describe_configs("topic", [topic]))[topic]
        assert (entries["segment.ms"].value, entries["segment.ms"].source) == ("12345", "DYNAMIC_TOPIC_CONFIG")
        assert entries["retention.ms"].source != "DYNAMIC_TOPIC_CONFIG"
        with pytest.raises(errors.ConfigurationError, match="'topic' or 'broker'"):
            await admin.describe_configs("tpoic", [topic])


async def test_records_are_deleted_and_counted(bootstrap: str, topic: str) -> None:
    key = TopicPartition(topic, 0)
    async with Producer(bootstrap) as producer:
        for _ in range(10):
            await producer.send(topic, b"x", partition=0)
    async with Admin(bootstrap) as admin:
        assert (await admin.list_offsets([key]))[key].offset == 10
        assert await admin.delete_records({key: 4}) == {key: 4}
        described = await admin.describe_cluster()
        assert described.controller_id in {broker.id for broker in described.brokers}
        sizes = {r.partition: r.size for d in await admin.describe_log_dirs(topics=[topic]) for r in d.replicas}
        assert sizes[0] > 0
