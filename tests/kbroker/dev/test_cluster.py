"""`kbroker dev`, run as users run it: as a process of its own."""

from pathlib import Path
from typing import Any

import pytest

from kbroker.dev.cluster import DevCluster, DevClusterError, known_brokers
from kbroker.dev.free_ports import free_ports
from tests.fixtures.brokers import MakeCluster
from tests.fixtures.zookeeper import ZooKeeperAddress, skip_without_embedded_zookeeper

pytestmark = pytest.mark.usefixtures("brokers_as_users_start_them")


@pytest.fixture(autouse=True)
def _has_jars_and_java() -> None:
    skip_without_embedded_zookeeper()


@pytest.mark.slow
def test_three_brokers_know_each_other_when_the_cluster_is_ready(tmp_path: Path) -> None:
    with DevCluster(tmp_path, brokers=3) as cluster:
        for broker in cluster.brokers:
            assert known_brokers("127.0.0.1", broker.port) == {1, 2, 3}
        assert cluster.failure() is None
        text = (tmp_path / "broker-2" / "server.properties").read_text()
        assert "offsets.topic.replication.factor=3\n" in text
        assert "transaction.state.log.min.isr=2\n" in text


def test_brokers_use_the_zookeeper_that_is_given(make_cluster: MakeCluster, zookeeper: ZooKeeperAddress) -> None:
    cluster = make_cluster(1)
    assert cluster.zookeeper is None
    assert cluster.zookeeper_connect.partition("/")[0] == zookeeper.hosts
    assert not (cluster.data_dir / "zookeeper").exists()


def test_properties_reach_the_broker_and_overrule_the_clusters(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1, properties={"num.partitions": "7", "group.initial.rebalance.delay.ms": "5"})
    text = (cluster.data_dir / "broker-1" / "server.properties").read_text()
    assert "num.partitions=7\n" in text
    assert "group.initial.rebalance.delay.ms=5\n" in text


def test_brokers_listen_on_consecutive_ports_from_the_given_one(tmp_path: Path) -> None:
    port = next(port for port in free_ports(50) if len(DevCluster(tmp_path, brokers=2, port=port)._choose_ports()) == 2)
    assert DevCluster(tmp_path, brokers=2, port=port)._choose_ports() == [port, port + 1]


def test_a_taken_port_is_named_before_anything_starts(tmp_path: Path, own_zookeeper: Any) -> None:
    with pytest.raises(DevClusterError, match=f"port {own_zookeeper.port} on 127.0.0.1 is taken"):
        DevCluster(tmp_path / "data", port=own_zookeeper.port).start()
    assert not (tmp_path / "data" / "zookeeper").exists()


def test_a_directory_in_use_is_refused(make_cluster: MakeCluster) -> None:
    running = make_cluster(1)
    with pytest.raises(DevClusterError, match="another cluster runs on"):
        DevCluster(running.data_dir).start()
    assert running.failure() is None


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DevClusterError, match="cannot write to the data directory"):
        DevCluster(tmp_path / "file" / "data").start()
