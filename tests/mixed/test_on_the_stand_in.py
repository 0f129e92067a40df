"""Three brokers on the stand-in for ZooKeeper, ours and Kafka's: they and the stand-in are killed under load."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.dev.stand_in_zookeeper import StandInZooKeeper
from tests.faults.load import Load, OurPatientWriter
from tests.fixtures.kafka import KAFKA, KBROKER
from tests.mixed.cluster import JavaWriter, MixedCluster

ALLOWED = {"kbroker.allow.stand.in.zookeeper": "true", "zookeeper.session.timeout.ms": "6000"}


@contextlib.contextmanager
def running(folder: Path, kinds: dict[int, str], class_path: str) -> Iterator[tuple[MixedCluster, StandInZooKeeper]]:
    with StandInZooKeeper(folder / "zookeeper") as zookeeper:
        cluster = MixedCluster(folder, f"{zookeeper.connect_string}/stood-in", class_path)
        cluster.properties.update(ALLOWED)
        try:
            yield cluster.start(kinds), zookeeper
        finally:
            cluster.close()


def kill_controller_and_stand_in(
    cluster: MixedCluster, zookeeper: StandInZooKeeper, load: Load, kinds: dict[int, str], controller: int
) -> None:
    """The controller dies and another takes over; then the stand-in dies and comes back; then the controller does."""
    cluster.until_controller(controller)
    cluster.brokers[controller].kill()
    cluster.until_led_by_another(load.topic, controller, range(load.partitions))
    load.until_progress()
    zookeeper.kill()
    zookeeper.start()
    cluster.start_broker(controller, kinds[controller])
    cluster.until_whole(load.topic)
    load.until_progress()


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_our_brokers_lose_nothing_when_their_controller_and_the_stand_in_are_killed(tmp_path: Path) -> None:
    kinds = dict.fromkeys((1, 2, 3), KBROKER)
    with running(tmp_path, kinds, "") as (cluster, zookeeper):
        cluster.create_topic("t")
        with Load(cluster, "t", (OurPatientWriter,)) as load:
            kill_controller_and_stand_in(cluster, zookeeper, load, kinds, 2)
            load.finish_and_check()


@pytest.mark.compat
@pytest.mark.timeout(400)
@pytest.mark.parametrize("controller", [1, 3])
def test_kafkas_brokers_and_ours_lose_nothing_either(
    tmp_path: Path, kafka_class_path: str, monkeypatch: pytest.MonkeyPatch, controller: int
) -> None:
    monkeypatch.setattr(JavaWriter, "class_path", kafka_class_path)
    kinds = {1: KAFKA, 2: KAFKA, 3: KBROKER}
    with running(tmp_path, kinds, kafka_class_path) as (cluster, zookeeper):
        cluster.create_topic("t")
        with Load(cluster, "t", (JavaWriter, OurPatientWriter)) as load:
            kill_controller_and_stand_in(cluster, zookeeper, load, kinds, controller)
            load.finish_and_check()
