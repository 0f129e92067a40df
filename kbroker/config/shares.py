"""What the broker's parts get of its configuration."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterator
from typing import Any, TypeVar

from kbroker.config.broker_config import BROKER_KEYS, BrokerConfig
from kbroker.config.jaas_file import zookeeper_login
from kbroker.config.sasl import believes_any_token
from kbroker.controller.controller_config import ControllerConfig
from kbroker.controller.features import TRANSACTION_VERSION
from kbroker.controller.znode_access import ZooKeeperAccess
from kbroker.protocol.config_def import ConfigError
from kbroker.security.password_encoder import DEFAULT_KEY_FACTORY, PasswordEncoder, PasswordError
from kbroker.security.security_protocol import SecurityProtocol
from kbroker.security.stores import JKS, PEM, KeyStore, StoreError, TrustStore
from kbroker.security.tls import TlsSettings, client_context
from kbroker.segment.cleaner import LogCleanerSettings
from kbroker.segment.log_manager import LogManagerSettings
from kbroker.segment.scrubber import LogScrubberSettings

Settings = TypeVar("Settings", LogManagerSettings, LogCleanerSettings, LogScrubberSettings)


def settings_of(kind: type[Settings], config: BrokerConfig) -> Settings:
    """The share of the broker's keys that the logs, their compaction or scrubbing have: fields of the same names."""
    names = kind.__dataclass_fields__
    return kind(**{name: getattr(config, name) for name in names if hasattr(config, name)})


def controller_settings(config: BrokerConfig) -> ControllerConfig:
    """Return the controller's share of the broker's keys."""
    version = config.kbroker_new_cluster_transaction_version
    return ControllerConfig(
        inter_broker_listener_name=config.inter_broker_listener,
        control_plane_listener_name=config.control_plane_listener_name,
        unclean_leader_election_enable=config.unclean_leader_election_enable,
        auto_leader_rebalance_enable=config.auto_leader_rebalance_enable,
        leader_imbalance_check_interval_seconds=config.leader_imbalance_check_interval_seconds,
        leader_imbalance_per_broker_percentage=config.leader_imbalance_per_broker_percentage,
        delete_topic_enable=config.delete_topic_enable,
        new_cluster_levels={TRANSACTION_VERSION: version} if version else {},
    )


def of_listener(config: BrokerConfig, listener: str, key: str) -> Any:
    """Return the value of a key on one listener: listener.name.<listener>.<key>, else <key>; raises ConfigError."""
    declared = BROKER_KEYS[key]
    name = listener_key(listener, key)
    if name in config.properties:
        return declared.parse(config.properties[name])
    return getattr(config, declared.field)


def listener_key(listener: str, key: str) -> str:
    """Return what a key is called for one listener only."""
    return f"listener.name.{listener.lower()}.{key}"


def tls_settings(config: BrokerConfig, listener: str) -> TlsSettings:
    """Return what a listener shows, whom it trusts and what it speaks, to clients and as one; raises ConfigError."""

    def value(key: str) -> Any:
        return of_listener(config, listener, key)

    client_auth = value("ssl.client.auth")
    if SecurityProtocol(config.security_protocols[listener]).has_sasl:  # only the listener's own key counts there
        text = config.properties.get(listener_key(listener, "ssl.client.auth"), "none")
        client_auth = BROKER_KEYS["ssl.client.auth"].parse(text)
    return TlsSettings(
        key_store=KeyStore(
            type=value("ssl.keystore.type"),
            location=value("ssl.keystore.location"),
            password=value("ssl.keystore.password"),
            key_password=value("ssl.key.password"),
            key=value("ssl.keystore.key"),
            certificate_chain=value("ssl.keystore.certificate.chain"),
        ),
        trust_store=TrustStore(
            type=value("ssl.truststore.type"),
            location=value("ssl.truststore.location"),
            password=value("ssl.truststore.password"),
            certificates=value("ssl.truststore.certificates"),
        ),
        enabled_protocols=value("ssl.enabled.protocols"),
        cipher_suites=value("ssl.cipher.suites"),
        client_auth=client_auth,
        checks_hostname=value("ssl.endpoint.identification.algorithm").lower() == "https",
    )


def password_encoders(config: BrokerConfig) -> tuple[PasswordEncoder | None, PasswordEncoder | None]:
    """Return what encrypts passwords now and what did before, None without a secret; raises ConfigError."""

    def encoder(secret: str | None) -> PasswordEncoder | None:
        if not secret:
            return None
        try:
            return PasswordEncoder(
                secret,
                config.password_encoder_keyfactory_algorithm or DEFAULT_KEY_FACTORY,
                config.password_encoder_cipher_algorithm,
                config.password_encoder_key_length,
                config.password_encoder_iterations,
            )
        except PasswordError as error:
            raise ConfigError(f"password.encoder.*: {error}") from None

    return encoder(config.password_encoder_secret), encoder(config.password_encoder_old_secret)


def zookeeper_access(config: BrokerConfig) -> ZooKeeperAccess:
    """Return how ZooKeeper is spoken to, and whether what is made there is protected; raises ConfigError."""
    digest = config.kbroker_zookeeper_digest
    return ZooKeeperAccess(zookeeper_tls(config), zookeeper_login(), digest, config.zookeeper_set_acl)


def open_listeners(config: BrokerConfig) -> list[str]:
    """Return the listeners on which others than this machine come in without a login; raises ConfigError."""
    return [
        address
        for name, protocol, address in _reached_by_others(config)
        if not protocol.has_sasl and not (protocol.has_tls and tls_settings(config, name).client_auth == "required")
    ]


def believing_listeners(config: BrokerConfig) -> list[str]:
    """Return those on which others than this machine log in by tokens that nobody has signed; raises ConfigError."""
    return [
        address
        for name, protocol, address in _reached_by_others(config)
        if protocol.has_sasl and believes_any_token(config, name)
    ]


def _reached_by_others(config: BrokerConfig) -> Iterator[tuple[str, SecurityProtocol, str]]:
    protocols = config.security_protocols
    for name, host, port in config.parsed_listeners:
        if not _is_loopback(host):
            yield name, SecurityProtocol(protocols[name]), f"{name}://{f'[{host}]' if ':' in host else host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def zookeeper_tls(config: BrokerConfig) -> ssl.SSLContext | None:
    """Return what ZooKeeper is spoken to with, None for clear text; raises ConfigError."""
    if not config.zookeeper_ssl_client_enable:
        return None
    trusted = config.zookeeper_ssl_truststore_location
    trusted_type = _store_type(config.zookeeper_ssl_truststore_type, trusted)
    own, password = config.zookeeper_ssl_keystore_location, config.zookeeper_ssl_keystore_password
    own_type = _store_type(config.zookeeper_ssl_keystore_type, own)
    own_passwords = {"key_password" if own_type == PEM else "password": password}
    settings = TlsSettings(
        key_store=KeyStore(own_type, own, **own_passwords) if own else KeyStore(),
        trust_store=TrustStore(trusted_type, trusted, config.zookeeper_ssl_truststore_password),
        enabled_protocols=config.zookeeper_ssl_enabled_protocols or (config.zookeeper_ssl_protocol,),
        cipher_suites=config.zookeeper_ssl_cipher_suites or (),
        checks_hostname=config.zookeeper_ssl_endpoint_identification_algorithm.lower() == "https",
    )
    try:
        return client_context(settings)
    except StoreError as error:
        raise ConfigError(f"zookeeper.ssl.client.enable=true: {error}") from error


def _store_type(given: str | None, location: str | None) -> str:
    """As ZooKeeper does, tell by the file's name what nobody says."""
    return given or (PEM if (location or "").endswith(".pem") else JKS)
