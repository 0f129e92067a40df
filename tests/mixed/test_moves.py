"""Partitions move onto our broker and off it again under load, asked for by Kafka's tools and by ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from kbroker import Admin
from tests.faults.cluster_view import until
from tests.faults.load import Load
from tests.fixtures.java import JavaTool
from tests.fixtures.kafka import KAFKA, KBROKER
from tests.mixed.cluster import JavaWriter, MixedCluster

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
KINDS = {1: KAFKA, 2: KAFKA, 3: KBROKER}

pytestmark = [pytest.mark.compat, pytest.mark.timeout(600)]


def until_moved(cluster: MixedCluster, topic: str, replicas: Sequence[int]) -> None:
    """Wait until both partitions are on these brokers, all in sync, and nowhere else."""
    for partition in (0, 1):
        until(lambda p=partition: cluster.replicas(topic, p) == tuple(replicas), f"{topic}-{partition} is not moved")  # type: ignore[misc]
    cluster.until_whole(topic)
    for broker_id, broker in cluster.brokers.items():
        if broker_id not in replicas:
            folders = [broker.log_dir / f"{topic}-{partition}" for partition in (0, 1)]
            until(lambda folders=folders: not any(map(Path.exists, folders)), f"left on broker {broker_id}")  # type: ignore[misc]


def move_with_kafkas_tool(
    java_tool: JavaTool, cluster: MixedCluster, plan: Path, topic: str, replicas: Sequence[int]
) -> None:
    partitions = [{"topic": topic, "partition": partition, "replicas": list(replicas)} for partition in (0, 1)]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    arguments = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan))
    java_tool(REASSIGN, *arguments, "--execute")
    until_moved(cluster, topic, replicas)
    assert "is completed" in java_tool(REASSIGN, *arguments, "--verify")


def move_with_our_client(cluster: MixedCluster, topic: str, replicas: Sequence[int]) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.alter_reassignments({(topic, partition): replicas for partition in (0, 1)})
    until_moved(cluster, topic, replicas)


@pytest.mark.parametrize("controller", [1, 3])
def test_partitions_move_onto_our_broker_and_off_it(
    mixed_cluster: MixedCluster, java_tool: JavaTool, tmp_path: Path, controller: int
) -> None:
    cluster = mixed_cluster
    cluster.start({controller: KINDS[controller], **KINDS})
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("t", assignments={0: [1, 2], 1: [2, 1]}, configs={"min.insync.replicas": "1"})
    cluster.until_whole("t")
    with Load(cluster, "t", (JavaWriter,)) as load:
        move_with_kafkas_tool(java_tool, cluster, tmp_path / "plan.json", "t", (3, 1, 2))
        load.until_progress()
        move_with_our_client(cluster, "t", (2, 3))
        load.until_progress()
        move_with_our_client(cluster, "t", (3,))
        load.until_progress()
        assert {cluster.state("t", partition).leader for partition in (0, 1)} == {3}
        move_with_kafkas_tool(java_tool, cluster, tmp_path / "plan.json", "t", (1, 2))
        load.until_progress()
        load.finish_and_check()


@pytest.mark.parametrize("controller", [1, 3])
def test_preferred_leaders_are_elected_by_either_kind_of_controller(
    mixed_cluster: MixedCluster, java_tool: JavaTool, controller: int
) -> None:
    cluster = mixed_cluster
    cluster.start({controller: KINDS[controller], **KINDS})
    cluster.create_topic("t")
    with Load(cluster, "t", (JavaWriter,)) as load:
        for broker_id in (2, 3):
            cluster.become(broker_id, KINDS[broker_id])
            cluster.until_whole("t")
            assert broker_id not in {cluster.state("t", partition).leader for partition in range(3)}
            everything = ("--bootstrap-server", cluster.bootstrap, "--all-topic-partitions")
            java_tool(ELECT, *everything, "--election-type", "preferred")
            assert [cluster.state("t", partition).leader for partition in range(3)] == [1, 2, 3]
            load.until_progress()
        load.finish_and_check()
