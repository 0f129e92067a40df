"""Path and JSON of every znode of Kafka 3.9 in ZooKeeper mode: text and bytes out of values, and back (pure).

    /cluster/id                              {"version":"1","id":"<22 characters>"}
    /brokers/ids/1                           {"version":5,"host":…,"port":…,"endpoints":[…],…}          ephemeral
    /brokers/topics/t                        {"version":3,"topic_id":…,"partitions":{"0":[1,2]},…}
    /brokers/topics/t/partitions/0/state     {"version":1,"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1,2]}
    /controller                              {"version":2,"brokerid":1,"timestamp":"…",…}               ephemeral
    /controller_epoch                        1
    /config/topics/t                         {"version":1,"config":{"retention.ms":"1000"}}
    /config/changes/config_change_0000000000 {"version":2,"entity_path":"topics/t"}
    /admin/delete_topics/t                   null
    /latest_producer_id_block                {"version":1,"broker":1,"block_start":"0","block_end":"999"}

Readers ignore unknown keys, as Kafka's do; a node that cannot be read raises `MalformedZnode` naming the path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote_plus, unquote_plus

from kbroker.controller.znode_operations import ANY_VERSION
from kbroker.controller.znode_values import (
    LAST_EPOCH,
    UNREADABLE,
    broker_ids,
    number,
    read_json,
    text,
    topic_name,
    write_json,
)
from kbroker.protocol.grouping import TopicPartition as TopicPartition
from kbroker.protocol.primitives import uuid_from_text, uuid_to_text

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CLUSTER_ID = "/cluster/id"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "/config/changes/config_change_"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "/log_dir_event_notification/log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURE = "/feature"

TOP_LEVEL_PATHS = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)
"""Made by every broker at its start, all with null data (not empty: /latest_producer_id_block needs the difference)."""

DEFAULT_ENTITY = "<default>"
PRODUCER_ID_BLOCK_SIZE = 1000
LOG_DIR_FAILURE = 1
NO_LEADER = -1
RECOVERED = 0
RECOVERING = 1
_LAST_PRODUCER_ID = (1 << 63) - 1
_LAST_PORT = (1 << 16) - 1
_LAST_LEVEL = (1 << 15) - 1
_LONGEST_HOST = 1000

T = TypeVar("T")


class MalformedZnode(ValueError):
    """What a znode holds is not what Kafka keeps there; the message names the path."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One advertised listener of a broker."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        """`NAME://host:port`, IPv6 addresses in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """What a broker says of itself in /brokers/ids/<id>."""

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    timestamp_ms: int = 0
    jmx_port: int = -1
    group_protocols: tuple[str, ...] = ()
    """Those of consumer groups that the broker can coordinate; only kbroker says so, and Kafka does not mind."""
    features: Mapping[str, int] = field(default_factory=dict, hash=False)
    """The highest level that it supports of each feature."""
    epoch: int = -1
    """Creation zxid of the node; not in its data, filled in by whoever reads it."""

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of that listener, None where the broker has none."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """Who holds a partition: all replicas in order, and those a running reassignment adds or removes."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def is_being_reassigned(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.adding_replicas)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing_replicas)

    def reassign_to(self, target: tuple[int, ...]) -> ReplicaAssignment:
        """The assignment while moving from the present origin to `target`: target first, then what will go."""
        origin = self.origin
        removing = tuple(replica for replica in origin if replica not in target)
        adding = tuple(replica for replica in target if replica not in origin)
        return ReplicaAssignment(target + removing, adding, removing)


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """/brokers/topics/<topic>: its id and the replicas of its partitions."""

    topic_id: bytes | None
    """16 bytes; None when written by a very old broker, then the controller adds one."""
    partitions: dict[int, ReplicaAssignment]
    version: int = field(default=ANY_VERSION, compare=False)
    """The znode's version, not in its data: that it was read with, and must still have to be replaced."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """…/partitions/<p>/state: who leads, who is in sync; `partition_epoch` is the znode's version."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    partition_epoch: int = 0
    leader_recovery_state: int = RECOVERED
    changed_at: int = field(default=-1, compare=False)
    """zxid of the last change, where it was read from ZooKeeper."""


@dataclass(frozen=True, slots=True)
class Conflict(Generic[T]):
    """A partition's state or a topic that was not written: `current` is there instead (None: nothing)."""

    current: T | None


@dataclass(frozen=True, slots=True)
class ControllerNode:
    """/controller: who is the controller."""

    broker_id: int
    timestamp_ms: int = 0
    kraft_controller_epoch: int = -1
    version: int = 0
    """The znode's version; not in its data."""


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """A block of producer ids: `first` to `last`, both included."""

    broker_id: int
    first: int
    last: int


def read_object(data: bytes | None, path: str) -> dict[str, Any]:
    """The JSON object in a node, with the path named when there is none."""
    try:
        value = read_json(data)
    except (ValueError, RecursionError) as error:
        raise MalformedZnode(f"{path} does not hold JSON: {error}") from error
    if not isinstance(value, dict):
        raise MalformedZnode(f"{path} does not hold a JSON object")
    return value


# --- paths ---


def broker_path(broker_id: int) -> str:
    """/brokers/ids/<id>."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """/brokers/topics/<topic>."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """/brokers/topics/<topic>/partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    """/brokers/topics/<topic>/partitions/<partition>."""
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    """/brokers/topics/<topic>/partitions/<partition>/state."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def delete_topic_path(topic: str) -> str:
    """/admin/delete_topics/<topic>."""
    return f"{DELETE_TOPICS}/{topic}"


def config_path(entity_type: str, entity: str) -> str:
    """/config/<type>/<entity>; users' quotas per client have the entity `<user>/clients/<client>`."""
    return f"{CONFIG}/{entity_type}/{entity}"


def sanitize(name: str) -> str:
    """A user's, client's or address's name as it stands in paths (Kafka's Sanitizer)."""
    return quote_plus(name, safe=".-_").replace("~", "%7E").replace("+", "%20").replace("*", "%2A")


def desanitize(name: str) -> str:
    """The name that `sanitize` was given."""
    return unquote_plus(name)


# --- cluster and brokers ---


def encode_cluster_id(cluster_id: str) -> bytes:
    """Data of /cluster/id. Its version is the *string* "1"."""
    return write_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes | None) -> str:
    """The id in /cluster/id."""
    try:
        return str(read_object(data, CLUSTER_ID)["id"])
    except KeyError as error:
        raise MalformedZnode(f"{CLUSTER_ID} has no id") from error


def encode_broker(broker: BrokerRegistration) -> bytes:
    """Data of /brokers/ids/<id>, version 5."""
    plain = next((end for end in broker.endpoints if end.security_protocol == "PLAINTEXT"), None)
    value: dict[str, Any] = {
        "version": 5,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "jmx_port": broker.jmx_port,
        "timestamp": str(broker.timestamp_ms),
        "endpoints": [str(endpoint) for endpoint in broker.endpoints],
        "listener_security_protocol_map": {end.listener: end.security_protocol for end in broker.endpoints},
        "features": {name: {"min_version": 0, "max_version": level} for name, level in broker.features.items()},
    }
    if broker.rack is not None:
        value["rack"] = broker.rack
    if broker.group_protocols:
        value["group_protocols"] = broker.group_protocols
    return write_json(value)


def parse_endpoint(endpoint: str, protocols: Mapping[str, str]) -> Endpoint:
    """An endpoint out of `NAME://host:port`; a name that the map lacks is its own protocol. Raises ValueError."""
    listener, separator, address = text(endpoint).partition("://")
    host, colon, port_text = address.rpartition(":")
    if not separator or not colon or len(host) > _LONGEST_HOST:
        raise ValueError(f"no endpoint: {address!r:.300}")
    port = number(port_text, 0, _LAST_PORT)
    return Endpoint(listener, host.removeprefix("[").removesuffix("]"), port, text(protocols.get(listener, listener)))


def decode_broker(broker_id: int, data: bytes | None, epoch: int) -> BrokerRegistration:
    """The registration in /brokers/ids/<id>, any version; `epoch` is the node's creation zxid."""
    path = broker_path(broker_id)
    value = read_object(data, path)
    try:
        if "endpoints" in value:
            protocols = value.get("listener_security_protocol_map") or {}
            endpoints = tuple(parse_endpoint(each, protocols) for each in value["endpoints"])
        else:
            endpoints = (Endpoint("PLAINTEXT", text(value["host"]), number(value["port"], 0, _LAST_PORT)),)
        return BrokerRegistration(
            broker_id,
            endpoints,
            rack=None if value.get("rack") is None else text(value["rack"]),
            timestamp_ms=int(value.get("timestamp") or 0),
            jmx_port=int(value.get("jmx_port", -1)),
            group_protocols=tuple(map(text, value.get("group_protocols") or ())),
            features={
                text(name): number(each["max_version"], 0, _LAST_LEVEL)
                for name, each in (value.get("features") or {}).items()
            },
            epoch=epoch,
        )
    except UNREADABLE as error:
        raise MalformedZnode(f"{path} is no broker registration: {error!r}") from error


# --- topics and partitions ---


def encode_topic(topic: TopicAssignment) -> bytes:
    """Data of /brokers/topics/<topic>, version 3."""
    value: dict[str, Any] = {"version": 3}
    if topic.topic_id is not None:
        value["topic_id"] = uuid_to_text(topic.topic_id)
    partitions = topic.partitions.items()
    value["partitions"] = {str(number): each.replicas for number, each in partitions}
    value["adding_replicas"] = {
        str(number): each.adding_replicas for number, each in partitions if each.adding_replicas
    }
    value["removing_replicas"] = {
        str(number): each.removing_replicas for number, each in partitions if each.removing_replicas
    }
    return write_json(value)


def decode_topic(topic: str, data: bytes | None, version: int = ANY_VERSION) -> TopicAssignment:
    """The assignment in /brokers/topics/<topic>; `version` is the znode's."""
    path = topic_path(topic)
    value = read_object(data, path)
    try:
        topic_name(topic)
        topic_id = uuid_from_text(value["topic_id"]) if value.get("topic_id") else None
        adding = value.get("adding_replicas") or {}
        removing = value.get("removing_replicas") or {}
        partitions = {
            number(each): ReplicaAssignment(
                broker_ids(replicas), broker_ids(adding.get(each, [])), broker_ids(removing.get(each, []))
            )
            for each, replicas in value["partitions"].items()
        }
    except UNREADABLE as error:
        raise MalformedZnode(f"{path:.300} is no topic: {error!r}") from error
    return TopicAssignment(topic_id, dict(sorted(partitions.items())), version)


def encode_partition_state(state: PartitionState) -> bytes:
    """Data of …/state. Hot: written for thousands of partitions at once, so the text is put together by hand."""
    recovery = f',"leader_recovery_state":{state.leader_recovery_state}' if state.leader_recovery_state else ""
    isr = ",".join(map(str, state.isr))
    return (
        f'{{"controller_epoch":{state.controller_epoch},"leader":{state.leader},"version":1,'
        f'"leader_epoch":{state.leader_epoch},"isr":[{isr}]{recovery}}}'
    ).encode()


def decode_partition_state(
    partition: TopicPartition, data: bytes | None, version: int, changed_at: int = -1
) -> PartitionState:
    """The state in …/state; `version` is the znode's, our partition epoch, `changed_at` its mzxid."""
    try:
        value = read_json(data)
        return PartitionState(
            leader=number(value["leader"], NO_LEADER),
            leader_epoch=number(value["leader_epoch"], 0, LAST_EPOCH),
            isr=broker_ids(value["isr"]),
            controller_epoch=number(value["controller_epoch"], -1),
            partition_epoch=version,
            leader_recovery_state=number(value.get("leader_recovery_state", RECOVERED), RECOVERED, RECOVERING),
            changed_at=changed_at,
        )
    except UNREADABLE as error:
        raise MalformedZnode(f"{state_path(*partition)} is no partition state: {error!r}") from error


# --- controller ---


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """Data of /controller, version 2."""
    return write_json({"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes | None, version: int) -> ControllerNode:
    """Who /controller names."""
    value = read_object(data, CONTROLLER)
    try:
        return ControllerNode(
            number(value["brokerid"]),
            int(value.get("timestamp") or 0),
            int(value.get("kraftControllerEpoch", -1)),
            version,
        )
    except UNREADABLE as error:
        raise MalformedZnode(f"{CONTROLLER} names no broker: {error!r}") from error


def decode_controller_epoch(data: bytes | None) -> int:
    """The number of controllers that there were."""
    try:
        return number(str(data or b"", "utf-8"), 0, LAST_EPOCH)
    except UNREADABLE as error:
        advice = "write a number above each controller epoch that the brokers' logs name, below 2^31 - 1"
        raise MalformedZnode(f"{CONTROLLER_EPOCH} holds no epoch ({advice}): {error!s:.100}") from error


def encode_feature(levels: Mapping[str, int] | None = None) -> bytes:
    """Data of /feature: enabled, with the levels that count. Kafka 3.9 with ZooKeeper supports none."""
    features = {name: {"max_version_level": level} for name, level in (levels or {}).items()}
    return write_json({"version": 2, "status": 1, "features": features})


def is_feature_enabled(data: bytes | None) -> bool:
    """Whether /feature says that features are enabled and in the present form (version 2)."""
    value = read_object(data, FEATURE)
    return value.get("status") == 1 and value.get("version") == 2


def decode_feature(data: bytes | None) -> dict[str, int]:
    """The levels in /feature; none where features are disabled."""
    if not is_feature_enabled(data):
        return {}
    try:
        features = read_object(data, FEATURE)["features"]
        return {text(name): number(each["max_version_level"], 0, _LAST_LEVEL) for name, each in features.items()}
    except UNREADABLE as error:
        raise MalformedZnode(f"{FEATURE} holds no levels: {error!r}") from error


# --- configuration ---


def encode_config(config: Mapping[str, str]) -> bytes:
    """Data of /config/<type>/<entity>."""
    return write_json({"version": 1, "config": dict(config)})


def decode_config(data: bytes | None, path: str) -> dict[str, str]:
    """The overrides in /config/<type>/<entity>; null or empty data means none."""
    if not data:
        return {}
    config = read_object(data, path).get("config")
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise MalformedZnode(f"{path} has no object under config")
    try:
        return {str(name): str(value) for name, value in config.items()}
    except UNREADABLE as error:
        raise MalformedZnode(f"{path} holds no texts under config: {error!r}") from error


def encode_config_change(entity_type: str, entity: str) -> bytes:
    """Data of /config/changes/config_change_<n>."""
    return write_json({"version": 2, "entity_path": f"{entity_type}/{entity}"})


def decode_config_change(data: bytes | None, path: str) -> tuple[str, str] | None:
    """(type, entity) whose configuration changed; None for a version that nobody knows."""
    value = read_object(data, path)
    version = value.get("version")
    if version == 2:
        entity_type, separator, entity = str(value.get("entity_path")).partition("/")
        if not separator or not entity:
            raise MalformedZnode(f"{path} names no entity")
        return entity_type, entity
    if version == 1:
        return str(value.get("entity_type")), str(value.get("entity_name"))
    return None


# --- notifications, producer ids, legacy admin nodes ---


def encode_log_dir_event(broker_id: int) -> bytes:
    """Data of /log_dir_event_notification/log_dir_event_<n>: a log directory of that broker failed."""
    return write_json({"version": 1, "broker": broker_id, "event": LOG_DIR_FAILURE})


def decode_log_dir_event(data: bytes | None, path: str) -> int | None:
    """The broker whose log directory failed; None for other events."""
    value = read_object(data, path)
    try:
        return number(value["broker"]) if value.get("event") == LOG_DIR_FAILURE and "broker" in value else None
    except UNREADABLE as error:
        raise MalformedZnode(f"{path} names no broker: {error!r}") from error


def decode_partition_list(data: bytes | None, path: str) -> list[TopicPartition]:
    """The partitions in an ISR change notification or in /admin/preferred_replica_election."""
    try:
        partitions = read_object(data, path)["partitions"]
        return [TopicPartition(text(each["topic"]), number(each["partition"])) for each in partitions]
    except UNREADABLE as error:
        raise MalformedZnode(f"{path} lists no partitions: {error!r}") from error


def encode_reassignments(targets: Mapping[TopicPartition, tuple[int, ...]]) -> bytes:
    """Data of /admin/reassign_partitions."""
    return write_json(
        {
            "version": 1,
            "partitions": [
                {"topic": each.topic, "partition": each.partition, "replicas": list(replicas)}
                for each, replicas in targets.items()
            ],
        }
    )


def decode_reassignments(data: bytes | None) -> dict[TopicPartition, tuple[int, ...]]:
    """The targets in /admin/reassign_partitions. Strict, as Kafka is: unknown keys are an error."""
    value = read_object(data, REASSIGN_PARTITIONS)
    if set(value) - {"version", "partitions"}:
        raise MalformedZnode(f"{REASSIGN_PARTITIONS} has unknown keys")
    targets = {}
    try:
        for each in value["partitions"]:
            if set(each) - {"topic", "partition", "replicas"}:
                raise MalformedZnode(f"{REASSIGN_PARTITIONS} has unknown keys")
            targets[TopicPartition(text(each["topic"]), number(each["partition"]))] = broker_ids(each["replicas"])
    except UNREADABLE as error:
        raise MalformedZnode(f"{REASSIGN_PARTITIONS} is no reassignment: {error!r}") from error
    return targets


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """Data of /latest_producer_id_block."""
    return write_json(
        {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
    )


def decode_producer_id_block(data: bytes | None) -> ProducerIdBlock | None:
    """The block that was handed out last; None for null data: none yet."""
    if data is None:
        return None
    value = read_object(data, PRODUCER_ID_BLOCK)
    try:
        first = number(value["block_start"], 0, _LAST_PRODUCER_ID)
        return ProducerIdBlock(int(value["broker"]), first, number(value["block_end"], first, _LAST_PRODUCER_ID))
    except UNREADABLE as error:
        raise MalformedZnode(f"{PRODUCER_ID_BLOCK} holds no block: {error!r}") from error


def next_producer_id_block(broker_id: int, current: ProducerIdBlock | None) -> ProducerIdBlock | None:
    """The block after `current`; None when all ids have been handed out."""
    if current is None:
        return ProducerIdBlock(broker_id, 0, PRODUCER_ID_BLOCK_SIZE - 1)
    if current.last > _LAST_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
        return None
    return ProducerIdBlock(broker_id, current.last + 1, current.last + PRODUCER_ID_BLOCK_SIZE)
