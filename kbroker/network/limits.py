"""What the server may take: connections, bytes, buffers; its share of the broker's configuration."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from kbroker.cluster.host_addresses import look_up
from kbroker.config.broker_config import BrokerConfig
from kbroker.protocol.apis import API_BY_KEY

NO_LIMIT = (1 << 31) - 1

PRODUCE, FETCH, OFFSET_FOR_LEADER_EPOCH = 0, 1, 23
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, WRITE_TXN_MARKERS, ALTER_PARTITION = 4, 5, 6, 27, 56
ALTER_REPLICA_LOG_DIRS, ELECT_LEADERS, LIST_PARTITION_REASSIGNMENTS = 34, 43, 46
CREATE_TOPICS, DELETE_TOPICS = 19, 20
JOIN_GROUP, CREATE_ACLS, DELETE_ACLS, CONSUMER_GROUP_HEARTBEAT = 11, 30, 31, 68
ADD_PARTITIONS_TO_TXN = 24
ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, ALTER_CLIENT_QUOTAS = 33, 44, 49
DESCRIBE_SCRAM_CREDENTIALS, ALTER_SCRAM_CREDENTIALS = 50, 51
CREATE_PARTITIONS, ALTER_REASSIGNMENTS = 37, 45

LARGE_REQUESTS = frozenset((PRODUCE, LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, WRITE_TXN_MARKERS, ALTER_PARTITION))
"""API keys of requests that hold record batches or speak of all a cluster's partitions: socket.request.max.bytes."""

MOST_LATE_ANSWERS = 128
"""Produce or EndTxn requests of one connection that wait for a flush or for replicas; the next one waits in its socket.
"""
LARGEST_EXPECTED = 1 << 20
"""Most bytes of a buffer that is kept ready for a connection's next frame."""
LONG_BACKLOG = 1024
"""Connections that wait to be accepted, unless a key says otherwise; the system may allow fewer."""
LARGE_FRAME = 1 << 14
"""A frame that is larger may take milliseconds to decode."""
MOST_AT_ONCE = 2_000
"""Elements in all arrays of a request or an answer that are decoded or encoded in one go: they take a millisecond."""
MOST_ELEMENTS = 50_000
"""Elements in all arrays of one request."""
MOST_ELEMENTS_OF = {
    JOIN_GROUP: MOST_AT_ONCE,
    CREATE_ACLS: 10_000,
    DELETE_ACLS: 10_000,
    ALTER_REPLICA_LOG_DIRS: 12_500,
    ELECT_LEADERS: 12_500,
    LIST_PARTITION_REASSIGNMENTS: 12_500,
    CONSUMER_GROUP_HEARTBEAT: 25_000,
    FETCH: 100_000,
    OFFSET_FOR_LEADER_EPOCH: 100_000,
    LEADER_AND_ISR: 4_000_000,
    STOP_REPLICA: 4_000_000,
    UPDATE_METADATA: 4_000_000,
    WRITE_TXN_MARKERS: 4_000_000,
    ALTER_PARTITION: 4_000_000,
}
"""What brokers send holds an element for each partition, or several. Four plain numbers count as one element, and each
KiB of a text as another one.

A member names few protocols; a rule, a heartbeat's subscription are taken in one turn of the loop, and so have less.
"""

CHANGES_ONE_BY_ONE = frozenset(
    (
        CREATE_TOPICS,
        DELETE_TOPICS,
        CREATE_ACLS,
        DELETE_ACLS,
        ALTER_CONFIGS,
        INCREMENTAL_ALTER_CONFIGS,
        ALTER_CLIENT_QUOTAS,
        DESCRIBE_SCRAM_CREDENTIALS,
        ALTER_SCRAM_CREDENTIALS,
        CREATE_PARTITIONS,
        ELECT_LEADERS,
        ALTER_REASSIGNMENTS,
    )
)
"""API keys of requests that change one thing after the other in ZooKeeper, or that the controller works off one after
the other. Users are read there by the thousand.
"""

BROKER_REQUESTS = frozenset((LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, 7, WRITE_TXN_MARKERS, ALTER_PARTITION, 67))
"""API keys of requests that only brokers send: those and ControlledShutdown, AllocateProducerIds."""
OPERATORS_REQUESTS = frozenset((WRITE_TXN_MARKERS,))
"""Those that operators send, too, to end a hanging transaction (KIP-664): where there are rules, they decide."""
BROKERS_LINE = BROKER_REQUESTS | {FETCH, OFFSET_FOR_LEADER_EPOCH, ADD_PARTITIONS_TO_TXN}
"""What does not wait behind clients' large requests, on listeners that take what brokers send. Where clients share one
with brokers they ask for some of it, too.
"""


def broker_listeners(config: BrokerConfig) -> frozenset[str] | None:
    """Return the listeners that take what only brokers send; None for all: clients and brokers share one.

    Kafka takes it on every listener and leaves the rest to its authorizer.
    """
    own = {config.inter_broker_listener}
    if config.control_plane_listener_name:
        own.add(config.control_plane_listener_name.upper())
    if config.kbroker_brokers_on_any_listener or own >= {listener.name for listener in config.parsed_listeners}:
        return None
    return frozenset(own)


def most_elements(api_key: int) -> int:
    """Return how many elements the arrays of one request may have, all together."""
    return MOST_ELEMENTS_OF.get(api_key, MOST_ELEMENTS)


@dataclass(slots=True)
class ServerLimits:
    """Kafka's keys for connections; may be replaced while the server runs (`Server.limits`)."""

    request_max_bytes: int = 104_857_600
    """socket.request.max.bytes"""
    small_request_max_bytes: int = 4 << 20
    """kbroker.small.request.max.bytes: what is allowed to all but LARGE_REQUESTS"""
    queued_max_bytes: int = -1
    """queued.max.request.bytes: no further frame is read while the requests in work hold as much; -1 is no limit."""
    max_idle_ms: int = 600_000
    """connections.max.idle.ms; negative is never"""
    max_connections: int = NO_LIMIT
    max_connections_per_ip: int = NO_LIMIT
    max_creation_rate: int = NO_LIMIT
    """max.connection.creation.rate: further connections wait"""
    rate_samples: int = 11
    """quota.window.num"""
    rate_sample_ms: int = 1000
    """quota.window.size.seconds"""
    per_ip_overrides: dict[str, int] = field(default_factory=dict)
    """Address -> limit"""
    listener_max_connections: dict[str, int] = field(default_factory=dict)
    listener_creation_rates: dict[str, int] = field(default_factory=dict)
    backlog: int = LONG_BACKLOG
    """socket.listen.backlog.size"""
    send_buffer_bytes: int = 102_400
    receive_buffer_bytes: int = 102_400
    broker_listeners: frozenset[str] | None = None
    """Listeners that take what only brokers send; None for all"""
    privileged_listener: str = ""
    """The brokers' own listener, where clients have another one: max.connections does not stop it."""

    def __post_init__(self) -> None:
        self.small_request_max_bytes = min(self.small_request_max_bytes, self.request_max_bytes)


def server_limits(config: BrokerConfig) -> ServerLimits:
    """Return the server's share of the broker's keys."""
    return ServerLimits(
        request_max_bytes=config.socket_request_max_bytes,
        small_request_max_bytes=config.kbroker_small_request_max_bytes,
        queued_max_bytes=config.queued_max_request_bytes,
        max_idle_ms=config.connections_max_idle_ms,
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_creation_rate=config.max_connection_creation_rate,
        rate_samples=config.quota_window_num,
        rate_sample_ms=config.quota_window_size_seconds * 1000,
        per_ip_overrides={host: limit for host, limit in config.per_ip_overrides.items() if is_address(host)},
        listener_max_connections=config.of_listeners("max.connections"),
        listener_creation_rates=config.of_listeners("max.connection.creation.rate"),
        backlog=_backlog(config),
        send_buffer_bytes=_buffer_bytes(config, "socket.send.buffer.bytes"),
        receive_buffer_bytes=_buffer_bytes(config, "socket.receive.buffer.bytes"),
        broker_listeners=broker_listeners(config),
        privileged_listener=config.inter_broker_listener if len(config.parsed_listeners) > 1 else "",
    )


def refusal_of_size(
    first_bytes: bytes, size: int, limits: ServerLimits, takes_brokers: bool, key: str = "socket.request.max.bytes"
) -> str | None:
    """Say why a frame that is not small is refused; None when its API may be as large.

    `first_bytes`: with its size. `key`: what limits the size.
    """
    if not 0 <= size <= limits.request_max_bytes:
        return explain_size(first_bytes, size, limits.request_max_bytes, key)
    api_key = int.from_bytes(first_bytes[4:6], "big", signed=True)
    if api_key in LARGE_REQUESTS and (takes_brokers or api_key not in BROKER_REQUESTS):
        return None
    return explain_request_size(api_key, size, limits.small_request_max_bytes)


def explain_size(first_bytes: bytes, size: int, limit: int, key: str = "socket.request.max.bytes") -> str:
    """Say in one line why a frame of this announced size is refused, and what was probably meant."""
    if first_bytes[:2] == b"\x16\x03":
        return "it speaks TLS, but this listener is PLAINTEXT"
    if first_bytes[:4] in (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"CONN"):
        return "it speaks HTTP, but this is a Kafka listener"
    if size < 0:
        return f"it announced a frame of negative size {size}"
    return f"it announced a frame of {size} bytes, more than {key}={limit}"


def explain_request_size(api_key: int, size: int, limit: int) -> str:
    """Say in one line why a request of this API is refused for its size."""
    name = API_BY_KEY[api_key].name if api_key in API_BY_KEY else f"unknown (API key {api_key})"
    return f"it announced a request of {size} bytes, {name}: more than kbroker.small.request.max.bytes={limit}"


def is_address(host: str) -> bool:
    """Whether it is an address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def addresses_of(overrides: Mapping[str, int]) -> dict[str, int]:
    """Return limits by address, those of names by all addresses the names have; raises OSError that tells the name."""
    found = {}
    for host, limit in overrides.items():
        try:
            addresses = await look_up(host, patient=True)
        except (OSError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise OSError(f"max.connections.per.ip.overrides: the host {host} is not known: {reason}") from error
        for address in addresses:
            found[address] = limit
    return found


def _backlog(config: BrokerConfig) -> int:
    """Kafka's default of 50 overflows while hundreds connect at once, and who is dropped tries again after a second."""
    key = "socket.listen.backlog.size"
    return config.socket_listen_backlog_size if key in config.properties else LONG_BACKLOG


def _buffer_bytes(config: BrokerConfig, key: str) -> int:
    """Kafka's default of 100 KB keeps Linux from growing a socket's buffers, at half the throughput: only if asked."""
    return int(config.properties[key]) if key in config.properties else -1
