"""The topic's settings (configs.md section 4). (Becomes config_def fields with the same names.)"""

from __future__ import annotations

from dataclasses import dataclass, field

from protocol.records.compression import CompressionType

MAX_LONG = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """All keys of a topic, resolved (topic override > broker synonym > default)."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    flush_messages: int = MAX_LONG
    flush_ms: int = MAX_LONG
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    max_message_bytes: int = 1_048_588
    index_interval_bytes: int = 4096
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_LONG
    file_delete_delay_ms: int = 60_000
    min_cleanable_dirty_ratio: float = 0.5
    cleanup_policy: tuple[str, ...] = ("delete",)
    unclean_leader_election_enable: bool = False
    min_insync_replicas: int = 1
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    preallocate: bool = False
    message_format_version: str = "3.0-IV1"
    message_timestamp_type: str = "CreateTime"
    message_timestamp_difference_max_ms: int = MAX_LONG
    message_timestamp_before_max_ms: int = MAX_LONG
    message_timestamp_after_max_ms: int = MAX_LONG
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    message_downconversion_enable: bool = True

    is_deleted: bool = field(init=False, repr=False, compare=False)
    is_compacted: bool = field(init=False, repr=False, compare=False)
    is_log_append_time: bool = field(init=False, repr=False, compare=False)
    checks_records: bool = field(init=False, repr=False, compare=False)
    compression: CompressionType | None = field(init=False, repr=False, compare=False)
    compression_level: int | None = field(init=False, repr=False, compare=False)
    timestamp_before_max_ms: int = field(init=False, repr=False, compare=False)
    timestamp_after_max_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        derive = object.__setattr__
        derive(self, "is_deleted", "delete" in self.cleanup_policy)
        derive(self, "is_compacted", "compact" in self.cleanup_policy)
        derive(self, "is_log_append_time", self.message_timestamp_type == "LogAppendTime")
        before, after = self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms
        if before == after == MAX_LONG:
            before = after = self.message_timestamp_difference_max_ms
        derive(self, "timestamp_before_max_ms", before)
        derive(self, "timestamp_after_max_ms", after)
        derive(self, "checks_records", self.is_compacted or (min(before, after) < MAX_LONG and not self.is_log_append_time))
        kind = {"producer": None, "uncompressed": CompressionType.NONE}.get(self.compression_type, "named")
        derive(self, "compression", CompressionType[self.compression_type.upper()] if kind == "named" else kind)
        levels = {"gzip": self.compression_gzip_level, "lz4": self.compression_lz4_level, "zstd": self.compression_zstd_level}
        level = levels.get(self.compression_type)
        derive(self, "compression_level", None if level == -1 and self.compression_type == "gzip" else level)
