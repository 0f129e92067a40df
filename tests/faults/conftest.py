"""The clusters that fault tests break."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.faults.cluster import FaultCluster, running
from tests.faults.forgetful_disk import compile_library
from tests.fixtures.brokers import MakeBroker
from tests.fixtures.zookeeper import ZooKeeperAddress

MakeFaultCluster = Callable[..., FaultCluster]


@pytest.fixture
def make_fault_cluster(make_broker: MakeBroker, zookeeper: ZooKeeperAddress) -> Iterator[MakeFaultCluster]:
    """A factory of three brokers behind links: `make_fault_cluster(properties={…})`.

    `own` and `launchers` are properties and launchers of single brokers, by their ids.
    """
    with contextlib.ExitStack() as stack:

        def make(
            *,
            properties: Mapping[str, str] | None = None,
            own: Mapping[int, Mapping[str, str]] | None = None,
            launchers: Mapping[int, Sequence[str]] | None = None,
            zookeeper_connect: str = zookeeper.connect_string,
        ) -> FaultCluster:
            cluster = stack.enter_context(running(FaultCluster(make_broker, zookeeper_connect)))
            return cluster.start(properties or {}, launchers or {}, own or {})

        yield make


@pytest.fixture
def cluster(make_fault_cluster: MakeFaultCluster) -> FaultCluster:
    """Three brokers that the test may break in any way."""
    return make_fault_cluster()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library to preload that makes disks forget, and fail."""
    compiled = compile_library(tmp_path_factory.mktemp("library"))
    if compiled is None:
        pytest.skip("there is no C compiler here, or this is not Linux")
    return compiled
