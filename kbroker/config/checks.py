"""What must hold across several of a broker's keys, and what this broker refuses to start with."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from kbroker.config.broker_config import SECURITY_PROTOCOLS, WILDCARD_HOSTS, BrokerConfig
from kbroker.config.jaas_file import zookeeper_login
from kbroker.config.keys_authorizer import ACL_AUTHORIZER
from kbroker.config.listener_changes import LISTENER_PREFIX
from kbroker.config.sasl import inter_broker_login, sasl_listeners
from kbroker.protocol.config_def import ConfigError

DEFAULT_PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
DEFAULT_ENGINE_FACTORY = "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
REPLICA_SELECTORS = (RACK_AWARE_SELECTOR, "org.apache.kafka.common.replica.LeaderSelector")
OLDEST_INTER_BROKER_PROTOCOL = (3, 4)
NEWEST_INTER_BROKER_PROTOCOL = (3, 9)


def refuse_unsupported(config: BrokerConfig) -> None:
    """Raise ConfigError for what would change security or what is stored, if it were silently left out."""
    for problem in _unsupported(config):
        raise ConfigError(problem)


def _unsupported(config: BrokerConfig) -> Iterator[str]:
    given = config.properties
    for key in ("process.roles", "controller.quorum.voters", "controller.listener.names"):
        if given.get(key):
            yield f"{key}={given[key]}: KRaft mode is not supported, brokers are coordinated by ZooKeeper"
    for key in ("zookeeper.metadata.migration.enable", "remote.log.storage.system.enable"):
        if given.get(key, "").lower() == "true":
            yield f"{key}=true is not supported: remove it"
    if config.authorizer_class_name not in ("", ACL_AUTHORIZER):
        yield f"authorizer.class.name={config.authorizer_class_name} is not known here: only {ACL_AUTHORIZER} is"
    for name in config.super_user_names:
        if ":" not in name:
            yield f"super.users={config.super_users}: '{name}' is not Type:name"
    if config.zookeeper_ssl_crl_enable:
        yield "zookeeper.ssl.crl.enable=true is not supported: lists of revoked certificates are not looked at"
    if config.zookeeper_ssl_ocsp_enable:
        yield "zookeeper.ssl.ocsp.enable=true is not supported: nobody is asked whether certificates are revoked"
    yield from _zookeeper_access(config)
    for key, value in (
        ("create.topic.policy.class.name", config.create_topic_policy_class_name),
        ("alter.config.policy.class.name", config.alter_config_policy_class_name),
        ("client.quota.callback.class", config.client_quota_callback_class),
    ):
        if value:
            yield f"{key}={value} names a Java class, which cannot be loaded here: remove it"
    yield from _classes_of_listeners(config)
    if config.replica_selector_class not in (None, "", *REPLICA_SELECTORS):
        yield f"replica.selector.class={config.replica_selector_class} is not one of {', '.join(REPLICA_SELECTORS)}"
    release = tuple(int(part) for part in config.inter_broker_protocol_version.split("-")[0].split(".")[:2])
    if not OLDEST_INTER_BROKER_PROTOCOL <= release <= NEWEST_INTER_BROKER_PROTOCOL:
        yield f"inter.broker.protocol.version={config.inter_broker_protocol_version}: 3.4 to 3.9 are supported"


def _classes_of_listeners(config: BrokerConfig) -> Iterator[str]:
    """Those by which it would be decided who a client is, and with what TLS is spoken; also of one listener."""
    known = {"principal.builder.class": DEFAULT_PRINCIPAL_BUILDER, "ssl.engine.factory.class": DEFAULT_ENGINE_FACTORY}
    for name, text in config.properties.items():
        key = LISTENER_PREFIX.sub("", name)
        if key in known and text.strip() not in ("", known[key]):
            yield f"{name}={text} names a Java class, unknown here"


def _zookeeper_access(config: BrokerConfig) -> Iterator[str]:
    digest = config.kbroker_zookeeper_digest
    if digest is not None and not all(digest.partition(":")):
        yield "kbroker.zookeeper.digest is not user:password"
    has_certificate = config.zookeeper_ssl_client_enable and config.zookeeper_ssl_keystore_location
    if config.zookeeper_set_acl and not (has_certificate or digest or zookeeper_login()):
        yield (
            "zookeeper.set.acl=true needs a log-in at ZooKeeper: a context Client in the JAAS file that $KAFKA_OPTS "
            "names, zookeeper.ssl.client.enable with zookeeper.ssl.keystore.location, or kbroker.zookeeper.digest"
        )


def check_broker_config(config: BrokerConfig) -> None:
    """Raise ConfigError for the first rule across keys that does not hold."""
    for problem in (*_identity(config), *_listeners(config), *_times_and_sizes(config)):
        raise ConfigError(problem)
    if config.password_encoder_secret is None:  # else ZooKeeper may hold what is missing: see `check_listeners`
        inter_broker_login(config, sasl_listeners(config))


def check_listeners(config: BrokerConfig) -> None:
    """Raise ConfigError for listeners that cannot be, or on which nobody could log in, of all that is set for them."""
    for problem in _listeners(config):
        raise ConfigError(problem)
    inter_broker_login(config, sasl_listeners(config))


def _identity(config: BrokerConfig) -> Iterator[str]:
    if not config.zookeeper_connect:
        yield "zookeeper.connect is missing: give ZooKeeper's address, as host:port or host:port/chroot"
    elif not all(_is_address(address) for address in config.zookeeper_connect.partition("/")[0].split(",")):
        yield f"zookeeper.connect={config.zookeeper_connect} is not host:port,… or host:port,…/chroot"
    if config.broker_id < -1:
        yield f"broker.id={config.broker_id} must be 0 or greater, or -1 to have one generated"
    if config.broker_id == -1 and not config.broker_id_generation_enable:
        yield "broker.id is missing, and broker.id.generation.enable is false: give the broker an id"
    if config.broker_id_generation_enable and config.broker_id > config.reserved_broker_max_id:
        yield (
            f"broker.id={config.broker_id} must not be greater than reserved.broker.max.id="
            f"{config.reserved_broker_max_id} while broker.id.generation.enable is true"
        )
    directories = config.directories
    if not directories:
        yield "log.dirs is empty: at least one log directory is needed"
    if len(set(directories)) < len(directories):
        yield f"log.dirs={config.log_dirs} names a directory twice"


def _is_address(text: str) -> bool:
    """Whether it is host, host:port or [IPv6 address]:port."""
    try:
        parts = urlsplit(f"//{text.strip()}")
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _listeners(config: BrokerConfig) -> Iterator[str]:
    listeners = config.parsed_listeners
    names = [listener.name for listener in listeners]
    if len(set(names)) < len(names):
        yield f"listeners={config.listeners}: each listener must have a different name"
    ports = [(listener.host, listener.port) for listener in listeners if listener.port]
    if len(set(ports)) < len(ports):
        yield f"listeners={config.listeners}: each listener must have a different port"
    if any((each.host, each.port) in ports for each in config.parsed_metrics_listeners):
        yield f"metrics.listeners={config.metrics_listeners}: the port is that of one of the listeners"
    protocols = config.security_protocols
    for name in names:
        if name not in protocols:
            yield f"listener {name} has no security protocol: add {name}:PLAINTEXT to listener.security.protocol.map"
        elif protocols[name] not in SECURITY_PROTOCOLS:
            yield f"listener.security.protocol.map: {protocols[name]} is not one of {', '.join(SECURITY_PROTOCOLS)}"
    advertised = config.parsed_advertised_listeners
    for listener in advertised:
        if listener.name not in names:
            yield f"advertised.listeners: {listener.name} is not among listeners={config.listeners}"
        if config.advertised_listeners and listener.host in WILDCARD_HOSTS:
            yield f"advertised.listeners cannot use {listener.host}: clients need an address they can reach"
    if not config.advertised_listeners and any(listener.host in WILDCARD_HOSTS for listener in listeners):
        yield (
            f"listeners={config.listeners} listens on every address: set advertised.listeners to one that clients "
            "can reach, or leave the host empty"
        )
    if config.inter_broker_listener_name and "security.inter.broker.protocol" in config.properties:
        yield "only one of inter.broker.listener.name and security.inter.broker.protocol may be set"
    if config.inter_broker_listener not in [listener.name for listener in advertised]:
        yield (
            f"the inter-broker listener {config.inter_broker_listener} is not among the advertised listeners: set "
            "inter.broker.listener.name to one of them"
        )
    control = config.control_plane_listener_name
    if control and control.upper() == config.inter_broker_listener:
        yield f"control.plane.listener.name={control} must differ from the inter-broker listener"
    if control and control.upper() not in names:
        yield f"control.plane.listener.name={control} is not among listeners={config.listeners}"


def _times_and_sizes(config: BrokerConfig) -> Iterator[str]:
    if config.replica_fetch_wait_max_ms > config.replica_socket_timeout_ms:
        yield "replica.fetch.wait.max.ms must not be greater than replica.socket.timeout.ms"
    if config.replica_fetch_wait_max_ms > config.replica_lag_time_max_ms:
        yield "replica.fetch.wait.max.ms must not be greater than replica.lag.time.max.ms"
    threads = config.log_cleaner_threads
    if threads and config.log_cleaner_dedupe_buffer_size / threads <= 1 << 20:
        yield "log.cleaner.dedupe.buffer.size must be more than 1 MiB per cleaner thread"
    if 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
        yield "queued.max.request.bytes must be 0 or less, or at least socket.request.max.bytes"
    if 0 <= config.connections_max_idle_ms <= config.connection_failed_authentication_delay_ms:
        yield "connection.failed.authentication.delay.ms must be less than connections.max.idle.ms"
    for key, value in (
        ("log.retention.ms", config.log_retention_ms),
        ("log.retention.minutes", config.log_retention_minutes),
        ("log.retention.hours", config.log_retention_hours),
    ):
        if value == 0:
            yield f"{key}=0 must be unlimited (-1) or at least 1"
    if "classic" not in config.group_coordinator_rebalance_protocols:
        yield "group.coordinator.rebalance.protocols must contain classic"
    if config.group_consumer_heartbeat_interval_ms >= config.group_consumer_session_timeout_ms:
        yield "group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms"
    if config.offsets_commit_required_acks not in range(-1, config.offsets_topic_replication_factor + 1):
        yield "offsets.commit.required.acks must lie between -1 and offsets.topic.replication.factor"
    for host, limit in config.per_ip_overrides.items():
        if limit < 0:
            yield f"max.connections.per.ip.overrides: the limit of {host} must not be negative"
