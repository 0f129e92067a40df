"""What each TLS listener of a broker shakes hands with, made of its keys and stores, and checked before it is used."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace

from kbroker.config.broker_config import BrokerConfig
from kbroker.config.shares import tls_settings
from kbroker.protocol.config_def import ConfigError
from kbroker.security.distinguished_names import PrincipalRules, subject_of
from kbroker.security.security_protocol import SecurityProtocol
from kbroker.security.stores import StoreError
from kbroker.security.tls import client_context, server_context, shake_hands

ANONYMOUS = "User:ANONYMOUS"


@dataclass(frozen=True, slots=True)
class TlsListener:
    """What a listener shakes hands with; replaced as a whole when its stores change."""

    context: ssl.SSLContext
    rules: PrincipalRules
    names_clients: bool = True
    """Whether a client's certificate says who it is; with SASL its login does."""

    def principal(self, certificate: bytes | None) -> str:
        """Return whose certificate it is; raises StoreError, or ValueError where no rule fits its name."""
        if certificate is None or not self.names_clients:
            return ANONYMOUS
        name = subject_of(certificate)
        found = self.rules.apply(name)
        if found is None:
            raise ValueError(f"no rule of ssl.principal.mapping.rules fits {name}")
        return f"User:{found}"


def tls_listeners(config: BrokerConfig) -> dict[str, TlsListener]:
    """Return those of all listeners that speak TLS, by their names; raises ConfigError that names the listener."""
    found = {}
    for listener in config.parsed_listeners:
        protocol = SecurityProtocol(config.security_protocols[listener.name])
        if protocol.has_tls:
            try:
                found[listener.name] = _tls_listener(config, listener.name, protocol)
            except ValueError as error:
                raise ConfigError(f"listener {listener.name}: {error}") from error
    return found


def _tls_listener(config: BrokerConfig, name: str, protocol: SecurityProtocol) -> TlsListener:
    settings = tls_settings(config, name)
    context = server_context(settings)
    if name == config.inter_broker_listener:
        problem = shake_hands(client_context(replace(settings, checks_hostname=False)), context)
        if problem is not None:
            text = "brokers cannot reach each other with its stores: the trust store must trust the key store"
            raise StoreError(f"{text} ({problem})")
    return TlsListener(context, PrincipalRules(config.ssl_principal_mapping_rules), not protocol.has_sasl)
