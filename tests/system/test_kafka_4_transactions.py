"""Kafka 4's own producer, which gives each transaction an epoch of its own where the cluster offers that."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kbroker import Admin, Consumer
from kbroker.dev.broker_process import BrokerProcess
from tests.fixtures.brokers import MakeBroker
from tests.fixtures.java import JVM_FLAGS, compiled
from tests.fixtures.maven import maven_class_path

pytestmark = [pytest.mark.slow, pytest.mark.compat]

CLIENTS = "org.apache.kafka:kafka-clients:4.1.0"
PROGRAM = Path(__file__).parents[1] / "mixed" / "Transactions.java"
RUN_S = 120


@pytest.fixture(scope="session")
def program(kafka_class_path: str) -> list[str]:
    """How `java` runs Transactions with the newer client; what that needs besides comes with Kafka 3.9."""
    option, class_path, name = compiled(PROGRAM, kafka_class_path)
    return ["java", *JVM_FLAGS, option, f"{maven_class_path(CLIENTS)}:{class_path}", name]


@pytest.mark.parametrize("version", [0, 2])
def test_its_transactions_have_epochs_of_their_own_where_the_cluster_offers_that(
    make_broker: MakeBroker, topic_name: str, program: list[str], version: int
) -> None:
    broker: BrokerProcess = make_broker(properties={"kbroker.new.cluster.transaction.version": str(version)})
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name, partitions=3)
        command = [*program, broker.bootstrap, topic_name, "3"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split("\n")[:3] == ["committed 0", "aborted 1", "committed 2"]
        found = admin.describe_transactions(["transactions-0"])["transactions-0"]
        assert found.producer_epoch == (3 if version == 2 else 0)
    settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with Consumer(broker.bootstrap, **settings) as consumer:
        consumer.subscribe([topic_name])
        values: list[str] = []
        while len(values) < 60:
            values += [(record.value or b"").decode() for record in consumer.poll(20)]
        assert sorted(values) == sorted(f"{transaction}-{number}" for transaction in (0, 2) for number in range(30))
