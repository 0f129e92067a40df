"""The client's tests run against our broker, and against Apache Kafka where that can be started."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.client.admin import Admin
from kbroker.dev.free_ports import free_ports

ANCHOR = Path(__file__).parents[4] / "shared" / "kafka-anchor.sh"


@pytest.fixture(scope="session")
def kafka_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Kafka: $KAFKA_BOOTSTRAP, or one started here."""
    given = os.environ.get("KAFKA_BOOTSTRAP")
    if given:
        yield given
        return
    if not ANCHOR.exists() or shutil.which("mvn") is None:
        pytest.skip("Apache Kafka cannot be started here")
    zookeeper_port, kafka_port = free_ports(2)
    directory = tmp_path_factory.mktemp("kafka")
    ports = {"ZOOKEEPER_PORT": str(zookeeper_port), "KAFKA_PORT": str(kafka_port - 1)}
    environment = {**os.environ, "ANCHOR_DIR": str(directory), **ports}
    try:
        subprocess.run(["bash", str(ANCHOR), "start"], env=environment, check=True, timeout=110, capture_output=True)
        yield f"127.0.0.1:{kafka_port}"
    finally:
        subprocess.run(["bash", str(ANCHOR), "stop"], env=environment, check=False, timeout=60, capture_output=True)


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
