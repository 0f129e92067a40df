"""The client's tests run against our broker, and against Apache Kafka where that can be started."""

import os

import pytest

from kbroker.client.admin import Admin


@pytest.fixture
def kafka_bootstrap(request: pytest.FixtureRequest) -> str:
    """A real Kafka: $KAFKA_BOOTSTRAP, or the session's."""
    return os.environ.get("KAFKA_BOOTSTRAP") or str(request.getfixturevalue("kafka_broker").bootstrap)


@pytest.fixture(params=["kbroker", pytest.param("kafka", marks=pytest.mark.slow)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Address of our broker, and in turn of Kafka's."""
    if request.param == "kafka":
        return str(request.getfixturevalue("kafka_bootstrap"))
    return str(request.getfixturevalue("broker").bootstrap)


@pytest.fixture
async def topic(bootstrap: str, topic_name: str) -> str:
    """A fresh topic of three partitions."""
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic_name, 3, 1, {"retention.ms": "-1"})
    return topic_name
