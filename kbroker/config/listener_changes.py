"""What a broker's listeners may become while it runs: which keys say it, and what is refused.

listeners, advertised.listeners, listener.security.protocol.map, listener.name.<listener>.<key>
                                at once: a listener is opened, closed, told to clients. Of one that stays nothing
                                changes but its stores and limits
ssl.…, sasl.…, principal.…      (for all listeners) at once for listeners to come; from the next start for the others,
                                and for how brokers reach each other
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from kbroker.config.broker_config import BROKER_KEYS, BrokerConfig
from kbroker.config.sasl import enabled_mechanisms
from kbroker.protocol.config_def import ConfigError, Scope
from kbroker.security.security_protocol import SecurityProtocol

LISTENER_PREFIX = re.compile(r"^listener\.name\.([^.]+)\.(?:(plain|scram-sha-256|scram-sha-512|oauthbearer|gssapi)\.)?")
"""Before a key that is set for one listener only, or for one mechanism of it: both are groups."""

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
        """Make all that listeners to come need, their ports too; raises ConfigError.

        Where it is called again, what was made of the same configuration stays.
        """

    async def take(self, config: BrokerConfig) -> None:
        """Serve what was prepared, close what is no more."""

    async def discard(self) -> None:
        """Close what was prepared and not taken."""


def is_of_listeners(name: str) -> bool:
    """Whether it says what listeners there are, or how one of them lets clients in; not its stores and limits."""
    key = LISTENER_PREFIX.sub("", name)
    return name in LISTENERS or (key != name and key not in STORE_KEYS and key not in LISTENER_LIMITS)


def is_of_all_listeners(name: str) -> bool:
    """Whether it says how listeners without such a key of their own let clients in, or how brokers reach each other."""
    return name not in STORE_KEYS and name.startswith(("ssl.", "sasl.", "principal."))


def listener_of_store(name: str) -> str | None:
    """Return the listener whose stores this is of; None for all else."""
    prefix = LISTENER_PREFIX.match(name)
    return prefix[1].upper() if prefix is not None and LISTENER_PREFIX.sub("", name) in STORE_KEYS else None


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


class UnreadablePassword(ConfigError):
    """What protects a listener is encrypted with another secret."""


def check_readable(overrides: Mapping[str, str], unreadable: Collection[str], config: BrokerConfig) -> None:
    """Raise ConfigError where what protects a listener of a configuration would have to be left out."""
    listeners = [each.name for each in config.parsed_listeners]
    for name in [*overrides, *unreadable]:
        key = BROKER_KEYS.get(LISTENER_PREFIX.sub("", name))
        if key is None or not any(_is_used(name, config, listener) for listener in listeners):
            continue
        if name in unreadable:
            raise UnreadablePassword(
                f"the password {name} cannot be read: is password.encoder.secret the one that it was?"
            )
        try:
            key.parse(overrides[name])
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from error


def _is_used(name: str, config: BrokerConfig, listener: str) -> bool:
    """Whether a listener is protected with what this says, and lets in whom it says."""
    text = config.security_protocols.get(listener)
    if text not in tuple(SecurityProtocol):
        return False  # nothing is served there
    protocol = SecurityProtocol(text)
    prefix = LISTENER_PREFIX.match(name)
    if prefix is None:
        key = BROKER_KEYS.get(name)
        if not is_of_all_listeners(name) or key is None or key.scope is Scope.READ_ONLY or key.is_sensitive:
            return False  # it is no override
    elif prefix[1].upper() != listener:
        return False
    elif prefix[2]:
        return protocol.has_sasl and prefix[2].upper() in enabled_mechanisms(config, listener)
    plain = LISTENER_PREFIX.sub("", name)
    if plain.startswith("ssl."):
        return protocol.has_tls
    if plain.startswith("sasl."):
        return protocol.has_sasl
    return plain not in LISTENER_LIMITS and protocol is not SecurityProtocol.PLAINTEXT


def _keys_of(config: BrokerConfig, listener: str) -> dict[str, str]:
    found = {}
    for name, text in config.properties.items():
        prefix = LISTENER_PREFIX.match(name)
        if prefix is not None and prefix[1].upper() == listener and is_of_listeners(name):
            found[name] = text
    return found


def _of_brokers(config: BrokerConfig) -> set[str]:
    return {config.inter_broker_listener, (config.control_plane_listener_name or "").upper()}
