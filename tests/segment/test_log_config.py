"""The topic's keys."""

from typing import Any

import pytest

from kbroker.protocol.config_def import ConfigError, parse_values
from kbroker.protocol.records.compression import CompressionType
from kbroker.segment.log_config import MAX_LONG, TOPIC_KEYS, LogConfig, check_log_config


def test_every_key_of_a_topic_is_there() -> None:
    assert len(TOPIC_KEYS) == 36
    assert TOPIC_KEYS["segment.ms"].broker_keys == ("log.roll.ms", "log.roll.hours")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("segment.bytes", "13"),
        ("retention.ms", "-2"),
        ("cleanup.policy", "remove"),
        ("compression.type", "rar"),
        ("compression.gzip.level", "0"),
        ("message.timestamp.type", "Never"),
        ("leader.replication.throttled.replicas", "1,2"),
        ("leader.replication.throttled.replicas", "none"),
        ("message.format.version", "0.9"),
        ("remote.storage.enable", "true"),
        ("min.insync.replicas", "x"),
    ],
)
def test_bad_values_are_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        parse_values(LogConfig, {key: value})


def test_what_follows_from_the_keys() -> None:
    config = LogConfig(cleanup_policy=("compact", "delete"), compression_type="zstd", compression_zstd_level=7)
    assert (config.is_compacted, config.is_deleted, config.checks_records) == (True, True, True)
    assert (config.compression, config.compression_level) == (CompressionType.ZSTD, 7)
    assert LogConfig().compression is None
    assert LogConfig(compression_type="uncompressed").compression is CompressionType.NONE


def test_a_compacted_segment_rolls_in_time_for_the_max_compaction_lag() -> None:
    lag: dict[str, Any] = {"segment_ms": 5000, "max_compaction_lag_ms": 1000}
    assert LogConfig(**lag, cleanup_policy=("compact",)).max_segment_ms == 1000
    assert LogConfig(**lag).max_segment_ms == 5000
    assert LogConfig(segment_ms=5000, cleanup_policy=("compact",)).max_segment_ms == 5000


def test_the_deprecated_difference_is_used_where_the_newer_keys_are_at_their_defaults() -> None:
    config = LogConfig(message_timestamp_difference_max_ms=5)
    assert (config.timestamp_before_max_ms, config.timestamp_after_max_ms) == (5, 5)
    config = LogConfig(message_timestamp_difference_max_ms=5, message_timestamp_after_max_ms=9)
    assert (config.timestamp_before_max_ms, config.timestamp_after_max_ms) == (MAX_LONG, 9)


def test_compaction_lags_must_not_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms"):
        check_log_config(LogConfig(min_compaction_lag_ms=10, max_compaction_lag_ms=5))
