"""What the broker's parts get of its configuration."""

from __future__ import annotations

from typing import TypeVar

from kbroker.config.broker_config import BrokerConfig
from kbroker.controller.controller_config import ControllerConfig
from kbroker.segment.cleaner import LogCleanerSettings
from kbroker.segment.log_manager import LogManagerSettings

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
