"""`kbroker.testing.Cluster`: a cluster for other people's tests."""

import re
from pathlib import Path
from typing import Any

import pytest

from kbroker.dev.cluster import known_brokers
from kbroker.testing import Cluster, unique_topic_name
from tests.fixtures.zookeeper import ZooKeeperAddress, skip_without_embedded_zookeeper

pytestmark = pytest.mark.slow


def test_a_cluster_serves_and_leaves_nothing_behind() -> None:
    skip_without_embedded_zookeeper()
    with Cluster() as cluster:
        (broker,) = cluster.brokers
        assert cluster.bootstrap == broker.bootstrap
        assert known_brokers("127.0.0.1", broker.port) == {1}
        assert cluster.directory.exists()
        cluster.heal()
        assert cluster.faults.bootstrap != cluster.bootstrap
        cluster.heal()
    assert not broker.is_running
    assert not cluster.directory.exists()


def test_a_given_directory_is_kept_and_serves_again(tmp_path: Path, zookeeper: ZooKeeperAddress) -> None:
    for _ in range(2):
        with Cluster(zookeeper=zookeeper.connect_string, directory=tmp_path / "data") as cluster:
            assert cluster.zookeeper_connect == zookeeper.connect_string
    assert (tmp_path / "data" / "broker-1" / "data" / "meta.properties").exists()


def test_a_cluster_that_cannot_start_leaves_nothing_behind() -> None:
    skip_without_embedded_zookeeper()
    cluster = Cluster(properties={"num.partitions": "many"})
    with pytest.raises(RuntimeError, match=r"num\.partitions"):
        cluster.start()
    assert not cluster.directory.exists()


def test_the_docs_cluster_loses_a_broker_and_gets_it_back() -> None:
    skip_without_embedded_zookeeper()
    page = Path(__file__).parents[2] / "docs" / "testing.md"
    snippet = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[1]
    names: dict[str, Any] = {}
    exec(compile(snippet, str(page), "exec"), names)
    assert not names["second"].is_running
    assert not names["cluster"].directory.exists()


def test_topic_names_are_legal_and_unique() -> None:
    names = {unique_topic_name("test[a/b ü] " + "x" * 300) for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) for name in names)
