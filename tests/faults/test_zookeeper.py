"""ZooKeeper killed and back, and ZooKeeper lost by one broker only, under load."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper
from tests.faults.cluster import BROKERS, SHORT_SESSION_MS, SHORT_SESSIONS, TIMEOUT, until
from tests.faults.cluster_view import ClusterView
from tests.faults.conftest import MakeFaultCluster
from tests.faults.ensemble import Ensemble
from tests.faults.links import ZOOKEEPER
from tests.faults.load import Load
from tests.faults.test_kills import victim
from tests.fixtures.brokers import MakeBroker
from tests.fixtures.zookeeper import skip_without_embedded_zookeeper
from tests.system.wire import Peer, one_batch, produce, read_copy

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


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[Ensemble]:
    """Three ZooKeepers that are one."""
    skip_without_embedded_zookeeper()
    with Ensemble(tmp_path) as members:
        yield members


def test_an_ensemble_may_lose_any_one_of_its_three_and_nothing_stands_still(
    make_broker: MakeBroker, ensemble: Ensemble, topic_name: str
) -> None:
    """Its leader among them: sessions go over to the others, nobody is taken for dead, changes are still made."""
    view = ClusterView(f"{ensemble.connect_string}/faults")
    properties = {"zookeeper.session.timeout.ms": "20000", "default.replication.factor": "3"}
    for broker in BROKERS:
        view.brokers[broker] = make_broker(broker, zookeeper_connect=view.connect_string, properties=properties)
    view.kazoo.start(TIMEOUT)
    try:
        view.create_topic(topic_name, [1, 2, 3])
        epochs = [view.broker_epoch(broker) for broker in BROKERS]
        with Load(view, topic_name) as load:
            for member in ensemble.members:
                member.kill()
                load.until_progress()
                view.create_topic(f"{topic_name}-{member.number}")
                member.start(TIMEOUT)
            load.until_progress()
            assert [view.broker_epoch(broker) for broker in BROKERS] == epochs
            load.finish_and_check()
    finally:
        view.kazoo.stop()
        view.kazoo.close()


def is_produced(cluster: ClusterView, topic_name: str, partition: int) -> bool:
    with Peer(cluster.leader(topic_name, partition)) as peer:
        return not produce(peer, topic_name, one_batch(b"more"), partition).error_code


def test_brokers_of_a_zookeeper_that_has_forgotten_everything_keep_their_logs_until_it_is_put_back(
    make_fault_cluster: MakeFaultCluster, own_zookeeper: EmbeddedZooKeeper, topic_name: str
) -> None:
    cluster = make_fault_cluster(zookeeper_connect=f"{own_zookeeper.connect_string}/faults")
    cluster.create_topic(topic_name, [1, 2, 3])
    wanted = {partition: [b"%d" % number for number in range(20)] for partition in range(3)}
    for partition, values in wanted.items():
        with Peer(cluster.leader(topic_name, partition)) as peer:
            assert not produce(peer, topic_name, one_batch(*values), partition).error_code
    cluster.until_whole(topic_name)
    own_zookeeper.stop()
    data, kept = own_zookeeper.data_dir / "version-2", own_zookeeper.data_dir / "kept"
    data.rename(kept)
    own_zookeeper.start()
    restarted = cluster.brokers[1]
    restarted.kill()
    restarted.start()
    assert restarted.wait(TIMEOUT) == 1
    assert "belong to cluster" in restarted.log_tail(100)
    assert all(cluster.brokers[broker].is_running for broker in (2, 3))
    own_zookeeper.stop()
    shutil.rmtree(data)
    kept.rename(data)
    own_zookeeper.start()
    cluster.mend()
    cluster.until_whole(topic_name)
    for partition, values in wanted.items():
        assert all(read_copy(broker, topic_name, partition) == values for broker in cluster.brokers.values())
        until(partial(is_produced, cluster, topic_name, partition), "the leader has heard of it, too")
