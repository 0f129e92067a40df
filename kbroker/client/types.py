"""The small values that clients take and give."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3
"""Wanted "timestamps" of ListOffsets that are none."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class RecordMetadata(NamedTuple):
    """Where a record was written; offset -1 with acks=0, timestamp in ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """An offset found by ListOffsets, with its record's timestamp (ms; -1 where none was asked for)."""

    offset: int
    timestamp: int
    leader_epoch: int


class ResourceType(IntEnum):
    """What a configuration belongs to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


class ElectionType(IntEnum):
    """Which leader is wanted."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 asks for the broker's default. `assignments`: partition -> broker ids."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: dict[str, str] | None = None
    assignments: dict[int, list[int]] | None = None


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """What was created; -1 where the broker does not say."""

    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker of the cluster."""

    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition; leader None when there is none."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key's value; `source` as Kafka names it, e.g. DEFAULT_CONFIG."""

    name: str
    value: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None

    @property
    def is_default(self) -> bool:
        """Whether nobody set it."""
        return self.source == "DEFAULT_CONFIG"


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """One log of a log directory."""

    topic: str
    partition: int
    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One log directory of a broker; total and usable bytes -1 when not known, `error` its name or None."""

    broker_id: int
    path: str
    total_bytes: int
    usable_bytes: int
    error: str | None
    replicas: tuple[ReplicaSize, ...]


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A move under way."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
