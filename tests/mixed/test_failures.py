"""Two brokers of Kafka's and one of ours: each is killed under load, and the controller moves between the kinds."""

from __future__ import annotations

import pytest

from tests.faults.load import Load, OurPatientWriter
from tests.fixtures.kafka import KAFKA, KBROKER
from tests.mixed.cluster import JavaWriter, MixedCluster

KINDS = {1: KAFKA, 2: KAFKA, 3: KBROKER}
WRITERS = JavaWriter, OurPatientWriter


def start_with_controller(cluster: MixedCluster, controller: int) -> None:
    """Start the three brokers, the controller first."""
    cluster.start({controller: KINDS[controller], **KINDS})


def kill_and_bring_back(cluster: MixedCluster, load: Load, broker_id: int) -> None:
    """Kill a broker; the others must take over, and it must find its way back into every ISR."""
    cluster.kill(broker_id)
    cluster.until_led_by_another(load.topic, broker_id, range(load.partitions))
    load.until_progress()
    cluster.start_broker(broker_id, KINDS[broker_id])
    cluster.until_whole(load.topic)
    cluster.balance(load.topic)
    load.until_progress()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_our_broker_among_two_of_kafkas_is_killed_and_returns(mixed_cluster: MixedCluster) -> None:
    start_with_controller(mixed_cluster, 1)
    mixed_cluster.create_topic("t")
    with Load(mixed_cluster, "t", WRITERS) as load:
        kill_and_bring_back(mixed_cluster, load, 3)
        load.finish_and_check()


@pytest.mark.compat
@pytest.mark.timeout(600)
@pytest.mark.parametrize("controller", [1, 3])
def test_each_broker_is_killed_in_turn(mixed_cluster: MixedCluster, controller: int) -> None:
    start_with_controller(mixed_cluster, controller)
    mixed_cluster.create_topic("t")
    with Load(mixed_cluster, "t", WRITERS) as load:
        for broker_id in (2, 3, 1):
            kill_and_bring_back(mixed_cluster, load, broker_id)
        load.finish_and_check()


@pytest.mark.compat
@pytest.mark.timeout(600)
def test_the_controller_is_killed_each_time_it_has_moved_to_the_other_kind(mixed_cluster: MixedCluster) -> None:
    start_with_controller(mixed_cluster, 3)
    mixed_cluster.create_topic("t")
    with Load(mixed_cluster, "t", WRITERS) as load:
        for controller in (3, 1, 3, 2):
            mixed_cluster.until_controller(controller)
            kill_and_bring_back(mixed_cluster, load, controller)
        load.finish_and_check()


@pytest.mark.compat
@pytest.mark.timeout(600)
def test_each_broker_stops_in_order_and_returns_without_a_failed_write(mixed_cluster: MixedCluster) -> None:
    start_with_controller(mixed_cluster, 1)
    mixed_cluster.create_topic("t")
    with Load(mixed_cluster, "t", WRITERS) as load:
        for broker_id in (3, 1, 2):
            mixed_cluster.become(broker_id, KINDS[broker_id])
            mixed_cluster.until_whole("t")
            mixed_cluster.balance("t")
            load.until_progress()
        load.finish_and_check()
