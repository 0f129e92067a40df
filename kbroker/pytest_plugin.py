"""The pytest plugin that comes with the package: a real cluster for a test suite.

    def test_mine(kbroker_cluster, kbroker_topic):
        with Producer(kbroker_cluster.bootstrap) as producer:
            producer.send(kbroker_topic, value=b"…")

pytest loads this module in every run of everybody who installed kbroker: so nothing is imported before it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbroker.testing import Cluster


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer `--kbroker-brokers` and the ini key of that name."""
    parser.addoption("--kbroker-brokers", type=int, default=None, help="brokers of the kbroker_cluster fixture")
    parser.addini("kbroker_brokers", default="1", help="brokers of the kbroker_cluster fixture")


@pytest.fixture(scope="session")
def kbroker_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of real processes for the whole session: `.bootstrap`, `.brokers`, `.zookeeper_connect`."""
    from kbroker.testing import Cluster

    wanted = request.config.getoption("--kbroker-brokers") or int(request.config.getini("kbroker_brokers"))
    with Cluster(brokers=wanted) as cluster:
        yield cluster


@pytest.fixture
def kbroker_topic(kbroker_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a fresh topic of one partition, deleted after the test."""
    from kbroker import Admin
    from kbroker.testing import unique_topic_name

    name = unique_topic_name(request.node.name)
    with Admin(kbroker_cluster.bootstrap) as admin:
        admin.create_topic(name, partitions=1)
        yield name
        admin.delete_topic(name)
