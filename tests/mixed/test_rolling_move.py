"""A cluster of Kafka's becomes one of ours, broker by broker, under load, and back: as the page says."""

from __future__ import annotations

import pytest

from tests.faults.cluster_view import BROKERS
from tests.faults.load import Load
from tests.fixtures.java import JavaTool
from tests.fixtures.kafka import KAFKA, JavaBroker
from tests.mixed.cluster import MixedCluster
from tests.mixed.howto import Howto, commands, properties
from tests.mixed.test_failures import WRITERS
from tests.mixed.test_groups import Group


def test_the_page_has_the_steps_that_the_test_follows() -> None:
    kinds = [command.split()[0] for command in commands("Each broker")]
    assert kinds == ["kafka-topics.sh", "kafka-server-stop.sh", "kbroker", "kbroker", "kbroker"]
    assert len(commands("Going back")) == 1
    assert properties()["min.insync.replicas"] == "2"


@pytest.mark.compat
@pytest.mark.timeout(1200)
def test_a_cluster_moves_from_kafka_to_ours_and_back(mixed_cluster: MixedCluster, java_tool: JavaTool) -> None:
    cluster = mixed_cluster
    cluster.properties |= properties()
    cluster.start(dict.fromkeys(BROKERS, KAFKA))
    cluster.create_topic("t")
    howto = Howto(cluster, java_tool)
    group = Group(cluster, "movers")
    with Load(cluster, "t", WRITERS) as load:
        group.read_some("t")
        controller = howto.controller()
        order = [*(each for each in BROKERS if each != controller), controller]
        for broker_id in order:
            howto.move(broker_id)
            load.until_progress()
            group.read_some("t")
        assert not any(isinstance(broker, JavaBroker) for broker in cluster.brokers.values())
        for broker_id in reversed(order):
            howto.move_back(broker_id)
            load.until_progress()
            group.read_some("t")
        assert all(isinstance(broker, JavaBroker) for broker in cluster.brokers.values())
        load.finish_and_check()
    cluster.until_identical("__consumer_offsets")
