"""The controller's own settings, in values: kbroker's broker_config.py reads them from Kafka's keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class ControllerConfig:
    """What the controller is told; the broker may change it while it runs (dynamic configuration)."""

    inter_broker_listener_name: str = "PLAINTEXT"
    """Listener on which brokers are reached; `control_plane_listener_name` goes before it."""
    control_plane_listener_name: str | None = None
    unclean_leader_election_enable: bool = False
    """Default for topics without an override of their own."""
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    leader_imbalance_per_broker_percentage: int = 10
    delete_topic_enable: bool = True
    new_cluster_levels: Mapping[str, int] = field(default_factory=dict)
    """The features that count from the beginning where this is the first controller there ever was."""

    @property
    def listener_name(self) -> str:
        """The listener the controller's channels use."""
        return self.control_plane_listener_name or self.inter_broker_listener_name
