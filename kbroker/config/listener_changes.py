"""What a broker's listeners may become while it runs: which keys say it, and what is refused.

listeners, advertised.listeners, listener.security.protocol.map, listener.name.<listener>.<key>
                                at once: a listener is opened, closed, told to clients. Of one that stays nothing
                                changes but its stores and limits
ssl.…, sasl.…, principal.…      (for all listeners) from the next start; until then no listener with TLS or logins comes
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from kbroker.config.broker_config import BROKER_KEYS, BrokerConfig
from kbroker.protocol.config_def import ConfigError
from kbroker.security.security_protocol import SecurityProtocol

LISTENER_PREFIX = re.compile(
    r"^listener\.name\.([^.]+)\.(?:(?:plain|scram-sha-256|scram-sha-512|oauthbearer|gssapi)\.)?"
)
"""Before a key that is set for one listener only, or for one mechanism of it."""

STORE_KEYS = frozenset(
    f"ssl.{name}"
    for name in (
        "keystore.type",
        "keystore.location",
        "keystore.password",
        "keystore.key",
        "keystore.certificate.chain",
        "key.password",
        "truststore.type",
        "truststore.location",
        "truststore.password",
        "truststore.certificates",
    )
)
"""What listeners have new certificates by: each on its own, by listener.name.<listener>.<key>."""
LISTENER_LIMITS = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
LISTENERS = frozenset({"listeners", "advertised.listeners", "listener.security.protocol.map"})


class ListenerHost:
    """Who opens and closes a broker's listeners; this one has none."""

    def check_start(self, config: BrokerConfig) -> None:
        """Raise ConfigError where the broker could not start so."""

    def check_change(self, config: BrokerConfig) -> None:
        """Raise ConfigError where what listeners are protected with cannot become so while the broker runs."""

    async def prepare(self, config: BrokerConfig) -> None:
        """Make all that listeners to come need, their ports too; raises ConfigError. May be called again."""

    async def take(self, config: BrokerConfig) -> None:
        """Serve what was prepared, close what is no more."""

    async def discard(self) -> None:
        """Close what was prepared and not taken."""


def is_of_listeners(name: str) -> bool:
    """Whether it says what listeners there are, or how one of them lets clients in; not its stores and limits."""
    key = LISTENER_PREFIX.sub("", name)
    return name in LISTENERS or (key != name and key not in STORE_KEYS and key not in LISTENER_LIMITS)


def is_of_the_start(name: str) -> bool:
    """Whether it says how all listeners let clients in, or how brokers reach each other: made when a broker starts."""
    return name not in STORE_KEYS and name.startswith(("ssl.", "sasl.", "principal."))


def check_existing(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise ConfigError where a listener that stays would become another."""
    old, new = ({each.name: each for each in config.parsed_listeners} for config in (before, after))
    for name in old.keys() & new.keys():
        changed = _keys_of(before, name).items() ^ _keys_of(after, name).items()
        if changed:
            raise ConfigError(
                f"Configs cannot be updated dynamically for existing listener {name}, restart broker or create a new "
                f"listener for update: {', '.join(sorted({key for key, _ in changed}))}"
            )
        if before.security_protocols[name] != after.security_protocols.get(name, before.security_protocols[name]):
            raise ConfigError(f"Security protocol cannot be updated for existing listener {name}")
        if old[name] != new[name] and name in _of_brokers(before):
            raise ConfigError(f"brokers reach each other through listener {name}: its address stays while they run")


def check_new(before: BrokerConfig, after: BrokerConfig, waiting: Collection[str]) -> None:
    """Raise ConfigError where a listener would come without what is set for all, and `waiting` for a start."""
    there = {each.name for each in before.parsed_listeners}
    for name in [each.name for each in after.parsed_listeners if each.name not in there]:
        if waiting and after.security_protocols[name] != SecurityProtocol.PLAINTEXT:
            raise ConfigError(
                f"listener {name} cannot be added before the broker has started anew: {', '.join(sorted(waiting))} "
                f"would not hold for it; or set listener.name.{name.lower()}.… instead"
            )


def check_readable(overrides: Mapping[str, str], unreadable: Collection[str], config: BrokerConfig) -> None:
    """Raise ConfigError where what protects a listener of a configuration would have to be left out."""
    there = {each.name for each in config.parsed_listeners}
    for name in [*overrides, *unreadable]:
        prefix = LISTENER_PREFIX.match(name)
        if prefix is None or prefix[1].upper() not in there or not is_of_listeners(name):
            continue
        if name in unreadable:
            raise ConfigError(f"the password {name} cannot be read: is password.encoder.secret the one that it was?")
        key = BROKER_KEYS.get(LISTENER_PREFIX.sub("", name))
        if key is not None:
            try:
                key.parse(overrides[name])
            except ConfigError as error:
                raise ConfigError(f"{name}: {error}") from error


def _keys_of(config: BrokerConfig, listener: str) -> dict[str, str]:
    found = {}
    for name, text in config.properties.items():
        prefix = LISTENER_PREFIX.match(name)
        if prefix is not None and prefix[1].upper() == listener and is_of_listeners(name):
            found[name] = text
    return found


def _of_brokers(config: BrokerConfig) -> set[str]:
    return {config.inter_broker_listener, (config.control_plane_listener_name or "").upper()}
