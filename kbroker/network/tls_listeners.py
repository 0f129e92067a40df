"""What each TLS listener of a broker shakes hands with, made of its keys and stores, and checked before it is used."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from kbroker.config.broker_config import BrokerConfig
from kbroker.config.shares import of_listener, tls_settings
from kbroker.protocol.config_def import ConfigError
from kbroker.security.acls import ANONYMOUS
from kbroker.security.distinguished_names import PrincipalRules, alternative_names_of, subject_of
from kbroker.security.security_protocol import SecurityProtocol
from kbroker.security.stores import StoreError
from kbroker.security.tls import TlsSettings, client_context, server_context, shake_hands, with_stores_of

log = logging.getLogger(__name__)


class Serving(Protocol):
    """Who shakes hands."""

    tls: dict[str, TlsListener]


@dataclass(frozen=True, slots=True)
class TlsListener:
    """What a listener shakes hands with; replaced as a whole when its stores change."""

    context: ssl.SSLContext
    rules: PrincipalRules
    names_clients: bool = True
    """Whether a client's certificate says who it is; with SASL its login does."""
    settings: TlsSettings = field(default_factory=TlsSettings)
    """What `context` was made of: the stores as they were then."""

    def principal(self, certificate: bytes | None) -> str:
        """Return whose certificate it is; raises ValueError where it cannot be read, or no rule fits its name."""
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
    settings = tls_settings(config, name).loaded()
    context = server_context(settings)
    if name == config.inter_broker_listener:
        problem = shake_hands(_own_client(settings), context)
        if problem is not None:
            text = "brokers cannot reach each other with its stores: the trust store must trust the key store"
            raise StoreError(f"{text} ({problem})")
    rules = PrincipalRules(of_listener(config, name, "ssl.principal.mapping.rules"))
    return TlsListener(context, rules, not protocol.has_sasl, settings)


def _own_client(settings: TlsSettings) -> ssl.SSLContext:
    return client_context(replace(settings, checks_hostname=False))


def check_change(running: Mapping[str, TlsListener], config: BrokerConfig) -> dict[str, TlsListener]:
    """Return what the listeners will shake hands with under another configuration, or with other files.

    Raises ConfigError for what must not change while the broker runs: clients, and brokers that have not changed yet,
    have to get on with both.
    """
    found = tls_listeners(config)
    for name in found.keys() & running.keys():
        before = running[name]
        after = found[name] = _with_new_stores(before, found[name].settings)
        if before.settings == after.settings:
            continue
        for problem in _problems(before, after, config, name == config.inter_broker_listener):
            raise ConfigError(f"listener {name}: {problem}")
    return found


def _with_new_stores(before: TlsListener, settings: TlsSettings) -> TlsListener:
    """Return a listener that stays: nothing of it changes but its stores."""
    after = with_stores_of(before.settings, settings)
    return before if after == before.settings else replace(before, context=server_context(after), settings=after)


def renew(server: Serving, config: BrokerConfig) -> bool:
    """Have a server shake hands with what the stores hold now, from the next connection on; False without a change."""
    try:
        found = check_change(server.tls, config)
    except ConfigError as error:
        log.error("the certificates stay as they were: %s", error)
        return False
    changed = {
        name: listener
        for name, listener in found.items()
        if name in server.tls and listener.settings != server.tls[name].settings
    }
    if changed:
        server.tls = {**server.tls, **changed}
        log.info("new certificates on %s", ", ".join(changed))
    return bool(changed)


def _problems(before: TlsListener, after: TlsListener, config: BrokerConfig, between_brokers: bool) -> Iterator[str]:
    old, new = before.settings, after.settings
    if new.trust_store.is_given and not old.trust_store.is_given:
        yield "a trust store cannot be added while the broker runs"
    if old.trust_store.is_given and not new.trust_store.is_given and old.client_auth != "none":
        yield "its trust store cannot be taken away while it asks clients for certificates: others' would do, too"
    shown, to_show = _shown(old), _shown(new)
    if not config.ssl_allow_dn_changes and subject_of(shown).lower() != subject_of(to_show).lower():
        yield (
            f"the key store's distinguished name would change from {subject_of(shown)} to {subject_of(to_show)}: "
            "ssl.allow.dn.changes is false"
        )
    lost = alternative_names_of(shown) - alternative_names_of(to_show)
    if lost and not config.ssl_allow_san_changes:
        yield f"the key store would lose the names {', '.join(sorted(lost))}: ssl.allow.san.changes is false"
    if between_brokers:
        for client, server in ((old, after), (new, before)):
            problem = shake_hands(_own_client(client), server.context)
            if problem is not None:
                yield f"brokers with the old stores and the new ones could not reach each other ({problem})"


def _shown(settings: TlsSettings) -> bytes:
    material = settings.key_store.load()
    assert material is not None
    return material.certificates[0]
