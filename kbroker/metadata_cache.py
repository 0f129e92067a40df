"""What the controller last told this broker about the cluster: brokers, topics, leaders.

Filled by UpdateMetadata requests only, never by reading ZooKeeper: Metadata answers and leader checks must agree with
what the controller decided. One event loop owns it.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from protocol.messages.replication import UpdateMetadataRequest
from protocol.primitives import ZERO_UUID

LEADER_BEING_DELETED = -2
"""Leader id by which the controller says that a partition's topic is being deleted."""

NO_LEADER = -1

Listener = str


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A live broker and where each of its listeners is reached."""

    id: int
    rack: str | None
    endpoints: dict[Listener, tuple[str, int]]
    """Listener name to advertised (host, port)."""


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Leader and replicas of one partition as the controller decided them."""

    partition: int
    leader: int
    """A broker id, or -1 while no replica can lead."""
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    partition_epoch: int


@dataclass(slots=True)
class TopicInfo:
    """A topic's id and its partitions by number."""

    name: str
    topic_id: bytes
    """16 bytes; `ZERO_UUID` for topics made before topic ids."""
    partitions: dict[int, PartitionInfo] = field(default_factory=dict)


class MetadataCache:
    """The cluster as this broker knows it; `update` is the only way in."""

    def __init__(self) -> None:
        self.controller_id: int | None = None
        self.controller_epoch = 0
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.updates = 0
        """Grows with every update: a cheap way to see whether anything may have changed."""
        self._topics_by_id: dict[bytes, TopicInfo] = {}
        self._waiters: set[_Waiter] = set()

    def topic_by_id(self, topic_id: bytes) -> TopicInfo | None:
        """Return the topic that has this id, if it is known."""

    def partition(self, topic: str, partition: int) -> PartitionInfo | None:
        """Return what is known about one partition."""

    def is_alive(self, broker_id: int) -> bool:
        """Whether the controller counts this broker as live."""

    def endpoint(self, broker_id: int, listener: Listener) -> tuple[str, int] | None:
        """Return host and port of a live broker's listener."""

    def update(self, request: UpdateMetadataRequest) -> list[tuple[str, int]]:
        """Take over the live brokers, merge the partitions, wake waiters; returns the partitions removed.

        The caller has checked broker epoch and controller epoch.
        """

    async def wait_for(self, predicate: Callable[["MetadataCache"], bool], timeout: float) -> bool:
        """Wait until the predicate holds (tested now and after each update); False after `timeout` seconds."""
