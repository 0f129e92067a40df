"""What the broker's parts get of its configuration."""

from __future__ import annotations

from typing import TypeVar

from controller.controller_config import ControllerConfig
from kbroker.broker_config import BrokerConfig
from kbroker.server import ServerLimits
from segment.cleaner import LogCleanerSettings
from segment.log_manager import LogManagerSettings

Settings = TypeVar("Settings", LogManagerSettings, LogCleanerSettings)


def settings_of(kind: type[Settings], config: BrokerConfig) -> Settings:
    """The share of the broker's keys that the logs, or their compaction, have: fields of the same names."""
    names = kind.__dataclass_fields__
    return kind(**{name: getattr(config, name) for name in names if hasattr(config, name)})


def controller_settings(config: BrokerConfig) -> ControllerConfig:
    """Return the controller's share of the broker's keys."""
    return ControllerConfig(
        inter_broker_listener_name=config.inter_broker_listener,
        control_plane_listener_name=config.control_plane_listener_name,
        unclean_leader_election_enable=config.unclean_leader_election_enable,
        auto_leader_rebalance_enable=config.auto_leader_rebalance_enable,
        leader_imbalance_check_interval_seconds=config.leader_imbalance_check_interval_seconds,
        leader_imbalance_per_broker_percentage=config.leader_imbalance_per_broker_percentage,
        delete_topic_enable=config.delete_topic_enable,
    )


def server_limits(config: BrokerConfig) -> ServerLimits:
    """Return the server's share of the broker's keys."""
    return ServerLimits(
        request_max_bytes=config.socket_request_max_bytes,
        queued_max_bytes=config.queued_max_request_bytes,
        max_idle_ms=config.connections_max_idle_ms,
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_creation_rate=config.max_connection_creation_rate,
        per_ip_overrides=config.per_ip_overrides,
        backlog=config.socket_listen_backlog_size,
        send_buffer_bytes=_buffer_bytes(config, "socket.send.buffer.bytes"),
        receive_buffer_bytes=_buffer_bytes(config, "socket.receive.buffer.bytes"),
        privileged_listener=config.inter_broker_listener,
    )


def _buffer_bytes(config: BrokerConfig, key: str) -> int:
    """Kafka's default of 100 KB keeps Linux from growing a socket's buffers, at half the throughput: only if asked."""
    return int(config.properties[key]) if key in config.properties else -1
