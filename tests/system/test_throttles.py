"""Replication held back by quotas (KIP-73), set by our client and by Kafka's tools."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kbroker import Admin, Producer, TopicPartition
from kbroker.dev.cluster import DevCluster
from tests.fixtures.brokers import MakeCluster
from tests.fixtures.java import JavaTool
from tests.system.test_replication import until
from tests.system.wire import read_all

pytestmark = pytest.mark.slow

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
BATCHES, BATCH_BYTES = 64, 100_000
RATE = 500_000
SLOW_RATE = 50_000
HELD_BACK_S = 4.0
"""So long at least it takes to copy everything at RATE; without it, well under a second."""
LEADER, FOLLOWER = 1, 2
SIDES = {
    "leader": ("leader.replication.throttled.replicas", f"0:{LEADER}"),
    "follower": ("follower.replication.throttled.replicas", f"0:{FOLLOWER}"),
}


class Copying:
    """A partition on broker 1 that is to be copied to broker 2."""

    def __init__(self, make_cluster: MakeCluster, topic: str) -> None:
        properties = {"replication.quota.window.num": "4", "replica.fetch.max.bytes": "200000"}
        self.cluster: DevCluster = make_cluster(2, properties=properties)
        self.topic = topic
        self.partition = TopicPartition(topic, 0)
        with Admin(self.cluster.bootstrap) as admin:
            admin.create_topic(topic, assignments={0: [LEADER]})
        self.leader, self.follower = self.cluster.broker(LEADER), self.cluster.broker(FOLLOWER)
        with Producer(self.cluster.bootstrap, acks="all") as producer:
            for number in range(BATCHES):
                producer.send(topic, b"%d " % number + bytes(BATCH_BYTES))
            producer.flush(30)

    def copied(self) -> int:
        """Bytes of the replica on broker 2."""
        folder = Path(self.follower.log_dir) / f"{self.topic}-0"
        return sum(file.stat().st_size for file in folder.glob("*.log"))

    def is_in_sync(self) -> bool:
        with Admin(self.cluster.bootstrap) as admin:
            return FOLLOWER in admin.describe_topics([self.topic])[self.topic].partitions[0].isr

    def until_known(self, side: str, rate: int) -> None:
        """Wait until the broker has read the rate, and so what was set before, from ZooKeeper."""
        key, broker = f"{side}.replication.throttled.rate", self.leader if side == "leader" else self.follower
        with Admin(broker.bootstrap) as admin:
            name = str(broker.broker_id)
            until(lambda: admin.describe_configs("broker", [name], [key])[name][key].value == str(rate))

    def check(self) -> None:
        assert len(read_all(self.leader, self.topic, 0)) == BATCHES
        until(lambda: self.copied() > BATCHES * BATCH_BYTES)


@pytest.fixture
def copying(make_cluster: MakeCluster, topic_name: str) -> Copying:
    return Copying(make_cluster, topic_name)


@pytest.mark.parametrize("side", SIDES)
def test_a_throttled_replica_is_copied_no_faster_than_the_rate_until_that_is_raised(
    copying: Copying, side: str
) -> None:
    key, replicas = SIDES[side]
    with Admin(copying.cluster.bootstrap) as admin:
        admin.alter_configs("topic", copying.topic, {key: replicas})
        admin.alter_configs("broker", "", {f"{side}.replication.throttled.rate": str(SLOW_RATE)})
        copying.until_known(side, SLOW_RATE)
        admin.alter_reassignments({copying.partition: [LEADER, FOLLOWER]})
        until(lambda: copying.copied() > 0)
        time.sleep(HELD_BACK_S / 2)
        assert 0 < copying.copied() < BATCHES * BATCH_BYTES / 2
        assert not copying.is_in_sync()
        admin.alter_configs("broker", "", {f"{side}.replication.throttled.rate": None})
        until(copying.is_in_sync)
        admin.alter_configs("topic", copying.topic, {key: None})
    copying.check()


def test_kafkas_reassignment_tool_throttles_and_takes_the_throttle_away(
    copying: Copying, java_tool: JavaTool, tmp_path: Path
) -> None:
    server = ("--bootstrap-server", copying.cluster.bootstrap)
    plan = tmp_path / "plan.json"
    moved = {"topic": copying.topic, "partition": 0, "replicas": [FOLLOWER]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    chosen = (*server, "--reassignment-json-file", str(plan))
    begun = time.monotonic()
    executed = java_tool(REASSIGN, *chosen, "--execute", "--throttle", str(RATE))
    assert "Successfully started partition reassignment" in executed, executed
    described = java_tool(CONFIGS, *server, "--entity-type", "brokers", "--entity-name", "1", "--describe")
    assert f"leader.replication.throttled.rate={RATE}" in described, described

    def is_moved() -> bool:
        with Admin(copying.cluster.bootstrap) as admin:
            return admin.describe_topics([copying.topic])[copying.topic].partitions[0].replicas == (FOLLOWER,)

    until(is_moved, 90)
    assert time.monotonic() - begun > HELD_BACK_S
    verified = java_tool(REASSIGN, *chosen, "--verify")
    assert f"Reassignment of partition {copying.topic}-0 is completed" in verified, verified
    assert "Clearing broker-level throttles" in verified, verified
    keys = ["leader.replication.throttled.replicas", "follower.replication.throttled.replicas"]

    def is_cleared() -> bool:
        with Admin(copying.cluster.bootstrap) as admin:
            found = admin.describe_configs("topic", [copying.topic], keys)[copying.topic]
        return [found[key].value for key in keys] == ["", ""]

    until(is_cleared)  # each broker hears of it a little later
    assert len(read_all(copying.follower, copying.topic, 0)) == BATCHES


def test_kafkas_config_tool_sets_the_throttle(copying: Copying, java_tool: JavaTool) -> None:
    server = ("--bootstrap-server", copying.cluster.bootstrap)
    topic = (*server, "--entity-type", "topics", "--entity-name", copying.topic, "--alter")
    java_tool(CONFIGS, *topic, "--add-config", "follower.replication.throttled.replicas=*")
    broker = (*server, "--entity-type", "brokers", "--entity-name", str(FOLLOWER), "--alter")
    java_tool(CONFIGS, *broker, "--add-config", f"follower.replication.throttled.rate={SLOW_RATE}")
    copying.until_known("follower", SLOW_RATE)
    with Admin(copying.cluster.bootstrap) as admin:
        admin.alter_reassignments({copying.partition: [LEADER, FOLLOWER]})
    time.sleep(HELD_BACK_S / 2)
    assert not copying.is_in_sync()
    java_tool(CONFIGS, *broker, "--delete-config", "follower.replication.throttled.rate")
    until(copying.is_in_sync)
    copying.check()
