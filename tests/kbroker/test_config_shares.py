"""What the broker's parts get of its configuration."""

from __future__ import annotations

from kbroker.broker_config import read_broker_config
from kbroker.config_shares import controller_settings, server_limits, settings_of
from segment.cleaner import LogCleanerSettings
from segment.log_manager import LogManagerSettings


def test_each_part_gets_its_share_under_its_own_names() -> None:
    config = read_broker_config(
        {
            "broker.id": "1",
            "zookeeper.connect": "127.0.0.1:2181",
            "log.cleaner.threads": "3",
            "num.recovery.threads.per.data.dir": "4",
            "delete.topic.enable": "false",
            "socket.request.max.bytes": "5000000",
            "max.connections": "77",
        }
    )
    assert settings_of(LogCleanerSettings, config).log_cleaner_threads == 3
    assert settings_of(LogManagerSettings, config).num_recovery_threads_per_data_dir == 4
    assert not controller_settings(config).delete_topic_enable
    limits = server_limits(config)
    assert (limits.request_max_bytes, limits.max_connections) == (5_000_000, 77)


def test_socket_buffers_are_left_to_the_system_unless_they_are_asked_for() -> None:
    general = {"broker.id": "1", "zookeeper.connect": "127.0.0.1:2181"}
    assert server_limits(read_broker_config(general)).send_buffer_bytes == -1
    asked = read_broker_config({**general, "socket.send.buffer.bytes": "102400"})
    assert server_limits(asked).send_buffer_bytes == 102_400
