"""librdkafka's Python client in the tests of groups: topics, records, members."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

confluent_kafka = pytest.importorskip("confluent_kafka")
admin_module = pytest.importorskip("confluent_kafka.admin")

TIMEOUT = 60.0
MakeMember = Callable[..., Any]


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    new = admin_module.NewTopic(name, num_partitions=partitions, replication_factor=1)
    admin = admin_module.AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([new])[name].result(TIMEOUT)


def produce(bootstrap: str, topic: str, partitions: int, per_partition: int) -> None:
    """Write the numbers from 0 on to each partition."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(per_partition):
        for partition in range(partitions):
            producer.produce(topic, value=b"%d" % number, partition=partition)
    assert producer.flush(TIMEOUT) == 0


@contextmanager
def members(bootstrap: str, topic: str, **settings: Any) -> Iterator[MakeMember]:
    """Yield a factory of consumers in the group that is called like the topic; they are closed at the end."""
    made: list[Any] = []

    def make(**more: Any) -> Any:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": topic,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **settings,
                **more,
            }
        )
        made.append(consumer)
        consumer.subscribe([topic])
        return consumer

    yield make
    for consumer in made:
        consumer.close()


def poll_until(condition: Callable[[], bool], *consumers: Any) -> list[Any]:
    """Poll all consumers in turn; return the messages they read until the condition holds."""
    read: list[Any] = []
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            read += [message for message in consumer.consume(100, timeout=0.05) if message.error() is None]
    return read
