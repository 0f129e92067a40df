"""The topic's settings (docs/configuration.md), each declared once; and what follows from them.

A topic's value is its own override, else the broker key's (`broker_key`, first one first), else the default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kbroker.protocol.config_def import (
    MAX_LONG,
    ConfigError,
    ConfigKey,
    Double,
    Int,
    List,
    Long,
    Scope,
    at_least,
    between,
    config_keys,
    key,
    one_of,
    satisfies,
)
from kbroker.protocol.records.compression import CompressionType

__all__ = ["MAX_LONG", "TOPIC_KEYS", "LogConfig", "check_log_config"]

_DYNAMIC = Scope.CLUSTER_WIDE
_RELEASE = re.compile(r"(0\.(8\.[0-2]|9\.0|10\.[0-2]|11\.0)|1\.[01]|2\.[0-8]|3\.\d|4\.0)(\.\d+)*(-IV\d+)?")
"""What Kafka 3.9 knows, with any patch level."""
_COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


def _release_problem(value: str) -> str | None:
    return None if _RELEASE.fullmatch(value) else "is not a release such as 3.0 or 3.0-IV1"


def _gzip_level_problem(value: int) -> str | None:
    return None if value == -1 or 1 <= value <= 9 else "Value must be between 1 and 9 or equal to -1"


def _throttled_problem(values: tuple[str, ...]) -> str | None:
    fits = all(re.fullmatch(r"\d+:\d+", value) for value in values)
    return None if fits or values == ("*",) else "must be the literal '*' or a list of [partitionId]:[brokerId]"


def _remote_storage_problem(value: bool) -> str | None:
    return "Tiered Storage functionality is disabled in the broker" if value else None


@dataclass(frozen=True, slots=True)
class LogConfig:
    """All keys of a topic, resolved."""

    segment_bytes: Int = key(
        "segment.bytes",
        default=1 << 30,
        check=at_least(14),
        scope=_DYNAMIC,
        broker_key="log.segment.bytes",
        doc="Roll the active segment when it would grow beyond this size.",
    )
    segment_ms: Long = key(
        "segment.ms",
        default=604_800_000,
        check=at_least(1),
        scope=_DYNAMIC,
        broker_key=("log.roll.ms", "log.roll.hours"),
        doc="Roll the active segment when its first record is older than this, so that retention can remove it.",
    )
    segment_jitter_ms: Long = key(
        "segment.jitter.ms",
        default=0,
        check=at_least(0),
        scope=_DYNAMIC,
        broker_key=("log.roll.jitter.ms", "log.roll.jitter.hours"),
        doc="At most this much is taken off segment.ms at random, lest many segments roll at once.",
    )
    segment_index_bytes: Int = key(
        "segment.index.bytes",
        default=10_485_760,
        check=at_least(4),
        scope=_DYNAMIC,
        broker_key="log.index.size.max.bytes",
        doc="Roll the active segment when one of its indexes has this size.",
    )
    flush_messages: Long = key(
        "flush.messages",
        default=MAX_LONG,
        check=at_least(1),
        scope=_DYNAMIC,
        broker_key="log.flush.interval.messages",
        doc="fsync when this many records were appended since the last time (1: before each acknowledgement).",
    )
    flush_ms: Long = key(
        "flush.ms",
        default=MAX_LONG,
        check=at_least(0),
        scope=_DYNAMIC,
        broker_key=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        doc="fsync when the last time is this long ago.",
    )
    retention_bytes: Long = key(
        "retention.bytes",
        default=-1,
        scope=_DYNAMIC,
        broker_key="log.retention.bytes",
        doc="Remove the oldest segments of a partition that is larger than this; -1: no limit.",
    )
    retention_ms: Long = key(
        "retention.ms",
        default=604_800_000,
        check=at_least(-1),
        scope=_DYNAMIC,
        broker_key=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        doc="Remove segments whose newest record is older than this; -1: no limit.",
    )
    max_message_bytes: Int = key(
        "max.message.bytes",
        default=1_048_588,
        check=at_least(0),
        scope=_DYNAMIC,
        broker_key="message.max.bytes",
        doc="Largest record batch (compressed, with its head) that is taken.",
    )
    index_interval_bytes: Int = key(
        "index.interval.bytes",
        default=4096,
        check=at_least(0),
        scope=_DYNAMIC,
        broker_key="log.index.interval.bytes",
        doc="About this many bytes of log lie between two index entries.",
    )
    delete_retention_ms: Long = key(
        "delete.retention.ms",
        default=86_400_000,
        check=at_least(0),
        scope=_DYNAMIC,
        broker_key="log.cleaner.delete.retention.ms",
        doc="How long compaction keeps tombstones and transaction markers.",
    )
    min_compaction_lag_ms: Long = key(
        "min.compaction.lag.ms",
        default=0,
        check=at_least(0),
        scope=_DYNAMIC,
        broker_key="log.cleaner.min.compaction.lag.ms",
        doc="Records younger than this are not compacted.",
    )
    max_compaction_lag_ms: Long = key(
        "max.compaction.lag.ms",
        default=MAX_LONG,
        check=at_least(1),
        scope=_DYNAMIC,
        broker_key="log.cleaner.max.compaction.lag.ms",
        doc="Records older than this are compacted, however few there are.",
    )
    file_delete_delay_ms: Long = key(
        "file.delete.delay.ms",
        default=60_000,
        check=at_least(0),
        scope=_DYNAMIC,
        broker_key="log.segment.delete.delay.ms",
        doc="How long a removed segment's files stay on disk under another name.",
    )
    min_cleanable_dirty_ratio: Double = key(
        "min.cleanable.dirty.ratio",
        default=0.5,
        check=between(0, 1),
        scope=_DYNAMIC,
        broker_key="log.cleaner.min.cleanable.ratio",
        doc="Compact when more than this part of the log has not been compacted yet.",
    )
    cleanup_policy: List = key(
        "cleanup.policy",
        default=("delete",),
        check=one_of("compact", "delete"),
        scope=_DYNAMIC,
        broker_key="log.cleanup.policy",
        doc="delete: remove old segments; compact: keep the last record of each key; or both.",
    )
    unclean_leader_election_enable: bool = key(
        "unclean.leader.election.enable",
        default=False,
        scope=_DYNAMIC,
        broker_key="unclean.leader.election.enable",
        doc="Let a replica that is not in sync lead when no other is left, at the cost of records.",
    )
    min_insync_replicas: Int = key(
        "min.insync.replicas",
        default=1,
        check=at_least(1),
        scope=_DYNAMIC,
        broker_key="min.insync.replicas",
        doc="With acks=all, refuse records while fewer replicas than this are in sync.",
    )
    compression_type: str = key(
        "compression.type",
        default="producer",
        check=one_of(*_COMPRESSION_TYPES),
        scope=_DYNAMIC,
        broker_key="compression.type",
        doc="Compression on disk; producer: as the producer sent it.",
    )
    compression_gzip_level: Int = key(
        "compression.gzip.level",
        default=-1,
        check=satisfies("-1, 1…9", _gzip_level_problem),
        scope=_DYNAMIC,
        broker_key="compression.gzip.level",
        doc="Level where the broker compresses with gzip; -1: its default.",
    )
    compression_lz4_level: Int = key(
        "compression.lz4.level",
        default=9,
        check=between(1, 17),
        scope=_DYNAMIC,
        broker_key="compression.lz4.level",
        doc="Level where the broker compresses with lz4.",
    )
    compression_zstd_level: Int = key(
        "compression.zstd.level",
        default=3,
        check=between(-131072, 22),
        scope=_DYNAMIC,
        broker_key="compression.zstd.level",
        doc="Level where the broker compresses with zstd.",
    )
    preallocate: bool = key(
        "preallocate",
        default=False,
        scope=_DYNAMIC,
        broker_key="log.preallocate",
        effect=False,
        doc="Accepted for compatibility: files are never made larger than their contents.",
    )
    message_format_version: str = key(
        "message.format.version",
        default="3.0-IV1",
        check=satisfies("release", _release_problem),
        scope=_DYNAMIC,
        broker_key="log.message.format.version",
        effect=False,
        doc="Accepted for compatibility: record batches are always of magic 2.",
    )
    message_timestamp_type: str = key(
        "message.timestamp.type",
        default="CreateTime",
        check=one_of("CreateTime", "LogAppendTime"),
        scope=_DYNAMIC,
        broker_key="log.message.timestamp.type",
        doc="Whose clock stamps records: the producer's or the broker's.",
    )
    message_timestamp_difference_max_ms: Long = key(
        "message.timestamp.difference.max.ms",
        default=MAX_LONG,
        check=at_least(0),
        scope=_DYNAMIC,
        broker_key="log.message.timestamp.difference.max.ms",
        doc="Deprecated: both of the following, where those are left at their defaults.",
    )
    message_timestamp_before_max_ms: Long = key(
        "message.timestamp.before.max.ms",
        default=MAX_LONG,
        check=at_least(0),
        scope=_DYNAMIC,
        broker_key="log.message.timestamp.before.max.ms",
        doc="Refuse records stamped (CreateTime) longer ago than this.",
    )
    message_timestamp_after_max_ms: Long = key(
        "message.timestamp.after.max.ms",
        default=MAX_LONG,
        check=at_least(0),
        scope=_DYNAMIC,
        broker_key="log.message.timestamp.after.max.ms",
        doc="Refuse records stamped (CreateTime) further ahead than this.",
    )
    leader_replication_throttled_replicas: List = key(
        "leader.replication.throttled.replicas",
        default=(),
        check=satisfies("`*` or partition:broker,…", _throttled_problem),
        scope=_DYNAMIC,
        doc="Replicas whose leaders hold replication back.",
    )
    follower_replication_throttled_replicas: List = key(
        "follower.replication.throttled.replicas",
        default=(),
        check=satisfies("`*` or partition:broker,…", _throttled_problem),
        scope=_DYNAMIC,
        doc="Replicas which hold replication back.",
    )
    message_downconversion_enable: bool = key(
        "message.downconversion.enable",
        default=True,
        scope=_DYNAMIC,
        broker_key="log.message.downconversion.enable",
        effect=False,
        doc="Accepted for compatibility: nothing is ever converted to older formats.",
    )

    remote_storage_enable: bool = key(
        "remote.storage.enable",
        default=False,
        check=satisfies("false", _remote_storage_problem),
        scope=_DYNAMIC,
        effect=False,
        doc="Accepted for compatibility, as long as it is false: there is no tiered storage.",
    )
    local_retention_ms: Long = key(
        "local.retention.ms",
        default=-2,
        check=at_least(-2),
        scope=_DYNAMIC,
        broker_key="log.local.retention.ms",
        effect=False,
        doc="Accepted for compatibility: means something only with tiered storage.",
    )
    local_retention_bytes: Long = key(
        "local.retention.bytes",
        default=-2,
        check=at_least(-2),
        scope=_DYNAMIC,
        broker_key="log.local.retention.bytes",
        effect=False,
        doc="Accepted for compatibility: means something only with tiered storage.",
    )
    remote_log_copy_disable: bool = key(
        "remote.log.copy.disable",
        default=False,
        scope=_DYNAMIC,
        effect=False,
        doc="Accepted for compatibility: means something only with tiered storage.",
    )
    remote_log_delete_on_disable: bool = key(
        "remote.log.delete.on.disable",
        default=False,
        scope=_DYNAMIC,
        effect=False,
        doc="Accepted for compatibility: means something only with tiered storage.",
    )

    is_deleted: bool = field(init=False, repr=False, compare=False)
    """Whether retention removes segments."""
    is_compacted: bool = field(init=False, repr=False, compare=False)
    is_log_append_time: bool = field(init=False, repr=False, compare=False)
    checks_records: bool = field(init=False, repr=False, compare=False)
    """Whether the settings say something about the records inside a batch."""
    compression: CompressionType | None = field(init=False, repr=False, compare=False)
    """What batches are compressed with; None: as they come."""
    compression_level: int | None = field(init=False, repr=False, compare=False)
    max_segment_ms: int = field(init=False, repr=False, compare=False)
    """segment.ms; less where max.compaction.lag.ms asks for it, since the active segment is not compacted."""
    timestamp_before_max_ms: int = field(init=False, repr=False, compare=False)
    timestamp_after_max_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        def derive(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        derive("is_deleted", "delete" in self.cleanup_policy)
        derive("is_compacted", "compact" in self.cleanup_policy)
        derive("is_log_append_time", self.message_timestamp_type == "LogAppendTime")
        before, after = self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms
        if before == after == MAX_LONG:
            before = after = self.message_timestamp_difference_max_ms
        derive("timestamp_before_max_ms", before)
        derive("timestamp_after_max_ms", after)
        limited = min(before, after) < MAX_LONG and not self.is_log_append_time
        derive("checks_records", self.is_compacted or limited)
        lag_ms = self.max_compaction_lag_ms if self.is_compacted else MAX_LONG
        derive("max_segment_ms", min(self.segment_ms, lag_ms))
        derive("compression", _compression(self.compression_type))
        derive("compression_level", self._level())

    def _level(self) -> int | None:
        levels = {
            "gzip": None if self.compression_gzip_level == -1 else self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)


TOPIC_KEYS: Mapping[str, ConfigKey] = config_keys(LogConfig)
"""The topic's keys by name."""


def _compression(name: str) -> CompressionType | None:
    if name == "producer":
        return None
    return CompressionType.NONE if name == "uncompressed" else CompressionType[name.upper()]


def check_log_config(config: LogConfig) -> None:
    """Check what concerns several keys at once. Raises ConfigError."""
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms})"
            f" > max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
