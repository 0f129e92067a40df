"""The broker's configuration: every key of a ZooKeeper-mode Kafka 3.9 broker, read from server.properties and checked.

The keys are declared in broker_keys_*.py. Here they come together, with what follows from several of them (listeners,
log directories, the topics' defaults), the checks across keys, and what this broker refuses because leaving it out
would change security or what is stored. Unknown keys are kept with a warning, as Kafka does.

`python -m kbroker.config.broker_config` writes docs/configuration.md to standard output, `--check FILE` compares.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from kbroker.config.keys_authorizer import AuthorizerKeys
from kbroker.config.keys_coordinators import GroupKeys, TransactionKeys
from kbroker.config.keys_general import GeneralKeys, NetworkKeys, ZooKeeperKeys
from kbroker.config.keys_log import CleanerKeys, LogKeys, ScrubKeys
from kbroker.config.keys_replication import QuotaKeys, ReplicationKeys
from kbroker.config.keys_security import SecurityKeys, TokenKeys
from kbroker.protocol.config_def import BLANKS, ConfigError, ConfigKey, config_keys, markdown_table, parse_values
from kbroker.security.security_protocol import SecurityProtocol

log = logging.getLogger(__name__)

SECURITY_PROTOCOLS = tuple(SecurityProtocol)
WILDCARD_HOSTS = ("0.0.0.0", "::", "0:0:0:0:0:0:0:0")
_LISTENER = re.compile(r"([A-Za-z0-9_]+)://(\[[0-9a-fA-F:.%]*\]|[^:\[\]]*):(-?\d+)")
LISTENER_KEYS = (
    ".max.connections",
    ".max.connection.creation.rate",
    ".connections.max.reauth.ms",
    ".sasl.enabled.mechanisms",
    ".sasl.jaas.config",
    ".sasl.login.callback.handler.class",
    ".sasl.server.callback.handler.class",
    ".sasl.oauthbearer.clock.skew.seconds",
    ".sasl.oauthbearer.expected.audience",
    ".sasl.oauthbearer.expected.issuer",
    ".sasl.oauthbearer.jwks.endpoint.refresh.ms",
    ".sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    ".sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    ".sasl.oauthbearer.jwks.endpoint.url",
    ".sasl.oauthbearer.scope.claim.name",
    ".sasl.oauthbearer.sub.claim.name",
    ".sasl.oauthbearer.token.endpoint.url",
    ".ssl.cipher.suites",
    ".ssl.client.auth",
    ".ssl.enabled.protocols",
    ".ssl.endpoint.identification.algorithm",
    ".ssl.key.password",
    ".ssl.keystore.certificate.chain",
    ".ssl.keystore.key",
    ".ssl.keystore.location",
    ".ssl.keystore.password",
    ".ssl.keystore.type",
    ".ssl.truststore.certificates",
    ".ssl.truststore.location",
    ".ssl.truststore.password",
    ".ssl.truststore.type",
)
"""Ends of what may be set for one listener, listener.name.<listener>.<key>, and has an effect."""


class ParsedListener(NamedTuple):
    """NAME://host:port; an empty host means every address."""

    name: str
    host: str
    port: int


@dataclass(init=False, repr=False, eq=False)
class BrokerConfig(
    GeneralKeys,
    NetworkKeys,
    ZooKeeperKeys,
    ReplicationKeys,
    LogKeys,
    CleanerKeys,
    ScrubKeys,
    GroupKeys,
    TransactionKeys,
    QuotaKeys,
    SecurityKeys,
    AuthorizerKeys,
    TokenKeys,
):
    """All keys as attributes, dots as underscores. Nobody changes one; dynamic changes make a new configuration."""

    def __init__(self, **values: Any) -> None:
        for field in fields(self):
            setattr(self, field.name, values.pop(field.name, field.default))
        if values:
            raise TypeError(f"no such keys: {', '.join(values)}")
        self.properties: dict[str, str] = {}
        """What server.properties says, unknown keys included."""

    @property
    def directories(self) -> list[str]:
        """The log directories: log.dirs, else log.dir."""
        listed = self.log_dir if self.log_dirs is None else self.log_dirs
        return [part.strip() for part in listed.split(",") if part.strip()]

    @property
    def security_protocols(self) -> dict[str, str]:
        """Listener name -> security protocol."""
        return _parse_pairs("listener.security.protocol.map", self.listener_security_protocol_map, upper=True)

    @property
    def parsed_listeners(self) -> list[ParsedListener]:
        """Where to listen."""
        return parse_listeners("listeners", self.listeners)

    @property
    def parsed_advertised_listeners(self) -> list[ParsedListener]:
        """What clients are told; port 0 and an empty host are still to be filled in."""
        if not self.advertised_listeners:
            return self.parsed_listeners
        return parse_listeners("advertised.listeners", self.advertised_listeners)

    @property
    def parsed_metrics_listeners(self) -> list[ParsedListener]:
        """Where metrics are served."""
        if not self.metrics_listeners.strip():
            return []
        listeners = parse_listeners("metrics.listeners", self.metrics_listeners)
        for each in listeners:
            if each.name != "HTTP":
                text = f"Invalid value {self.metrics_listeners} for configuration metrics.listeners"
                raise ConfigError(f"{text}: {each.name} is not spoken there, HTTP is")
        return listeners

    @property
    def inter_broker_listener(self) -> str:
        """Name of the listener that brokers use among each other."""
        return (self.inter_broker_listener_name or self.security_inter_broker_protocol).upper()

    @property
    def per_ip_overrides(self) -> dict[str, int]:
        """max.connections.per.ip.overrides as address -> limit."""
        pairs = _parse_pairs("max.connections.per.ip.overrides", self.max_connections_per_ip_overrides)
        try:
            return {host: int(limit) for host, limit in pairs.items()}
        except ValueError:
            key, text = "max.connections.per.ip.overrides", self.max_connections_per_ip_overrides
            raise ConfigError(f"Invalid value {text} for configuration {key}: expected address:limit pairs") from None

    def of_listeners(self, key: str) -> dict[str, int]:
        """What listener.name.<listener>.<key> says of a number, by the listeners' names."""
        prefix, suffix = "listener.name.", f".{key}"
        return {
            name.removeprefix(prefix).removesuffix(suffix).upper(): BROKER_KEYS[key].parse(text)
            for name, text in self.properties.items()
            if name.startswith(prefix) and name.endswith(suffix)
        }


BROKER_KEYS: dict[str, ConfigKey] = config_keys(BrokerConfig)
"""Every key by its name."""


# -- reading ------------------------------------------------------------------------------------------------------


def read_properties(path: Path) -> dict[str, str]:
    """Read a Java properties file; raises OSError, and ConfigError when it is not text."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = content.decode("iso-8859-1")  # as Java reads all such files
    if "\0" in text:
        raise ConfigError(f"{path} is not a text file in UTF-8 or ISO-8859-1: it holds a zero byte")
    properties = {}
    for line in _logical_lines(text):
        match = re.match(r"((?:\\.|[^\\=: \t\f])+)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
        if match:
            properties[_unescape(match[1])] = _unescape(match[2]).strip(BLANKS)
    return properties


def _logical_lines(text: str) -> list[str]:
    """Lines without comments; one that ends in an odd number of backslashes goes on in the next."""
    lines: list[str] = []
    continues = False
    # As Java has it: what else ends a line in Unicode, or is a space there, is text.
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not continues and (not line or line[0] in "#!"):
            continue
        ends_open = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        body = line[:-1] if ends_open else line
        if continues:
            lines[-1] += body
        else:
            lines.append(body)
        continues = ends_open
    return lines


def _unescape(text: str) -> str:
    known = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

    def plain(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else known.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", plain, text)


def unknown_keys(properties: Mapping[str, str]) -> list[str]:
    """Return what is no key of a broker, sorted."""
    return sorted(name for name in properties if name not in BROKER_KEYS and not _is_listener_key(name))


def read_broker_config(properties: Mapping[str, str]) -> BrokerConfig:
    """Read and check a broker's properties; raises ConfigError with one line for the first thing that is wrong."""
    from kbroker.config.checks import check_broker_config, refuse_unsupported

    config = resolve_broker_config(properties)
    refuse_unsupported(config)
    check_broker_config(config)
    if unknown := unknown_keys(properties):
        log.warning("unknown configuration keys are kept, but mean nothing here: %s", ", ".join(unknown))
    idle = keys_without_effect(properties)
    if idle:
        log.warning("these configuration keys are set, but have no effect here: %s", ", ".join(idle))
    return config


def keys_without_effect(names: Iterable[str]) -> list[str]:
    """Return the known keys among these on which nothing depends, those of one listener included."""
    found = []
    for name in names:
        key = BROKER_KEYS.get(name)
        of_listener = key is None and name.startswith("listener.name.") and _is_listener_key(name)
        if (key is not None and not key.has_effect) or (of_listener and not name.endswith(LISTENER_KEYS)):
            found.append(name)
    return sorted(found)


def resolve_broker_config(properties: Mapping[str, str]) -> BrokerConfig:
    """Make a configuration of properties without the checks across keys; raises ConfigError for a bad value."""
    values = parse_values(BrokerConfig, properties)
    if "node.id" in properties:
        node_id = BROKER_KEYS["broker.id"].parse(properties["node.id"])
        if values.setdefault("broker_id", node_id) != node_id:
            raise ConfigError(f"broker.id={values['broker_id']} and node.id={node_id} differ: set only one of them")
    config = BrokerConfig(**values)
    config.properties = dict(properties)
    return config


def _is_listener_key(name: str) -> bool:
    """Whether this is a known key of one listener: listener.name.<listener>[.<mechanism>].<key>, or node.id."""
    if name == "node.id":
        return True
    if not name.startswith("listener.name."):
        return False
    rest = name.split(".", 3)[-1]
    return rest in BROKER_KEYS or rest.split(".", 1)[-1] in BROKER_KEYS


def parse_listeners(key: str, text: str) -> list[ParsedListener]:
    """Read NAME://host:port,…; raises ConfigError that names the key."""
    listeners = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _LISTENER.fullmatch(part)
        if match is None:
            raise ConfigError(f"Invalid value {text} for configuration {key}: '{part}' is not NAME://host:port")
        port = int(match[3])
        if not 0 <= port <= 65535:
            raise ConfigError(f"Invalid value {text} for configuration {key}: port {port} is out of range")
        listeners.append(ParsedListener(match[1].upper(), match[2].strip("[]"), port))
    if not listeners:
        raise ConfigError(f"Invalid value {text} for configuration {key}: at least one listener is needed")
    return listeners


def _parse_pairs(key: str, text: str, upper: bool = False) -> dict[str, str]:
    pairs = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, value = part.rpartition(":")
        if not colon or not name or not value:
            raise ConfigError(f"Invalid value {text} for configuration {key}: '{part}' is not name:value")
        pairs[name.strip().upper() if upper else name.strip()] = value.strip().upper() if upper else value.strip()
    return pairs


# -- documentation ------------------------------------------------------------------------------------------------


def documentation() -> str:
    """Return docs/configuration.md."""
    from kbroker.segment.log_config import LogConfig

    parts = [
        "# Configuration\n",
        "Generated by `make docs`. Keys and defaults are those of Kafka 3.9 in ZooKeeper mode.",
        "A dynamic key can be changed while the broker runs: `cluster-wide` for one broker or as the default of all,",
        "`per-broker` for one broker only. Keys of topics are all dynamic.\n",
    ]
    sections = {
        "Broker: general": GeneralKeys,
        "Broker: network": NetworkKeys,
        "Broker: ZooKeeper": ZooKeeperKeys,
        "Broker: replication and controller": ReplicationKeys,
        "Broker: log": LogKeys,
        "Broker: compaction": CleanerKeys,
        "Broker: scrubbing": ScrubKeys,
        "Broker: groups": GroupKeys,
        "Broker: transactions": TransactionKeys,
        "Broker: quotas and metrics": QuotaKeys,
        "Broker: security": SecurityKeys,
        "Broker: access rules": AuthorizerKeys,
        "Broker: delegation tokens and stored passwords": TokenKeys,
        "Topic": LogConfig,
    }
    for title, group in sections.items():
        parts.append(f"\n## {title}\n\n{markdown_table(config_keys(group).values())}")
    return "\n".join(parts)


def main(arguments: Sequence[str]) -> int:
    """Print the page, or with `--check FILE` say whether the file is up to date."""
    from kbroker.client.generated_page import print_or_check  # no broker needs it

    return print_or_check(documentation, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
