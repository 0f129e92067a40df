"""The topic's settings (configs.md section 4). (Skeleton: becomes config_def fields with the same names.)"""

from __future__ import annotations

from dataclasses import dataclass

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
