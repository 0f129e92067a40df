"""How this broker reaches others through one of its listeners: with the listener's own stores, as a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbroker.client.security import Security
from kbroker.cluster.setup_timeout import ConnectionSetup
from kbroker.config.broker_config import BrokerConfig
from kbroker.config.sasl import inter_broker_login, sasl_listeners
from kbroker.config.shares import tls_settings
from kbroker.security.tls import TlsSettings, with_stores_of


class PeerSecurity(Security):
    """A client's settings whose certificates are a listener's."""

    def __init__(self, security_protocol: str, tls: TlsSettings, login: Mapping[str, Any]) -> None:
        super().__init__(security_protocol=security_protocol, **login)
        object.__setattr__(self, "_tls", tls)
        object.__setattr__(self, "_login", login)

    @property
    def tls_settings(self) -> TlsSettings:
        """The listener's."""
        settings: TlsSettings = self._tls  # type: ignore[attr-defined]
        return settings

    def renewed(self, tls: TlsSettings) -> PeerSecurity:
        """Return the same with the stores of other settings."""
        login: Mapping[str, Any] = self._login  # type: ignore[attr-defined]
        return PeerSecurity(self.security_protocol, with_stores_of(self.tls_settings, tls), login)


def peer_security(config: BrokerConfig, listener: str, login: Mapping[str, Any]) -> Security:
    """Return how brokers speak to each other through this listener, with this login; raises ConfigError."""
    return PeerSecurity(config.security_protocols[listener], tls_settings(config, listener), login)


def show_new_stores(setup: ConnectionSetup, config: BrokerConfig) -> None:
    """Have connections to come show what the listener's stores hold now; nothing else of them changes."""
    if isinstance(setup.security, PeerSecurity):
        setup.security = setup.security.renewed(tls_settings(config, setup.listener.upper()))


def connection_setup(config: BrokerConfig, listener: str) -> ConnectionSetup:
    """Return how this broker connects to others through one of the listeners; raises ConfigError."""
    return ConnectionSetup(
        config.socket_connection_setup_timeout_ms,
        config.socket_connection_setup_timeout_max_ms,
        peer_security(config, listener.upper(), inter_broker_login(config, sasl_listeners(config))),
        listener,
    )
