"""Who may use kbroker's stand-in for ZooKeeper: the brokers of `kbroker dev` and of tests, on loopback (pure)."""

from __future__ import annotations

import ipaddress

from kbroker.config.broker_config import BrokerConfig
from kbroker.protocol.config_def import ConfigError

PURPOSE = "kbroker's stand-in for ZooKeeper, which is for development and tests only: one process, on loopback"


def refuse_stand_in(config: BrokerConfig, *, is_stand_in: bool) -> None:
    """Raise ConfigError, with the reason, when the broker must not use what was found at zookeeper.connect."""
    if not is_stand_in:
        return
    if not config.kbroker_allow_stand_in_zookeeper:
        raise ConfigError(
            f"zookeeper.connect={config.zookeeper_connect} leads to {PURPOSE}. Let it lead to an ensemble of "
            "ZooKeeper's, or use `kbroker dev`"
        )
    for listener in config.parsed_listeners:
        if not is_loopback(listener.host):
            raise ConfigError(
                f"the listener {listener.name}://{listener.host}:{listener.port} is not on loopback, and "
                f"zookeeper.connect={config.zookeeper_connect} leads to {PURPOSE}. Listen on 127.0.0.1, or use a "
                "real ZooKeeper"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a listener there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
