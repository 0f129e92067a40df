"""Connections and producers that tasks leave open for the next ones are closed after each test."""

from collections.abc import Iterator

import pytest

from kbroker.dev.broker_process import BrokerProcess


@pytest.fixture
def bootstrap(broker: BrokerProcess) -> str:
    return broker.bootstrap


@pytest.fixture(autouse=True)
def _no_connections_are_left() -> Iterator[None]:
    yield
    try:
        from kbroker.spark_connector.tasks import CLUSTERS
    except ImportError:
        return
    from kbroker.spark_connector.producers import close_all

    close_all()
    for cluster in CLUSTERS.values():
        cluster.close()
    CLUSTERS.clear()
