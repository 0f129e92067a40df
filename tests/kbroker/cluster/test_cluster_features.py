"""What counts in the cluster, as a broker hears of it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

from kbroker.cluster.cluster_features import ClusterFeatures
from kbroker.controller import znodes
from kbroker.controller.features import TRANSACTION_VERSION
from kbroker.controller.znodes import BrokerRegistration
from kbroker.controller.zookeeper import ZooKeeper
from tests.controller.conftest import until
from tests.fixtures.zookeeper import ZooKeeperAddress

TWO = {TRANSACTION_VERSION: 2}


@pytest.fixture
async def session(zookeeper: ZooKeeperAddress) -> AsyncIterator[ZooKeeper]:
    connected = ZooKeeper(zookeeper.connect_string, 6_000, 20_000)
    await connected.connect()
    await connected.ensure_top_level_paths()
    yield connected
    await connected.close()


async def test_levels_are_read_when_they_come_and_whenever_they_change(session: ZooKeeper) -> None:
    features = ClusterFeatures(session)
    await features.watch()
    assert (features.levels, features.epoch, features.transaction_version) == ({}, -1, 0)
    await session.create(znodes.FEATURE, znodes.encode_feature())
    await until(lambda: features.epoch == 0)
    await session.set(znodes.FEATURE, znodes.encode_feature(TWO))
    await until(lambda: features.transaction_version == 2)
    assert features.epoch == 1
    assert not features.unsupported
    await session.set(znodes.FEATURE, b"nonsense")
    await session.set(znodes.FEATURE, znodes.encode_feature({TRANSACTION_VERSION: 3}))
    await until(lambda: features.unsupported == ["transaction.version=3"])


async def test_a_broker_that_lacks_what_counts_is_told_of_once(
    session: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    await session.create(znodes.FEATURE, znodes.encode_feature(TWO))
    features = ClusterFeatures(session)
    await features.watch()
    ours, kafkas = BrokerRegistration(1, (), features=TWO), BrokerRegistration(2, ())
    with caplog.at_level(logging.ERROR):
        for brokers in ([ours], [ours, kafkas], [ours, kafkas]):
            features.look_at(brokers)
    (line,) = caplog.messages
    assert line.startswith("broker 2 does not support transaction.version=2, which counts in this cluster")
