"""A cluster seen from outside, whatever its brokers are: ZooKeeper says what is true, the files what is stored."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kbroker import Admin
from kbroker.controller import znodes
from kbroker.controller.znodes import PartitionState, TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from tests.faults.checker import Replica, check_replicas
from tests.system.wire import Peer, end_offset, fetch

BROKERS = (1, 2, 3)
TIMEOUT = 90.0
"""For anything that must come true by itself, on a busy machine."""


def until(condition: Callable[[], object], what: str | Callable[[], str], timeout: float = TIMEOUT) -> None:
    """Wait for something that must come true; `what` may say how things stand when it has not."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.05)


class ClusterView:
    """Brokers and the ZooKeeper that knows what is true of them."""

    def __init__(self, connect_string: str) -> None:
        self.brokers: dict[int, BrokerProcess] = {}
        self.connect_string = connect_string
        self.kazoo = KazooClient(connect_string)
        self.wait_for_traffic: Callable[[], None] = lambda: None
        """Returns at a moment that suits a fault: those who write have something on its way."""

    # -- what is true -------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """`host:port,…` of all brokers, for clients."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def controller(self) -> int:
        """Which broker is the controller; -1 when none is."""
        try:
            return znodes.decode_controller(*_data_and_version(self.kazoo, "/controller")).broker_id
        except NoNodeError:
            return -1

    def state(self, topic: str, partition: int = 0) -> PartitionState:
        """Leader, ISR and epochs as ZooKeeper has them."""
        path = znodes.state_path(topic, partition)
        return znodes.decode_partition_state(TopicPartition(topic, partition), *_data_and_version(self.kazoo, path))

    def partitions(self, topic: str) -> list[int]:
        """The topic's partitions."""
        data, _ = _data_and_version(self.kazoo, znodes.topic_path(topic))
        return sorted(znodes.decode_topic(topic, data).partitions)

    def replicas(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """Who is to hold the partition."""
        data, _ = _data_and_version(self.kazoo, znodes.topic_path(topic))
        return znodes.decode_topic(topic, data).partitions[partition].replicas

    def broker_epoch(self, broker_id: int) -> int:
        """czxid of the broker's registration; -1 when it has none."""
        stat = self.kazoo.retry(self.kazoo.exists, znodes.broker_path(broker_id))
        return -1 if stat is None else int(stat.czxid)

    def is_whole(self, topic: str) -> bool:
        """Whether all replicas of all partitions are in sync."""
        return all(set(self.state(topic, p).isr) == set(self.replicas(topic, p)) for p in self.partitions(topic))

    def until_whole(self, topic: str) -> None:
        """Wait until all replicas of the topic are in sync."""
        with contextlib.suppress(AssertionError):
            until(lambda: self.is_whole(topic), "")
            return
        raise AssertionError({partition: self.state(topic, partition) for partition in self.partitions(topic)})

    def until_led_by_another(self, topic: str, than: int, partitions: Iterable[int] = (0,)) -> None:
        """Wait until a live broker other than that one leads the partitions."""
        for partition in partitions:
            until(
                lambda partition=partition: self.state(topic, partition).leader not in (-1, than),  # type: ignore[misc]
                f"{topic}-{partition} has no other leader than {than}",
            )

    # -- what is done -------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, leaders: Sequence[int] = BROKERS, **configs: str) -> None:
        """Make a topic of three replicas; partition p is led by the p-th of `leaders` at first, then by the next id."""
        turned = {p: [(leader - 1 + step) % 3 + 1 for step in range(3)] for p, leader in enumerate(leaders)}
        with Admin(self.bootstrap) as admin:
            names = {key.replace("_", "."): value for key, value in configs.items()}
            admin.create_topic(topic, assignments=turned, configs=names)
        self.until_whole(topic)
        for partition in turned:
            # What ZooKeeper says, brokers may hear a little later.
            with Peer(self.leader(topic, partition), TIMEOUT) as peer:
                end_offset(peer, topic, partition)

    def leader(self, topic: str, partition: int = 0) -> BrokerProcess:
        """The broker that leads the partition."""
        return self.brokers[self.state(topic, partition).leader]

    # -- what is stored -----------------------------------------------------------------------------------------

    def replica(self, broker_id: int, topic: str, partition: int) -> Replica:
        """A broker's copy of a partition, from its files."""
        (folder,) = [
            d / f"{topic}-{partition}" for d in self.brokers[broker_id].log_dirs if _holds(d, topic, partition)
        ]
        return stored_replica(folder)

    def until_identical(self, topic: str) -> None:
        """Wait until all replicas of all partitions have the same bytes up to the high watermark."""
        for partition in self.partitions(topic):
            problems: list[str] = ["not looked at"]
            deadline = time.monotonic() + TIMEOUT
            while problems:
                assert time.monotonic() < deadline, (topic, partition, problems)
                problems = self._compare(topic, partition)
                if problems:
                    time.sleep(0.2)

    def _compare(self, topic: str, partition: int) -> list[str]:
        try:
            with Peer(self.leader(topic, partition)) as peer:
                answer = fetch(peer, topic, 0, partition, max_bytes=1)
            copies = {id_: self.replica(id_, topic, partition) for id_ in self.replicas(topic, partition)}
        except (OSError, ValueError) as error:
            return [repr(error)]
        if answer.error_code:
            return [repr(answer.error_code)]
        return check_replicas(copies, answer.high_watermark)


def stored_replica(folder: Path) -> Replica:
    """One copy of a partition, from its files."""
    segments = sorted(folder.glob("*.log"))
    lines = (folder / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    epochs = tuple((int(epoch), int(start)) for epoch, start in (line.split() for line in lines))
    return Replica(int(segments[0].stem), b"".join(segment.read_bytes() for segment in segments), epochs)


def _holds(directory: Path, topic: str, partition: int) -> bool:
    return (directory / f"{topic}-{partition}").is_dir()


def _data_and_version(kazoo: KazooClient, path: str) -> tuple[bytes, int]:
    data, stat = kazoo.retry(kazoo.get, path)
    return data, stat.version
