"""What the broker's parts get of its configuration."""

from __future__ import annotations

from kbroker.config.broker_config import read_broker_config
from kbroker.config.shares import controller_settings, settings_of
from kbroker.segment.cleaner import LogCleanerSettings
from kbroker.segment.log_manager import LogManagerSettings


def test_each_part_gets_its_share_under_its_own_names() -> None:
    config = read_broker_config(
        {
            "broker.id": "1",
            "zookeeper.connect": "127.0.0.1:2181",
            "log.cleaner.threads": "3",
            "num.recovery.threads.per.data.dir": "4",
            "delete.topic.enable": "false",
        }
    )
    assert settings_of(LogCleanerSettings, config).log_cleaner_threads == 3
    assert settings_of(LogManagerSettings, config).num_recovery_threads_per_data_dir == 4
    assert not controller_settings(config).delete_topic_enable
