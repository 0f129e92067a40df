"""Replicas moved to other brokers under load: added, removed, taken back, through the end of controllers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbroker import Admin
from kbroker.client.types import TopicPartition
from kbroker.controller import znodes
from tests.faults.cluster import BROKERS, TIMEOUT, FaultCluster, until
from tests.faults.conftest import MakeFaultCluster
from tests.faults.load import Load, OurPatientWriter
from tests.kbroker.cli.commands import succeed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(make_fault_cluster: MakeFaultCluster) -> FaultCluster:
    return make_fault_cluster(properties={"log.segment.delete.delay.ms": "0"})


def kill_controller(cluster: FaultCluster) -> int:
    victim = cluster.controller()
    cluster.kill(victim)
    return victim


def come_back(cluster: FaultCluster, victim: int) -> None:
    cluster.brokers[victim].start().wait_until_ready(TIMEOUT)


def held(cluster: FaultCluster, topic: str) -> dict[int, set[str]]:
    """Which brokers have which folders of the topic."""
    return {
        broker_id: {
            folder.name
            for log_dir in broker.log_dirs
            for folder in Path(log_dir).glob(f"{topic}-*")
            if not folder.name.endswith("-delete")
        }
        for broker_id, broker in cluster.brokers.items()
    }


def moved(cluster: FaultCluster, topic: str, target: tuple[int, ...]) -> bool:
    data, _ = cluster.kazoo.get(znodes.topic_path(topic))
    assignments = znodes.decode_topic(topic, data).partitions.values()
    return all(each.replicas == target and not each.is_being_reassigned for each in assignments)


def test_a_move_goes_on_under_load_when_the_controller_is_killed_in_its_middle(cluster: FaultCluster) -> None:
    cluster.create_topic("t", min_insync_replicas="1")
    with Load(cluster, "t", (OurPatientWriter,)) as load:
        for target in ((1, 2), (3, 2), (2, 3, 1)):
            moves = {TopicPartition("t", partition): target for partition in range(len(BROKERS))}
            with Admin(cluster.bootstrap) as admin:
                admin.alter_reassignments(moves)
            victim = kill_controller(cluster)
            come_back(cluster, victim)
            until(lambda target=target: moved(cluster, "t", target), f"not moved to {target}")  # type: ignore[misc]
            for broker_id, folders in held(cluster, "t").items():
                if broker_id not in target:
                    until(
                        lambda broker_id=broker_id: not held(cluster, "t")[broker_id],  # type: ignore[misc]
                        f"broker {broker_id} still holds {folders}",
                    )
            load.until_progress()
        load.finish_and_check()


def test_replicas_are_added_removed_and_taken_back_under_load(cluster: FaultCluster, tmp_path: Path) -> None:
    *pair, third = sorted(BROKERS, key=lambda broker_id: broker_id != cluster.controller())
    home = tuple(pair)
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("t", assignments={0: home[:1], 1: home[1:]}, configs={"min.insync.replicas": "1"})
    addresses = ("-b", ",".join(cluster.brokers[each].bootstrap for each in home))
    with Load(cluster, "t", (OurPatientWriter,)) as load:
        succeed("cluster", "reassign", "t", "--replicas", "3", *addresses)
        assert cluster.is_whole("t")
        assert {len(cluster.replicas("t", partition)) for partition in (0, 1)} == {3}
        plan = tmp_path / "plan.json"
        entries = [{"topic": "t", "partition": partition, "replicas": home} for partition in (0, 1)]
        plan.write_text(json.dumps({"partitions": entries}))
        succeed("cluster", "reassign", "--plan", str(plan), *addresses)
        until(lambda: not held(cluster, "t")[third], "the third broker still holds replicas")
        load.until_progress()
        cluster.brokers[third].pause()  # it hangs: a replica on it will not be in sync soon
        with Admin(addresses[1]) as admin:
            admin.alter_reassignments({TopicPartition("t", 0): (*home, third)})
            assert list(admin.list_reassignments()) == [TopicPartition("t", 0)]
            admin.alter_reassignments({TopicPartition("t", 0): None})
        cluster.brokers[third].resume()
        until(lambda: moved(cluster, "t", home), "the move was not taken back")
        until(lambda: not held(cluster, "t")[third], "the third broker keeps what was taken back")
        load.finish_and_check()
