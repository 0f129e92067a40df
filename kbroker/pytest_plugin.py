"""The pytest plugin that comes with the package: a real cluster for a test suite.

    def test_mine(kbroker_cluster, kbroker_topic):
        with Producer(kbroker_cluster.bootstrap) as producer:
            producer.send(kbroker_topic, value=b"…")

After each test the faults that it left in `kbroker_cluster.faults` are healed.
pytest loads this module in every run of everybody who installed kbroker: so nothing is imported before it is needed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbroker.testing import Cluster

_CLUSTER: pytest.StashKey[Cluster] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer `--kbroker-brokers`, and the ini keys kbroker_brokers, kbroker_properties and kbroker_zookeeper."""
    parser.addoption("--kbroker-brokers", type=int, default=None, help="brokers of the kbroker_cluster fixture")
    parser.addini("kbroker_brokers", default="1", help="brokers of the kbroker_cluster fixture")
    parser.addini(
        "kbroker_zookeeper",
        default="",
        help="stand-in, embedded, or HOST:PORT/chroot of one that runs; default: what suits",
    )
    parser.addini(
        "kbroker_properties", type="linelist", help="Kafka's broker keys of these brokers, a key=value a line"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, for --strict-markers."""
    text = "kbroker_topic(partitions=1, replication_factor=1, configs=None): how its topic is made"
    config.addinivalue_line("markers", text)


@pytest.fixture(scope="session")
def kbroker_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of real processes for the whole session: `.bootstrap`, `.brokers`, `.zookeeper_connect`."""
    from kbroker.testing import Cluster

    config = request.config
    wanted = config.getoption("--kbroker-brokers") or int(config.getini("kbroker_brokers"))
    zookeeper = config.getini("kbroker_zookeeper") or None
    properties = _properties(config.getini("kbroker_properties"))
    with Cluster(brokers=wanted, properties=properties, zookeeper=zookeeper) as cluster:
        config.stash[_CLUSTER] = cluster
        yield cluster


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Heal what a test has left broken, before its own fixtures are taken down."""
    cluster = item.config.stash.get(_CLUSTER, None)
    if cluster is not None:
        cluster.heal()


@pytest.fixture
def kbroker_topic(kbroker_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a fresh topic, deleted after the test; of one partition, or as the marker kbroker_topic says."""
    from kbroker import Admin
    from kbroker.client.errors import UnknownTopicOrPartitionError
    from kbroker.testing import unique_topic_name

    marker = request.node.get_closest_marker("kbroker_topic")
    how = {"partitions": 1, "replication_factor": 1, "configs": None, **(marker.kwargs if marker is not None else {})}
    if len(how) > 3 or (marker is not None and marker.args):
        raise pytest.UsageError("the marker kbroker_topic takes partitions=, replication_factor= and configs=")
    name = unique_topic_name(request.node.name)
    with Admin(kbroker_cluster.bootstrap) as admin:
        admin.create_topic(name, **how)
    yield name
    with contextlib.suppress(UnknownTopicOrPartitionError), Admin(kbroker_cluster.bootstrap) as admin:
        admin.delete_topic(name)  # unless the test has done so


def _properties(lines: list[str]) -> dict[str, str]:
    properties = {}
    for line in lines:
        key, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"kbroker_properties: {line!r} is not key=value")
        properties[key.strip()] = value.strip()
    return properties
