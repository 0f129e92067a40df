"""Clusters of both kinds of brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.zookeeper import ZooKeeperAddress
from tests.mixed.cluster import JavaWriter, MixedCluster


@pytest.fixture
def mixed_cluster(
    tmp_path: Path, zookeeper: ZooKeeperAddress, kafka_class_path: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MixedCluster]:
    """Three brokers that are not started yet; they end with the test."""
    monkeypatch.setattr(JavaWriter, "class_path", kafka_class_path)
    cluster = MixedCluster(tmp_path, zookeeper.connect_string, kafka_class_path)
    try:
        yield cluster
    finally:
        cluster.close()
