"""The proxy as an object with a thread of its own."""

import threading

import pytest

from kbroker import Admin, ConfigurationError
from kbroker.dev.broker_process import BrokerProcess
from kbroker.verify.proxy.faults import Cut, Where
from kbroker.verify.proxy.proxy import Proxy
from tests.fixtures.brokers import MakeCluster


def test_the_proxy_knows_the_brokers_from_the_start(broker: BrokerProcess) -> None:
    with Proxy(broker.bootstrap) as proxy:
        assert list(proxy.brokers()) == [1]
        assert proxy.brokers()[1] in proxy.bootstrap
        assert proxy.links() == []
        with Admin(proxy.bootstrap, client_id="asker") as admin:
            admin.describe_log_dirs([1])  # over a connection that is kept; the first one may be closed by now
            assert ("asker", 1) in {(link.client_id, link.broker) for link in proxy.links()}


def test_a_cluster_behind_one_address_is_found_whole(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    with Proxy(cluster.brokers[0].bootstrap) as proxy, Admin(proxy.bootstrap, client_id="asker") as admin:
        assert sorted(proxy.brokers()) == [1, 2]
        admin.create_topic("both", partitions=2, replication_factor=1)
        described = admin.describe_topics(["both"])["both"]
        assert {partition.leader for partition in described.partitions} == {1, 2}
        assert admin.list_offsets({("both", 0): -1, ("both", 1): -1})
        assert {link.broker for link in proxy.links()} == {1, 2}


def test_a_cluster_that_does_not_answer_yet_is_waited_for_by_its_clients() -> None:
    with Proxy("127.0.0.1:1") as proxy:
        assert proxy.brokers() == {}
        assert proxy.bootstrap.startswith("127.0.0.1:")
        proxy.heal(proxy.inject(Cut(where=Where(broker=3))))
    assert "proxy" not in {thread.name for thread in threading.enumerate()}


def test_what_is_no_address_is_named() -> None:
    with pytest.raises(ConfigurationError, match="nowhere:port"):
        Proxy("nowhere:port")


def test_a_proxy_that_cannot_listen_leaves_no_thread() -> None:
    with pytest.raises(OSError, match="assign requested address"):
        Proxy("127.0.0.1:1", host="192.0.2.1").start()
    assert "proxy" not in {thread.name for thread in threading.enumerate()}
