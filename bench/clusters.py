"""Three brokers of one kind on one machine, with one ZooKeeper: what a section about replication measures."""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient

from bench.systems import System, done_with
from kbroker import Admin
from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper

SIZE = 3
# Kafka's defaults, but for what the scenarios need.
SETTINGS = {
    "zookeeper.session.timeout.ms": "2000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.retry.backoff.ms": "500",
}
SETTLE_S = 120.0
POLL_S = 0.02
Leaders = dict[int, tuple[int, frozenset[int]]]
"""Partition -> its leader and ISR."""


class Cluster:
    """Brokers 1 to 3; a context manager. Broker 1, started first, is the controller."""

    def __init__(self, kind: type[System]) -> None:
        self.name = kind.name
        self.folder = Path(tempfile.mkdtemp(prefix=f"bench-{kind.name}-"))
        self.zookeeper = EmbeddedZooKeeper(self.folder / "zookeeper")
        self.brokers = {each: kind(SETTINGS, broker_id=each, zookeeper=self.zookeeper) for each in range(1, SIZE + 1)}

    def __enter__(self) -> Cluster:
        """Start ZooKeeper, then the brokers one after the other."""
        self.zookeeper.start()
        for broker in self.brokers.values():
            broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Kill all; their data is done with."""
        for broker in self.brokers.values():
            broker.stop(signal.SIGKILL)
            done_with(broker.folder)
        self.zookeeper.stop()
        done_with(self.folder)

    @property
    def running(self) -> dict[int, System]:
        """Return the brokers that run."""
        return {each: broker for each, broker in self.brokers.items() if broker.process is not None}

    @property
    def bootstrap(self) -> str:
        """Return the addresses of the brokers that run."""
        return ",".join(broker.bootstrap for broker in self.running.values())

    @property
    def admin(self) -> AdminClient:
        """Return a client that asks the brokers that run."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def cpu_seconds(self) -> float:
        """Return the CPU seconds that all brokers have used so far."""
        return sum(broker.cpu_seconds() for broker in self.running.values())

    def controller(self) -> int:
        """Return which broker is the controller."""
        return int(self.admin.list_topics(timeout=30).controller_id)

    def leaders(self, topic: str, admin: AdminClient | None = None) -> Leaders:
        """Return who leads the topic's partitions, and who is in sync."""
        found = (admin or self.admin).list_topics(topic, timeout=30).topics[topic].partitions
        return {each: (partition.leader, frozenset(partition.isrs)) for each, partition in found.items()}

    def until_in_sync(self, topic: str) -> float:
        """Wait until every replica of the topic is in sync; returns the seconds it took."""
        admin, began = self.admin, time.monotonic()
        while not all(len(isr) == SIZE for _, isr in self.leaders(topic, admin).values()):
            if time.monotonic() - began > SETTLE_S:
                raise RuntimeError(f"{self.name}: {topic} is not in sync after {SETTLE_S:g} s")
            time.sleep(POLL_S)
        return time.monotonic() - began

    def balance(self, topic: str) -> None:
        """Let the preferred replicas lead."""
        with Admin(self.bootstrap) as admin:
            admin.elect_leaders([(topic, each) for each in self.leaders(topic)])
