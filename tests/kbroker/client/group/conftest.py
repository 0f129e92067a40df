"""A Kafka without ZooKeeper: only there it has the newer group protocol (KIP-848)."""

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.client.admin import Admin
from kbroker.dev.free_ports import free_ports
from tests.fixtures.java import JVM_FLAGS

START_S = 90.0
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.coordinator.rebalance.protocols=classic,consumer
group.consumer.min.heartbeat.interval.ms=200
group.consumer.heartbeat.interval.ms=200
"""


@pytest.fixture(scope="session")
def kraft_bootstrap(kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("kraft")
    port, controller = free_ports(2)
    properties, logging = folder / "server.properties", folder / "log4j.properties"
    properties.write_text(PROPERTIES.format(port=port, controller=controller, data=folder / "data"))
    logging.write_text("log4j.rootLogger=OFF\n")
    java = ["java", *JVM_FLAGS, "-Xmx512m", f"-Dlog4j.configuration={logging.as_uri()}", "-cp", kafka_class_path]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    formatting = [*java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(properties)]
    subprocess.run(formatting, check=True, timeout=START_S, capture_output=True, env=environment)
    with (folder / "broker.log").open("wb") as log:
        broker = subprocess.Popen([*java, "kafka.Kafka", str(properties)], stdout=log, stderr=log, env=environment)
    try:
        asyncio.run(wait_until_it_serves(f"127.0.0.1:{port}", broker, folder))
        yield f"127.0.0.1:{port}"
    finally:
        broker.kill()
        broker.wait(30)


async def wait_until_it_serves(bootstrap: str, broker: "subprocess.Popen[bytes]", folder: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        assert broker.poll() is None, (folder / "broker.log").read_text()
        assert time.monotonic() < deadline, (folder / "broker.log").read_text()
        try:
            async with Admin(bootstrap) as admin:
                if (await admin.describe_cluster()).brokers:
                    return
        except OSError:
            await asyncio.sleep(0.2)
