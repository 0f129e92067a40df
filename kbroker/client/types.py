"""The small values that clients take and give."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from kbroker.protocol.grouping import TopicPartition as TopicPartition
from kbroker.protocol.messages.offsets import EARLIEST as EARLIEST
from kbroker.protocol.messages.offsets import LATEST as LATEST
from kbroker.protocol.messages.offsets import MAX_TIMESTAMP as MAX_TIMESTAMP
from kbroker.security.acls import AclOperation, AclPattern, AclPermission, AclResource


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


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset: the next one to read, with a text of the committer's and its leader epoch (-1 unknown)."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Who a consumer is in its group: generation (or member epoch) -1 and member id "" as long as it is nobody."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


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
    configs: Mapping[str, str] | None = None
    assignments: Mapping[int, Sequence[int]] | None = None


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
class FeatureDescription:
    """What brokers can do together, by levels: those that the broker supports, and the one that counts (0: none)."""

    name: str
    lowest: int
    highest: int
    level: int


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
class DamagedSegment:
    """What a scrub has found; `state` "mending", "mended" (or removed since) or "damaged"."""

    broker_id: int
    topic: str
    partition: int
    log_dir: str
    segment: int
    """Its base offset, which is its file's name."""
    position: int
    """Of the first bad batch in the file, bytes."""
    offset: int
    """Records from here on may be lost, up to `end_offset`, exclusive."""
    end_offset: int
    state: str
    why: str


@dataclass(frozen=True, slots=True)
class Scrub:
    """How far a broker is with reading closed segments again; over and not all checked: it was given up."""

    broker_id: int
    is_over: bool
    segments: int
    checked_segments: int
    bytes: int
    checked_bytes: int
    damages: tuple[DamagedSegment, ...]


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A move under way."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list; `type` is "classic" or "consumer" (KIP-848), `state` "" where the broker does not say."""

    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A group's member; `epoch` and `target` (what it is to get) only in groups of type "consumer"."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group; `assignor` is "" unless it is stable, `epoch` None in classic groups, `coordinator` a broker id."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[MemberDescription, ...]
    epoch: int | None = None
    last_rebalance: str = ""
    """Why the group rebalanced last; "" where the broker does not say (Kafka's never do)."""


@dataclass(frozen=True, slots=True)
class GroupRebalance:
    """A rebalance of a group, as the broker tells it that coordinated the group then."""

    broker: int
    timestamp_ms: int
    """When it began, in ms since 1970 by the broker's clock."""
    duration_ms: int | None
    """Until the members had what they shall read; None: it is under way. 0: nobody had to wait."""
    generation: int
    """That it led to (the epoch of a group of the newer protocol); -1: to none."""
    members: int
    reasons: tuple[str, ...]
    outcome: str
    advice: tuple[str, ...]
    """What to change so that it does not happen again; mostly nothing."""


@dataclass(frozen=True, slots=True)
class AccessRule:
    """An access rule (Kafka's ACL binding)."""

    resource: AclResource
    name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = "*"
    pattern: AclPattern = AclPattern.LITERAL


@dataclass(frozen=True, slots=True)
class AccessRuleFilter:
    """Which access rules are meant; None and ANY match everything."""

    resource: AclResource = AclResource.ANY
    name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    host: str | None = None
    pattern: AclPattern = AclPattern.ANY


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in a list; `state` as Kafka names it: Empty, Ongoing, CompleteCommit, …"""

    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as its coordinator (a broker id) has it; `started_ms` None when no transaction is open."""

    transactional_id: str
    state: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """A producer as a partition's log knows it; times in ms, -1 and None: not known, or no transaction open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int | None


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a partition and that no coordinator will end; `transactional_id` "" if unknown."""

    partition: TopicPartition
    producer: ProducerDescription
    transactional_id: str


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token that logs in as its owner. Principals are texts, `User:alice`; times are milliseconds since 1970."""

    token_id: str
    hmac: bytes = field(repr=False)
    """The token's secret."""
    owner: str
    requester: str
    """Who asked for it; "" where the broker does not say (before Kafka 3.3)."""
    renewers: tuple[str, ...]
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    """Until when it may be renewed."""

    @property
    def login(self) -> dict[str, str]:
        """The settings by which a client of any kind logs in with it, but for where the brokers are."""
        return {
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": self.token_id,
            "sasl_password": b64encode(self.hmac).decode(),
            "sasl_tokenauth": "true",
        }
