"""Topics made, configured, enlarged and deleted through either kind of broker, under either kind of controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker import Admin
from kbroker.client.types import ResourceType
from kbroker.protocol.messages.configs import DescribeConfigsRequest
from tests.faults.cluster_view import TIMEOUT, until
from tests.fixtures.java import JavaTool
from tests.fixtures.kafka import KAFKA, KBROKER
from tests.mixed.cluster import MixedCluster
from tests.system.wire import Peer

TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"
CONFIG_COMMAND = "kafka.admin.ConfigCommand"
KINDS = {1: KAFKA, 2: KAFKA, 3: KBROKER}

pytestmark = [pytest.mark.compat, pytest.mark.timeout(600)]


def folders(cluster: MixedCluster, topic: str) -> list[Path]:
    """What all brokers keep of a topic."""
    return [
        found
        for broker in cluster.brokers.values()
        for found in broker.log_dir.glob(f"{topic}-*")
        if not found.name.endswith("-delete")
    ]


def retention(cluster: MixedCluster, broker_id: int, topic: str) -> str | None:
    """retention.ms of the topic as one broker knows it."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name=topic, configuration_keys=["retention.ms"]
    )
    with Peer(cluster.brokers[broker_id]) as peer:
        (result,) = peer.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    return next((str(config.value) for config in result.configs), None)


@pytest.mark.parametrize("controller", [1, 3])
def test_topics_live_their_lives_through_either_kind(
    mixed_cluster: MixedCluster, java_tool: JavaTool, controller: int
) -> None:
    cluster = mixed_cluster
    cluster.start({controller: KINDS[controller], **KINDS})
    for broker_id, topic in ((1, "through-kafka"), (3, "through-ours")):
        server = ("--bootstrap-server", cluster.brokers[broker_id].bootstrap)
        chosen = (*server, "--topic", topic)
        java_tool(TOPIC_COMMAND, *chosen, "--create", "--partitions", "2", "--replication-factor", "3")
        cluster.until_whole(topic)
        # What ZooKeeper says, brokers may hear a little later; the tool asks any of them.
        until(
            lambda topic=topic: None not in [retention(cluster, each, topic) for each in KINDS],  # type: ignore[misc]
            f"not all brokers know of {topic}",
        )
        java_tool(TOPIC_COMMAND, *chosen, "--alter", "--partitions", "4")
        until(lambda topic=topic: len(folders(cluster, topic)) == 12, f"no 12 replicas of {topic}")  # type: ignore[misc]
        cluster.until_whole(topic)
        entity = (*server, "--entity-type", "topics", "--entity-name", topic)
        java_tool(CONFIG_COMMAND, *entity, "--alter", "--add-config", "retention.ms=86400000")
        for asked in (1, 2, 3):
            until(
                lambda asked=asked, topic=topic: retention(cluster, asked, topic) == "86400000",  # type: ignore[misc]
                f"broker {asked} does not know of the change",
            )
        java_tool(TOPIC_COMMAND, *chosen, "--delete")
        until(lambda topic=topic: not folders(cluster, topic), f"{topic} is still there")  # type: ignore[misc]


@pytest.mark.parametrize("controller", [1, 3])
@pytest.mark.parametrize("away", [2, 3])
def test_a_topic_is_deleted_while_a_broker_is_away(mixed_cluster: MixedCluster, controller: int, away: int) -> None:
    cluster = mixed_cluster
    cluster.start({controller: KINDS[controller], **KINDS})
    cluster.create_topic("t")
    until(lambda: len(folders(cluster, "t")) == 9, "no nine replicas")
    cluster.kill(away)
    cluster.until_led_by_another("t", away, range(3))
    cluster.until_controller(1 if away == 3 else controller)
    with Admin(cluster.running_bootstrap) as admin:
        admin.delete_topic("t")
    until(lambda: not any(f.parent.parent.name != f"broker-{away}" for f in folders(cluster, "t")), "not deleted")
    assert folders(cluster, "t")
    cluster.start_broker(away, KINDS[away])
    until(lambda: not folders(cluster, "t"), "the broker that was away keeps it", 2 * TIMEOUT)
    until(lambda: cluster.kazoo.exists("/brokers/topics/t") is None, "the topic's node is still there")
