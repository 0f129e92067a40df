"""Creating topics and partitions: check what is asked, place the replicas, write it to ZooKeeper, wait for the
controller.

Shared by CreateTopics, CreatePartitions and automatic creation. The controller sees the new znodes, makes the
partitions and tells every broker; `wait_for_leaders` ends when this broker's metadata cache shows them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from kbroker.cluster.metadata_cache import MetadataCache
from kbroker.cluster.topic_names import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, colliding, name_problem
from kbroker.config.broker_config import BrokerConfig
from kbroker.config.dynamic_config import DynamicConfig
from kbroker.controller.broker_store import NewTopic
from kbroker.controller.placement import BrokerRack, assign_replicas
from kbroker.controller.wording import few
from kbroker.controller.znode_operations import NodeExists, TooLarge, ZooKeeperError
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.primitives import ZERO_UUID, uuid_to_text
from kbroker.security.limited_lines import LimitedLines

log = logging.getLogger(__name__)
_refusals = LimitedLines(log, "requests for topics that cannot be created automatically")
_next_turn = partial(asyncio.sleep, 0)

UNDER_WAY = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT)
"""How the making of a topic may have gone that is there soon."""
MOST_UNDER_WAY = 2_000
"""Topics that are made automatically at one time: while ZooKeeper hangs, clients may come, ask and leave for long."""
FEW = 10
"""Topics that are made however many are under way, so that nobody is shut out: they take little memory."""
BROKERS_DEFAULT = -1
"""Number of partitions, or replication factor: whatever the broker has set."""


class ClusterParts(Protocol):
    """What this asks of a broker's parts (`Services` has them)."""

    config: BrokerConfig
    configs: DynamicConfig
    metadata: MetadataCache
    zookeeper: ZooKeeper


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """A topic somebody wants; `assignment` goes instead of the two numbers."""

    name: str
    partitions: int = BROKERS_DEFAULT
    replication_factor: int = BROKERS_DEFAULT
    assignment: Mapping[int, Sequence[int]] | None = None
    config: Mapping[str, str | None] | None = None


class CreationLimit:
    """What one request may create; what cannot be small is known before any of it is placed."""

    def __init__(self, config: BrokerConfig, metadata: MetadataCache | None = None) -> None:
        """`metadata` knows the topics that are there; without it none is listed."""
        self._config = config
        self._partitions = config.kbroker_max_partitions_per_topic
        self._replicas = config.kbroker_max_replicas_per_request
        self._taken = 0
        self._metadata = metadata
        self._listed_bytes: int | None = None

    def take(self, partitions: int, replicas: int) -> None:
        """Allow a topic with so many partitions in all, so many replicas of them new; raises INVALID_PARTITIONS."""
        if partitions > self._partitions:
            text = (
                f"A topic can have {self._partitions} partitions at most, not {partitions}: "
                "kbroker.max.partitions.per.topic allows no more."
            )
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
        if self._taken + replicas > self._replicas:
            text = (
                f"One request can create {self._replicas} replicas at most, and this is one for "
                f"{self._taken + replicas} or more: kbroker.max.replicas.per.request allows no more."
            )
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
        self._taken += replicas

    def list_topic(self, name: str) -> None:
        """Allow one more name in ZooKeeper's list of all topics; raises POLICY_VIOLATION.

        A list that a broker of Kafka cannot read stops it, and each one that becomes the controller after it. The
        internal topics are few, and much waits for them: they are always allowed.
        """
        if name in INTERNAL_TOPICS or self._metadata is None:
            return
        if self._listed_bytes is None:
            self._listed_bytes = list_bytes(self._metadata.topics)
        needed, allowed = self._listed_bytes + list_bytes((name,)), self._config.kbroker_max_topic_names_bytes
        if needed > allowed:
            self._metadata.topics_refused += 1
            text = (
                f"The names of all topics would take {needed} bytes in ZooKeeper's list of them, and "
                f"kbroker.max.topic.names.bytes allows {allowed}: delete topics, or give shorter names."
            )
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
        self._listed_bytes = needed


def list_bytes(names: Iterable[str]) -> int:
    """Return how long ZooKeeper's list of these names is: each has its length, of four bytes, before it."""
    return sum(4 + len(name) for name in names)


def plan_topic(parts: ClusterParts, wanted: TopicRequest, limit: CreationLimit | None = None) -> NewTopic:
    """Check all about a topic and place its replicas; raises KafkaError with Kafka's code and a clear message.

    `limit` is shared by the topics of a request.
    """
    known = parts.metadata.topics
    if wanted.name in known:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{wanted.name}' already exists.")
    config = dict(wanted.config or {})
    without_value = sorted(key for key, value in config.items() if value is None)
    if without_value:
        text = f"Null value not supported for topic configs: {', '.join(without_value)}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    limit = limit or CreationLimit(parts.config, parts.metadata)
    assignment = _place(parts, wanted, limit)
    problem = name_problem(wanted.name)
    if problem:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    same = colliding(wanted.name, known)
    if same:
        text = f"Topic '{wanted.name}' collides with existing topics: {', '.join(same)}"
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    overrides = {key: value for key, value in config.items() if value is not None}
    parts.configs.check_topic_overrides(overrides)
    limit.list_topic(wanted.name)
    return NewTopic(wanted.name, new_topic_id(), assignment, overrides)


def _place(parts: ClusterParts, wanted: TopicRequest, limit: CreationLimit) -> dict[int, list[int]]:
    if wanted.assignment:
        if wanted.partitions != BROKERS_DEFAULT or wanted.replication_factor != BROKERS_DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time.",
            )
        limit.take(len(wanted.assignment), sum(map(len, wanted.assignment.values())))
        assignment = {number: list(replicas) for number, replicas in wanted.assignment.items()}
        check_manual_assignment(assignment)
        return assignment
    config = parts.config
    partitions = config.num_partitions if wanted.partitions == BROKERS_DEFAULT else wanted.partitions
    factor = wanted.replication_factor
    if factor == BROKERS_DEFAULT:
        factor = config.default_replication_factor
    limit.take(partitions, partitions * max(factor, 1))
    brokers = broker_racks(parts.metadata)
    count = max(len(brokers), 1)
    return assign_replicas(brokers, partitions, factor, random.randrange(count), random.randrange(count))


def check_manual_assignment(assignment: Mapping[int, Sequence[int]]) -> None:
    """Check replicas given by hand for a new topic; raises KafkaError INVALID_REPLICA_ASSIGNMENT."""
    if sorted(assignment) != list(range(len(assignment))):
        text = "partitions should be a consecutive 0-based integer sequence"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    for number, replicas in assignment.items():
        if not replicas:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Partition {number} has no replicas")
        if len(set(replicas)) != len(replicas):
            text = f"Duplicate replica assignment found: partition {number} on {few(replicas)}"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        if any(replica < 0 for replica in replicas):
            text = f"Partition {number} has a negative broker id among its replicas: {few(replicas)}"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    if len({len(replicas) for replicas in assignment.values()}) > 1:
        text = "All partitions should have the same number of replicas"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


def broker_racks(metadata: MetadataCache) -> list[BrokerRack]:
    """Return the live brokers as placement wants them."""
    return [BrokerRack(broker.id, broker.rack) for broker in metadata.brokers.values()]


def new_topic_id() -> bytes:
    """Return a random id; never one whose text begins with a dash, which command lines would take for an option."""
    while True:
        topic_id = uuid.uuid4().bytes
        if topic_id != ZERO_UUID and not uuid_to_text(topic_id).startswith("-"):
            return topic_id


async def write_topics(parts: ClusterParts, topics: Sequence[NewTopic]) -> dict[str, KafkaError | None]:
    """Write planned topics to ZooKeeper; give each its error or None."""
    try:
        outcome = await parts.zookeeper.create_topics(topics)
    except ZooKeeperError as error:
        return dict.fromkeys((topic.name for topic in topics), _unwritten([topic.name for topic in topics], error))
    return {name: _as_kafka_error(name, error) for name, error in outcome.items()}


def _as_kafka_error(name: str, error: ZooKeeperError | None) -> KafkaError | None:
    if error is None:
        return None
    if isinstance(error, NodeExists):
        return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if isinstance(error, TooLarge):
        return KafkaError(ErrorCode.INVALID_REQUEST, f"The topic does not fit into ZooKeeper: {error}.")
    return _unwritten([name], error)


def _unwritten(names: Sequence[str], error: ZooKeeperError) -> KafkaError:
    """Say once why topics, thousands perhaps, are not in ZooKeeper."""
    log.error("%d topic(s) could not be written to ZooKeeper, %s: %s", len(names), few(names), error)
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper: {error}")


async def wait_for_leaders(metadata: MetadataCache, counts: Mapping[str, int], timeout_ms: int) -> set[str]:
    """Wait until each topic has that many partitions, all with a leader; return the topics that have not in time."""
    if timeout_ms <= 0:
        return set(counts)

    def leads(name: str) -> bool:
        topic = metadata.topics.get(name)
        if topic is None or len(topic.partitions) < counts[name]:
            return False
        return all(partition.leader in metadata.brokers for partition in topic.partitions.values())

    return set(await metadata.wait_for_all(counts, leads, timeout_ms / 1000))


# -- automatic creation -------------------------------------------------------------------------------------------


def automatic_topic(config: Any, name: str) -> TopicRequest:
    """Return what an automatically created topic looks like; the internal ones have their own settings."""
    if name == OFFSETS_TOPIC:
        overrides = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
        return TopicRequest(
            name,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            config=overrides,
        )
    if name == TRANSACTIONS_TOPIC:
        overrides = {
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
        }
        return TopicRequest(
            name,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            config=overrides,
        )
    return TopicRequest(name)


async def create_missing_topics(
    parts: ClusterParts, names: Iterable[str], in_between: Callable[[], Awaitable[object]] = _next_turn
) -> dict[str, ErrorCode]:
    """Create topics nobody asked for in so many words; return for each the code a Metadata answer gives it.

    A topic under way is LEADER_NOT_AVAILABLE: the client asks again in a moment. So are many where many others are
    under way. Too few brokers for the replication factor is INVALID_REPLICATION_FACTOR. `in_between` lets others have
    their turns of the loop: there may be thousands.
    """
    codes: dict[str, ErrorCode] = {}
    missing: list[str] = []
    under_way = parts.metadata.under_way
    wanted = dict.fromkeys(names)
    for name in wanted:
        if name in under_way or (len(wanted) > FEW and len(under_way) >= MOST_UNDER_WAY):
            codes[name] = ErrorCode.LEADER_NOT_AVAILABLE
        else:
            under_way.add(name)
            missing.append(name)
    try:
        return codes | await _create_missing(parts, missing, in_between)
    finally:
        under_way.difference_update(missing)


async def _create_missing(
    parts: ClusterParts, names: Sequence[str], in_between: Callable[[], Awaitable[object]]
) -> dict[str, ErrorCode]:
    codes: dict[str, ErrorCode] = {}
    planned: list[NewTopic] = []
    limit = CreationLimit(parts.config, parts.metadata)
    for name in names:
        try:
            planned.append(plan_topic(parts, automatic_topic(parts.config, name), limit))
        except KafkaError as error:
            codes[name] = error.code
        await in_between()
    errors = await write_topics(parts, planned) if planned else {}
    codes.update({name: error.code if error else ErrorCode.NONE for name, error in errors.items()})
    outcomes: dict[ErrorCode, list[str]] = {}
    for name, code in codes.items():
        outcomes.setdefault(code, []).append(name)
        if code in UNDER_WAY:
            codes[name] = ErrorCode.LEADER_NOT_AVAILABLE
    for code, of_code in outcomes.items():
        if code is ErrorCode.NONE:
            log.info("created automatically: %s", few(of_code))
        elif code not in UNDER_WAY:  # clients ask for them again and again
            level = _refusals.level(code.name, logging.WARNING)
            log.log(level, "cannot be created automatically, %s: %s", code.name, few(of_code))
    return codes
