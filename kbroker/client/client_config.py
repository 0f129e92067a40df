"""What clients can be told: declared once, as keyword arguments in snake_case.

    Producer("127.0.0.1:9092", acks="all", linger_ms=5)
    ConsumerConfig.read({"kafka.bootstrap.servers": "…", "fetch.min.bytes": "1"})       dotted names, values as text

A name nobody knows is refused with the nearest that exists; so are TLS and SASL, which are not there yet.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from kbroker.client.errors import ConfigurationError

C = TypeVar("C", bound="ClientConfig")

DEFAULT_PORT = 9092
NEW_TOPIC_S = 1.0
"""A broker may not have heard yet of a topic that was just created, or of any when it just started."""
ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
RENAMED = {
    "bootstrap_servers": "bootstrap",
    "compression_type": "compression",
    "max_in_flight_requests_per_connection": "max_in_flight",
}
"""Kafka's names for what is shorter here."""
ASSIGNOR_NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")
NOT_YET = ("sasl_", "ssl_")


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """What all clients have. Times are milliseconds, sizes bytes."""

    bootstrap: str = ""
    client_id: str = "kbroker"
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    security_protocol: str = "PLAINTEXT"

    @classmethod
    def read(cls: type[C], options: Mapping[str, Any]) -> C:
        """Read options by snake_case or dotted names, with or without `kafka.` in front; raises ConfigurationError."""
        fields = {field.name: field for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for option, value in options.items():
            name = option.removeprefix("kafka.").replace(".", "_").lower()
            name = RENAMED.get(name, name)
            if name.startswith(NOT_YET):
                raise ConfigurationError(
                    f"{option}: TLS and SASL are not there yet, only security_protocol='PLAINTEXT'"
                )
            if name not in fields:
                raise ConfigurationError(_unknown(cls, option, name, list(fields)))
            values[name] = _parsed(option, value, str(fields[name].type))
        return cls(**values)

    def __post_init__(self) -> None:
        if not isinstance(self.bootstrap, str) or not self.bootstrap.strip():
            raise ConfigurationError("bootstrap: 'host:port,…' is needed")
        self.addresses()
        if self.security_protocol.upper() != "PLAINTEXT":
            raise ConfigurationError(f"security_protocol={self.security_protocol!r}: only 'PLAINTEXT' is there yet")
        for field in dataclasses.fields(self):
            if field.name.endswith(("_ms", "_bytes", "_size")):
                _check_at_least(field.name, getattr(self, field.name), field.metadata.get("minimum", 0))

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


@dataclass(frozen=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """A Producer's arguments."""

    acks: str | int = "all"
    enable_idempotence: bool | None = None
    """None: as long as acks is "all"."""
    linger_ms: int = 5
    batch_size: int = 131_072
    """Bytes after which a partition's batch is sent, before compression."""
    arrow_batch_size: int = 524_288
    """The same for the rows of send_arrow: larger, as they need not wait for each other."""
    max_request_size: int = 1_048_576
    """Largest record, and largest request unless one batch is larger."""
    buffer_memory: int = 67_108_864
    max_block_ms: int = 60_000
    """How long send waits for metadata or for room in the buffer."""
    delivery_timeout_ms: int = 120_000
    max_in_flight: int = 5
    compression: str = "none"
    compression_level: int | None = None
    partitioner: Callable[[str, bytes | None, bytes | None, int], int] | None = None
    """(topic, key, value, number of partitions) -> partition; None: Java's (murmur2 of the key, else sticky)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if str(self.acks) not in ACKS:
            raise ConfigurationError(f"acks is 'all', 1 or 0, not {self.acks!r}")
        if self.compression not in ("none", "gzip", "snappy", "lz4", "zstd"):
            raise ConfigurationError(f"compression is none, gzip, snappy, lz4 or zstd, not {self.compression!r}")
        if self.enable_idempotence and self.required_acks != -1:
            raise ConfigurationError("enable_idempotence needs acks='all'")
        if not 1 <= self.max_in_flight <= (5 if self.idempotent else 1_000):
            raise ConfigurationError(f"max_in_flight is 1 to 5 with idempotence, not {self.max_in_flight}")
        if self.partitioner is not None and not callable(self.partitioner):
            raise ConfigurationError("partitioner is a function (topic, key, value, partitions) -> partition")

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

    group_id: str | None = None
    group_instance_id: str | None = None
    """The name of a static member (KIP-345): it may be away for a session without a rebalance."""
    group_protocol: Literal["classic", "consumer"] = "classic"
    """"consumer" is KIP-848's, where the broker has it."""
    group_remote_assignor: str | None = None
    """With "consumer": uniform or range; None leaves it to the broker."""
    partition_assignment_strategy: str | Sequence[str] = "range,cooperative-sticky"
    """With "classic": range, roundrobin, sticky, cooperative-sticky; the group uses the first that all members have."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """How long the application may stay away from poll before its partitions go to others."""
    enable_auto_commit: bool = True
    """Without group_id there is nothing to commit."""
    auto_commit_interval_ms: int = 5_000
    auto_offset_reset: Literal["earliest", "latest", "none"] = "latest"
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 52_428_800
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 4_194_304
    max_poll_records: int = 10_000
    prefetch_bytes: int = 67_108_864
    """Of answers that wait to be delivered: no more is asked for beyond this (one of each leader may overshoot it)."""
    check_crcs: bool = True
    key_deserializer: Callable[[bytes], Any] | None = None
    value_deserializer: Callable[[bytes], Any] | None = None
    """Of the records of poll and of iterators; a key or value that is null stays None. Not asked by batches()."""
    client_rack: str = ""
    """Where this consumer stands: brokers with a rack-aware `replica.selector.class` let it read from that rack."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_group()
        for name in ("key_deserializer", "value_deserializer"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise ConfigurationError(f"{name} is a function of bytes, such as json.loads, not {function!r}")
        if self.auto_offset_reset not in ("earliest", "latest", "none"):
            raise ConfigurationError(f"auto_offset_reset is earliest, latest or none, not {self.auto_offset_reset!r}")
        if self.isolation_level not in ("read_uncommitted", "read_committed"):
            raise ConfigurationError(
                f"isolation_level is read_uncommitted or read_committed, not {self.isolation_level!r}"
            )

    def _check_group(self) -> None:
        if self.group_id == "":
            raise ConfigurationError("group_id is empty: leave it out to read without a group")
        if self.group_protocol not in ("classic", "consumer"):
            raise ConfigurationError(f"group_protocol is classic or consumer, not {self.group_protocol!r}")
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


def _unknown(cls: type[ClientConfig], option: str, name: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else f"; known are {', '.join(sorted(known))}"
    return f"{cls.__name__.removesuffix('Config')} has no argument {option!r}{hint}"


def _check_at_least(name: str, value: object, minimum: int) -> None:
    if not isinstance(value, int) or value < minimum:
        raise ConfigurationError(f"{name} must be at least {minimum}, not {value!r}")


def _parsed(option: str, value: Any, wanted: str) -> Any:
    """Read text as the field's type, and check the type of what is no text."""
    if wanted.startswith("int"):
        if isinstance(value, str) and value.strip().lstrip("-").isdigit():
            return int(value)
        if not isinstance(value, int) and not (value is None and "None" in wanted):
            raise ConfigurationError(f"{option} is a whole number, not {value!r}")
        return int(value) if isinstance(value, bool) else value
    if wanted.startswith("bool"):
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool) and not (value is None and "None" in wanted):
            raise ConfigurationError(f"{option} is True or False, not {value!r}")
    elif wanted in ("str", "str | None") and not isinstance(value, str) and not (value is None and "None" in wanted):
        raise ConfigurationError(f"{option} is text, not {value!r}")
    return value
