"""ZooKeeper killed and back, and ZooKeeper lost by one broker only, under load."""

from __future__ import annotations

import time

import pytest

from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper
from tests.faults.cluster import BROKERS, SHORT_SESSION_MS, SHORT_SESSIONS, until
from tests.faults.conftest import MakeFaultCluster
from tests.faults.links import ZOOKEEPER
from tests.faults.load import Load
from tests.faults.test_kills import victim

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_while_zookeeper_is_away_the_data_path_goes_on_and_what_died_is_replaced_when_it_is_back(
    make_fault_cluster: MakeFaultCluster, own_zookeeper: EmbeddedZooKeeper, topic_name: str
) -> None:
    cluster = make_fault_cluster(zookeeper_connect=f"{own_zookeeper.connect_string}/faults", properties=SHORT_SESSIONS)
    leader = next(broker for broker in BROKERS if broker != cluster.controller())
    cluster.create_topic(topic_name, [leader])
    with Load(cluster, topic_name) as load:
        own_zookeeper.kill()
        deadline = time.monotonic() + SHORT_SESSION_MS / 1000 + 0.5
        while time.monotonic() < deadline:
            load.until_progress()
        cluster.brokers[leader].kill()
        own_zookeeper.start()
        cluster.until_led_by_another(topic_name, leader)
        load.until_progress()
        cluster.mend()
        cluster.until_whole(topic_name)
        cluster.create_topic(f"{topic_name}-after")
        load.finish_and_check()


@pytest.mark.parametrize("who", ["leader", "controller"])
def test_a_broker_that_alone_loses_zookeeper_is_replaced_and_comes_back(
    make_fault_cluster: MakeFaultCluster, topic_name: str, who: str
) -> None:
    """Brokers and clients still reach it: it must not acknowledge anything that the others do not have."""
    lost = 1
    cluster = make_fault_cluster(own={lost: SHORT_SESSIONS})
    controller = cluster.hand_the_controller_to(*((lost,) if who == "controller" else (2, 3)))
    leader = next(broker for broker in BROKERS if broker != controller)
    cluster.create_topic(topic_name, [leader, controller])
    with Load(cluster, topic_name) as load:
        assert lost == victim(cluster, topic_name, who)
        epoch = cluster.broker_epoch(lost)
        cluster.links.cut_both(lost, ZOOKEEPER)
        until(lambda: cluster.broker_epoch(lost) == -1, "its session expires")
        until(lambda: cluster.controller() not in (-1, lost), "there is a controller")
        for partition in range(2):
            cluster.until_led_by_another(topic_name, lost, [partition])
        load.until_progress()
        cluster.links.heal()
        until(lambda: cluster.broker_epoch(lost) > epoch, "it registers again")
        cluster.until_whole(topic_name)
        load.until_progress()
        load.finish_and_check()
