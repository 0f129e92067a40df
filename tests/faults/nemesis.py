"""The faults of drawn.py as a nemesis of `kbroker verify`, on a cluster of three brokers that belongs to the test."""

from __future__ import annotations

import random
from collections.abc import Mapping

from kazoo.exceptions import NoNodeError

from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper
from kbroker.verify.nemesis import Fault
from tests.faults.cluster import FaultCluster
from tests.faults.drawn import FAULTS, Arena
from tests.faults.wrong_clock import WrongClock

MOST_AT_ONCE = 3


class ClusterNemesis:
    """One fault, or several on top of each other; healing mends the cluster."""

    def __init__(self, cluster: FaultCluster, zookeeper: EmbeddedZooKeeper, clocks: Mapping[int, WrongClock]) -> None:
        self._cluster = cluster
        self._zookeeper = zookeeper
        self._clocks = clocks

    def start(self, bootstrap: str) -> str:
        """Clients go through the links."""
        return bootstrap

    def inject(self, rng: random.Random) -> Fault | None:
        """Draw some faults."""
        topics = self._topics()
        if not topics:
            return None
        told = []
        for _ in range(rng.randint(1, MOST_AT_ONCE)):
            arena = Arena(self._cluster, self._zookeeper, self._clocks, rng.choice(topics), rng)
            told.append(rng.choice(FAULTS)(arena))
        return Fault("cluster", {"what": "; ".join(told)})

    def _topics(self) -> list[str]:
        """Those that three brokers have; others may go with a disk."""
        found = []
        for topic in sorted(self._cluster.kazoo.get_children("/brokers/topics")):
            try:
                is_replicated = len(self._cluster.replicas(topic)) > 1
            except NoNodeError:  # deleted meanwhile
                continue
            if is_replicated:
                found.append(topic)
        return found

    def heal(self) -> None:
        """Everything runs and reaches everything."""
        if not self._zookeeper.is_running:
            self._zookeeper.start()
        self._cluster.mend()

    def stop(self) -> None:
        """Heal."""
        self.heal()
