"""What topics have by the broker's keys."""

from kbroker.config.broker_config import BrokerConfig
from kbroker.config.topic_defaults import topic_defaults


def test_hours_and_minutes_become_milliseconds_and_negative_means_for_ever() -> None:
    config = BrokerConfig(log_retention_minutes=2, log_roll_hours=3)
    assert (topic_defaults(config)["retention_ms"], topic_defaults(config)["segment_ms"]) == (120_000, 10_800_000)
    assert topic_defaults(BrokerConfig(log_retention_hours=-1))["retention_ms"] == -1
