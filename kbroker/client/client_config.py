"""What clients can be told: declared once, as keyword arguments in snake_case; docs/client-settings.md lists them.

    Producer("127.0.0.1:9092", acks="all", linger_ms=5)
    ConsumerConfig.read({"kafka.bootstrap.servers": "…", "fetch.min.bytes": "1"})       dotted names, values as text

A name nobody knows is refused with the nearest that exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from kbroker.client.errors import ConfigurationError
from kbroker.client.partitioners import BY_NAME, Partitioner
from kbroker.client.security import Security
from kbroker.client.serializers import Serializer, is_serializer
from kbroker.client.settings import read_settings, setting
from kbroker.protocol.config_def import at_least, one_of, satisfies

C = TypeVar("C", bound="ClientConfig")

DEFAULT_PORT = 9092
NEW_TOPIC_S = 1.0
"""A broker may not have heard yet of a topic that was just created, or of any when it just started."""
ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
LEVELS = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131_072, 22)}
"""Codecs that have levels."""
ASSIGNOR_NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")
NOT_NEGATIVE = at_least(0)
FUNCTION = satisfies("a function", lambda v: None if callable(v) else "no function")
SERIALIZER = satisfies(
    "a function, or an object with `serialize(topic, value)`", lambda v: None if is_serializer(v) else "no serializer"
)


def _partitioner_problem(value: object) -> str | None:
    return None if callable(value) or (isinstance(value, str) and value in BY_NAME) else "no partitioner"


@dataclass(frozen=True, kw_only=True)
class ClientConfig(Security):
    """What all clients have. Times are milliseconds, sizes bytes."""

    bootstrap: str = setting("", "`host:port,…` of some brokers: enough that one of them answers. Always needed.")
    client_id: str = setting("kbroker", "The client's name in the brokers' logs, metrics and quotas.")
    request_timeout_ms: int = setting(30_000, "How long the answer to one request may take.", NOT_NEGATIVE)
    connect_timeout_ms: int = setting(10_000, "How long making a connection may take.", NOT_NEGATIVE)
    retry_backoff_ms: int = setting(
        50, "The pause before a second try; it doubles with each further one.", NOT_NEGATIVE
    )
    retry_backoff_max_ms: int = setting(1_000, "The longest pause between two tries.", NOT_NEGATIVE)
    metadata_max_age_ms: int = setting(
        300_000, "After so long the metadata are asked for again, though nothing seems to have changed.", NOT_NEGATIVE
    )

    tracing: bool = setting(
        False,
        "OpenTelemetry, of producers and consumers: a span for each record that `send` takes, named in its "
        "`traceparent` header, and one for each poll, with links to those. Needs opentelemetry-sdk, and an application "
        "that sets it up.",
    )

    @classmethod
    def read(cls: type[C], options: Mapping[str, Any]) -> C:
        """Read options by snake_case or dotted names, with or without `kafka.` in front; raises ConfigurationError."""
        return cls(**read_settings(cls, options))

    def __post_init__(self) -> None:
        if not isinstance(self.bootstrap, str) or not self.bootstrap.strip():
            raise ConfigurationError("bootstrap: 'host:port,…' is needed")
        self.addresses()
        super().__post_init__()

    @property
    def pool_bytes(self) -> int:
        """How much memory for answers is kept to be used again."""
        return 64 << 20

    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each bootstrap broker."""
        return [_address(text.strip()) for text in self.bootstrap.split(",") if text.strip()]


@dataclass(frozen=True, kw_only=True)
class AdminConfig(ClientConfig):
    """An Admin's arguments."""

    default_api_timeout_ms: int | None = setting(
        None,
        "How long a call about topics, partitions, records to delete, leaders to elect, reassignments or features may "
        "take that takes a timeout_ms and was given none; None: request_timeout_ms.",
        at_least(1),
    )
    wait_for_brokers: bool = setting(
        True,
        "Whether calls wait for brokers that were there before and do not answer now, for request_timeout_ms at most: "
        "they may be starting again. False: most fail at once.",
    )


@dataclass(frozen=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """A Producer's arguments."""

    acks: str | int = setting(
        "all",
        "Who must have a record before it counts: all in-sync replicas, the leader (1), nobody (0: no offsets either).",
        satisfies("all, -1, 1, 0", lambda v: None if str(v) in ACKS else "unknown"),
    )
    enable_idempotence: bool | None = setting(
        None, 'Write nothing twice and keep the order whatever is sent again; None: as long as acks is "all".'
    )
    transactional_id: str | None = setting(
        None,
        "The producer's lasting name for transactions: one that begins with it ends what another of that name has left "
        'open. Needs acks="all" and idempotence.',
    )
    transaction_timeout_ms: int = setting(
        60_000,
        "A transaction that is open for longer is aborted by its coordinator; the brokers' transaction.max.timeout.ms "
        "limits it.",
        at_least(1),
    )
    linger_ms: int = setting(5, "How long a batch waits for more records.", NOT_NEGATIVE)
    batch_size: int = setting(
        131_072, "Bytes (before compression) after which a partition's batch is sent without waiting.", NOT_NEGATIVE
    )
    arrow_batch_size: int = setting(
        524_288, "The same for the rows of `send_arrow`: larger, as they need not wait for each other.", NOT_NEGATIVE
    )
    max_request_size: int = setting(
        1_048_576, "The largest record, and the largest request unless one batch is larger.", NOT_NEGATIVE
    )
    buffer_memory: int = setting(
        67_108_864, "Bytes of records that are not acknowledged yet; beyond them `send` waits.", at_least(1)
    )
    max_block_ms: int = setting(
        60_000,
        "How long `send` waits for a topic's metadata or for room; then it raises.",
        NOT_NEGATIVE,
    )
    delivery_timeout_ms: int = setting(
        120_000,
        "Within this time a record is acknowledged or has failed (DeliveryTimeout), whatever the brokers do. "
        "Longer than linger_ms.",
        NOT_NEGATIVE,
    )
    max_in_flight: int = setting(5, "Requests to a broker without an answer; with idempotence at most 5.", at_least(1))
    compression: str = setting("none", "How batches are compressed.", one_of("none", "gzip", "snappy", "lz4", "zstd"))
    compression_level: int | None = setting(
        None, "Of the codec: gzip 1 to 9 (or -1), lz4 1 to 17, zstd -131072 to 22; None: the codec's default."
    )
    compression_gzip_level: int | None = setting(None, "The level where compression is gzip, else without effect.")
    compression_lz4_level: int | None = setting(None, "The level where compression is lz4, else without effect.")
    compression_zstd_level: int | None = setting(None, "The level where compression is zstd, else without effect.")
    partitioner: str | Partitioner = setting(
        "murmur2_random",
        "Where records go that name no partition, by librdkafka's names: `murmur2_random` is Java's default, "
        "`consistent_random` librdkafka's. Or a function (topic, key, value, number of partitions) -> partition.",
        satisfies(f"{', '.join(BY_NAME)}, or a function", _partitioner_problem),
    )
    key_serializer: Serializer | None = setting(
        None, "Makes bytes of the keys given to `send`; None (no key) stays None. None: keys are bytes.", SERIALIZER
    )
    value_serializer: Serializer | None = setting(
        None, "The same for values; a value None stays None (in compacted topics it deletes the key).", SERIALIZER
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.transactional_id is not None:
            self._check_transactional()
        if self.enable_idempotence and self.required_acks != -1:
            raise ConfigurationError("enable_idempotence needs acks='all'")
        if self.max_in_flight > 5 and self.idempotent:
            raise ConfigurationError(f"max_in_flight is 1 to 5 with idempotence, not {self.max_in_flight}")
        if self.delivery_timeout_ms <= self.linger_ms:
            raise ConfigurationError(
                f"delivery_timeout_ms={self.delivery_timeout_ms} must be above linger_ms={self.linger_ms}, "
                "or records are given up before they are sent"
            )
        self._check_levels()

    def _check_transactional(self) -> None:
        if not self.transactional_id:
            raise ConfigurationError("transactional_id is empty: leave it out to send without transactions")
        if self.enable_idempotence is False:
            raise ConfigurationError("transactional_id needs idempotence: leave enable_idempotence out, or True")
        if self.required_acks != -1:
            raise ConfigurationError(f"transactional_id needs acks='all', not acks={self.acks!r}")

    def _check_levels(self) -> None:
        for codec in (*LEVELS, self.compression):
            own = f"compression_{codec}_level"
            levels = {own: getattr(self, own, None)}
            if codec == self.compression:
                levels["compression_level"] = self.compression_level
            lowest, highest = LEVELS.get(codec, (0, -1))
            for name, level in levels.items():
                if level is None or lowest <= level <= highest or (codec == "gzip" and level == -1):
                    continue
                if codec not in LEVELS:
                    raise ConfigurationError(f"{name}={level}: compression={codec!r} has no levels, leave it out")
                also = " or -1 (the default)" if codec == "gzip" else ""
                raise ConfigurationError(f"{name}={level}: {codec} has levels {lowest} to {highest}{also}")

    @property
    def level(self) -> int | None:
        """The codec's level, None for its default."""
        own = getattr(self, f"compression_{self.compression}_level", None)
        level: int | None = self.compression_level if own is None else own
        return None if level == -1 and self.compression == "gzip" else level

    @property
    def required_acks(self) -> int:
        """As on the wire: -1 is all."""
        return ACKS[str(self.acks)]

    @property
    def idempotent(self) -> bool:
        """Whether batches carry a producer id and sequence."""
        return self.required_acks == -1 if self.enable_idempotence is None else self.enable_idempotence


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """A Consumer's arguments."""

    group_id: str | None = setting(None, "The group that shares the partitions out and keeps the commits; None: none.")
    group_instance_id: str | None = setting(
        None, "The name of a static member (KIP-345): it may be away for a session without a rebalance."
    )
    group_protocol: Literal["classic", "consumer"] = setting(
        "classic", '"consumer" is KIP-848\'s, where the broker has it.', one_of("classic", "consumer")
    )
    group_remote_assignor: str | None = setting(
        None, 'With group_protocol="consumer": uniform or range; None leaves it to the broker.'
    )
    partition_assignment_strategy: str | Sequence[str] = setting(
        "range,cooperative-sticky",
        'With group_protocol="classic": range, roundrobin, sticky, cooperative-sticky; the group uses the first that '
        "all members have.",
    )
    session_timeout_ms: int = setting(
        45_000, "Without a heartbeat for so long a member has lost its partitions to the others.", NOT_NEGATIVE
    )
    heartbeat_interval_ms: int = setting(
        3_000, "How often a member says that it is alive; below session_timeout_ms.", NOT_NEGATIVE
    )
    max_poll_interval_ms: int = setting(
        300_000, "How long the application may stay away from poll before its partitions go to others.", NOT_NEGATIVE
    )
    enable_auto_commit: bool = setting(True, "Commit what poll has returned, where there is a group_id.")
    auto_commit_interval_ms: int = setting(5_000, "How often that is done.", NOT_NEGATIVE)
    auto_offset_reset: Literal["earliest", "latest", "none"] = setting(
        "latest",
        "Where to begin where nothing is committed, and to go on where the offset is gone; none: an error.",
        one_of("earliest", "latest", "none"),
    )
    isolation_level: Literal["read_uncommitted", "read_committed"] = setting(
        "read_uncommitted",
        "read_committed hides aborted and undecided transactions.",
        one_of("read_uncommitted", "read_committed"),
    )
    fetch_min_bytes: int = setting(1, "An answer waits until there are so many bytes.", NOT_NEGATIVE)
    fetch_max_bytes: int = setting(
        8_388_608,
        "Bytes of one answer, unless its first batch is larger. (Kafka's clients ask for 52428800: what the "
        "processor's cache holds is read faster.)",
        NOT_NEGATIVE,
    )
    fetch_max_wait_ms: int = setting(500, "How long an answer waits for fetch_min_bytes.", NOT_NEGATIVE)
    max_partition_fetch_bytes: int = setting(4_194_304, "Bytes of one partition in an answer.", NOT_NEGATIVE)
    max_poll_records: int = setting(10_000, "The most records that one poll returns.", at_least(1))
    prefetch_bytes: int = setting(
        67_108_864,
        "Bytes of answers that wait to be delivered: no more is asked for beyond (one of each leader may overshoot).",
        at_least(1),
    )
    check_crcs: bool = setting(True, "Check each batch's checksum.")
    key_deserializer: Callable[[bytes], Any] | None = setting(
        None, "Makes a value of the bytes of keys, for poll and iterators, not for batches; None stays None.", FUNCTION
    )
    value_deserializer: Callable[[bytes], Any] | None = setting(None, "The same for values: json.loads, …", FUNCTION)
    client_rack: str = setting(
        "",
        "Where this consumer stands: brokers with a rack-aware `replica.selector.class` let it read from that rack.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group_id == "":
            raise ConfigurationError("group_id is empty: leave it out to read without a group")
        for name in self.assignors:
            if name not in ASSIGNOR_NAMES:
                text = f"partition_assignment_strategy: {name!r} is none of {', '.join(ASSIGNOR_NAMES)}"
                raise ConfigurationError(text)
        if not self.assignors:
            raise ConfigurationError("partition_assignment_strategy: at least one is needed")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigurationError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be below "
                f"session_timeout_ms={self.session_timeout_ms}"
            )

    @property
    def assignors(self) -> tuple[str, ...]:
        """The names in partition_assignment_strategy, the favourite first."""
        given = self.partition_assignment_strategy
        names = given.split(",") if isinstance(given, str) else given
        return tuple(name.strip() for name in names if name.strip())

    @property
    def pool_bytes(self) -> int:
        """Answers that wait, those on their way, each rounded up to a power of two; and the columns in the making."""
        return (32 << 20) + 2 * (self.prefetch_bytes + self.fetch_max_bytes)

    @property
    def read_committed(self) -> bool:
        """Whether aborted and undecided transactions stay hidden."""
        return self.isolation_level == "read_committed"


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigurationError(f"bootstrap: {text!r} is not host:port")
    return host, int(port)
