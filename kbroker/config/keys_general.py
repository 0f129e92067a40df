"""The broker's general, network and ZooKeeper keys."""

from __future__ import annotations

from dataclasses import dataclass

from kbroker.protocol.config_def import (
    MAX_INT,
    Int,
    List,
    Long,
    Password,
    Scope,
    at_least,
    between,
    key,
    one_of,
    satisfies,
)

GZIP_LEVEL = satisfies(
    "-1, 1…9", lambda value: None if value == -1 or 1 <= value <= 9 else "Value must be -1 or between 1 and 9"
)


@dataclass(init=False, repr=False, eq=False)
class GeneralKeys:
    """Identity, sizes, shutdown, compression."""

    broker_id_generation_enable: bool = key(
        "broker.id.generation.enable",
        default=True,
        doc="Make up a broker id when broker.id is negative: above reserved.broker.max.id, kept in meta.properties.",
    )
    reserved_broker_max_id: Int = key(
        "reserved.broker.max.id",
        default=1000,
        check=at_least(0),
        doc="Highest id that may be given by hand while generated ids are on.",
    )
    broker_id: Int = key("broker.id", default=-1, doc="Number of this broker in the cluster; -1 has one generated.")
    message_max_bytes: Int = key(
        "message.max.bytes",
        default=1_048_588,
        check=at_least(0),
        scope=Scope.CLUSTER_WIDE,
        doc="Largest record batch a client may send (compressed size, header included). Topics: max.message.bytes.",
    )
    num_io_threads: Int = key(
        "num.io.threads",
        default=8,
        check=at_least(1),
        scope=Scope.CLUSTER_WIDE,
        doc="Threads that unpack and compress what is to be appended, as many as there are processors at most."
        " Requests are handled on one event loop.",
    )
    num_replica_alter_log_dirs_threads: Int | None = key(
        "num.replica.alter.log.dirs.threads",
        default=None,
        doc="Threads that move replicas between log directories; unset: one for each directory.",
    )
    background_threads: Int = key(
        "background.threads",
        default=10,
        check=at_least(1),
        scope=Scope.CLUSTER_WIDE,
        doc="Threads that make, move and remove logs, and do the regular work on them.",
    )
    request_timeout_ms: Int = key(
        "request.timeout.ms", default=30000, doc="How long this broker waits for the answer to a request of its own."
    )
    socket_connection_setup_timeout_ms: Long = key(
        "socket.connection.setup.timeout.ms",
        default=10000,
        doc="How long setting up a connection to another broker may take.",
    )
    socket_connection_setup_timeout_max_ms: Long = key(
        "socket.connection.setup.timeout.max.ms",
        default=30000,
        doc="Upper end of the connection set-up time-out, which grows with each failure.",
    )
    early_start_listeners: str | None = key(
        "early.start.listeners",
        default=None,
        effect=False,
        doc="Listeners that may be opened before the authorizer is ready. KRaft only.",
    )
    broker_rack: str | None = key(
        "broker.rack",
        default=None,
        doc="Rack of this broker: replicas are spread over racks, consumers may read from the nearest replica.",
    )
    controlled_shutdown_max_retries: Int = key(
        "controlled.shutdown.max.retries",
        default=3,
        doc="How often a controlled shutdown is tried before the broker stops all the same.",
    )
    controlled_shutdown_retry_backoff_ms: Long = key(
        "controlled.shutdown.retry.backoff.ms", default=5000, doc="Pause between two tries of a controlled shutdown."
    )
    controlled_shutdown_enable: bool = key(
        "controlled.shutdown.enable", default=True, doc="Hand leaderships over to other brokers before stopping."
    )
    delete_topic_enable: bool = key("delete.topic.enable", default=True, doc="Whether topics can be deleted.")
    compression_type: str = key(
        "compression.type",
        default="producer",
        check=one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        scope=Scope.CLUSTER_WIDE,
        doc="How batches are stored: as the producer sent them, or with this compression.",
    )
    compression_gzip_level: Int = key(
        "compression.gzip.level",
        default=-1,
        check=GZIP_LEVEL,
        scope=Scope.CLUSTER_WIDE,
        doc="Level used where the broker itself compresses with gzip (-1: the library's default).",
    )
    compression_lz4_level: Int = key(
        "compression.lz4.level",
        default=9,
        check=between(1, 17),
        scope=Scope.CLUSTER_WIDE,
        doc="Level used where the broker itself compresses with lz4.",
    )
    compression_zstd_level: Int = key(
        "compression.zstd.level",
        default=3,
        check=between(-131072, 22),
        scope=Scope.CLUSTER_WIDE,
        doc="Level used where the broker itself compresses with zstd.",
    )
    max_incremental_fetch_session_cache_slots: Int = key(
        "max.incremental.fetch.session.cache.slots",
        default=1000,
        check=at_least(0),
        doc="How many incremental fetch sessions are kept.",
    )
    fetch_max_bytes: Int = key(
        "fetch.max.bytes",
        default=57_671_680,
        check=at_least(1024),
        doc="Most bytes one fetch answer holds, whatever the client asks for; at least 1024.",
    )
    max_request_partition_size_limit: Int = key(
        "max.request.partition.size.limit",
        default=2000,
        check=at_least(1),
        effect=False,
        doc="Most partitions one answer to DescribeTopicPartitions lists.",
    )
    unstable_api_versions_enable: bool = key(
        "unstable.api.versions.enable", default=False, internal=True, effect=False, doc="For Kafka's own developers."
    )
    unstable_feature_versions_enable: bool = key(
        "unstable.feature.versions.enable",
        default=False,
        internal=True,
        effect=False,
        doc="For Kafka's own developers.",
    )


@dataclass(init=False, repr=False, eq=False)
class NetworkKeys:
    """Listeners, connections, requests in work."""

    listeners: str = key(
        "listeners",
        default="PLAINTEXT://:9092",
        scope=Scope.PER_BROKER,
        doc="Addresses to listen on: NAME://host:port,… An empty host means every address, port 0 a free one.",
    )
    advertised_listeners: str | None = key(
        "advertised.listeners",
        default=None,
        scope=Scope.PER_BROKER,
        doc="Addresses clients are told, where they differ from listeners.",
    )
    listener_security_protocol_map: str = key(
        "listener.security.protocol.map",
        default="SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        scope=Scope.PER_BROKER,
        doc="Security protocol of each listener name.",
    )
    control_plane_listener_name: str | None = key(
        "control.plane.listener.name",
        default=None,
        doc="Listener that the controller uses to reach this broker; unset: the inter-broker listener.",
    )
    kbroker_brokers_on_any_listener: bool = key(
        "kbroker.brokers.on.any.listener",
        default=False,
        scope=Scope.CLUSTER_WIDE,
        doc="Whether other listeners than the brokers' own (and the control plane's) take what only brokers send: "
        "orders of the controller, fetches of followers. Kafka does; needed while brokers pass from one listener to "
        "another. Not one of Kafka's keys.",
    )
    socket_send_buffer_bytes: Int = key(
        "socket.send.buffer.bytes",
        default=102_400,
        doc="SO_SNDBUF of the sockets; -1, or not set at all, leaves it to the operating system, which is faster.",
    )
    socket_receive_buffer_bytes: Int = key(
        "socket.receive.buffer.bytes",
        default=102_400,
        doc="SO_RCVBUF of the sockets; -1, or not set at all, leaves it to the operating system, which is faster.",
    )
    socket_request_max_bytes: Int = key(
        "socket.request.max.bytes",
        default=104_857_600,
        check=at_least(1),
        doc="Largest request; a connection that announces a larger one is closed.",
    )
    kbroker_small_request_max_bytes: Int = key(
        "kbroker.small.request.max.bytes",
        default=4_194_304,
        check=at_least(1),
        scope=Scope.CLUSTER_WIDE,
        doc="Largest request of any kind but Produce and the brokers' own (those: socket.request.max.bytes). "
        "Not one of Kafka's keys.",
    )
    socket_listen_backlog_size: Int = key(
        "socket.listen.backlog.size",
        default=50,
        check=at_least(1),
        doc="Connections that may wait to be accepted; 1024 unless it is set.",
    )
    max_connections_per_ip: Int = key(
        "max.connections.per.ip",
        default=MAX_INT,
        check=at_least(0),
        scope=Scope.CLUSTER_WIDE,
        doc="Most connections from one address.",
    )
    max_connections_per_ip_overrides: str = key(
        "max.connections.per.ip.overrides",
        default="",
        scope=Scope.CLUSTER_WIDE,
        doc="Limits of single addresses or host names, as name:limit, separated by commas.",
    )
    max_connections: Int = key(
        "max.connections",
        default=MAX_INT,
        check=at_least(0),
        scope=Scope.CLUSTER_WIDE,
        doc="Most connections of this broker; further ones wait. The inter-broker listener is exempt.",
    )
    max_connection_creation_rate: Int = key(
        "max.connection.creation.rate",
        default=MAX_INT,
        check=at_least(0),
        scope=Scope.CLUSTER_WIDE,
        doc="Most new connections per second.",
    )
    connections_max_idle_ms: Long = key(
        "connections.max.idle.ms",
        default=600_000,
        doc="A connection on which nothing moves for this long is closed; negative: never.",
    )
    connection_failed_authentication_delay_ms: Int = key(
        "connection.failed.authentication.delay.ms",
        default=100,
        check=at_least(0),
        doc="Pause before the connection of a client that failed to authenticate is closed.",
    )
    queued_max_requests: Int = key(
        "queued.max.requests",
        default=500,
        check=at_least(1),
        effect=False,
        doc="Requests that may wait for a thread. Requests are handled as they are read here; of those with more than "
        "2,000 elements (partitions, topics, groups) eight are worked on at a time, and one of each connection waits.",
    )
    queued_max_request_bytes: Long = key(
        "queued.max.request.bytes",
        default=-1,
        doc="No further request is read while those in work, or in line, hold this many bytes; -1: no limit. "
        "What comes before a login is not counted: a connection holds at most sasl.server.max.receive.size of it "
        "(of a TLS handshake 128 KiB), for 40 s at most.",
    )
    num_network_threads: Int = key(
        "num.network.threads",
        default=3,
        check=at_least(1),
        scope=Scope.CLUSTER_WIDE,
        effect=False,
        doc="Network threads. Accepted for Kafka's sake: one event loop serves all connections.",
    )


@dataclass(init=False, repr=False, eq=False)
class ZooKeeperKeys:
    """How ZooKeeper is reached."""

    zookeeper_connect: str | None = key(
        "zookeeper.connect",
        default=None,
        doc="ZooKeeper servers as host:port,host:port, optionally with a /chroot at the end.",
    )
    kbroker_allow_stand_in_zookeeper: bool = key(
        "kbroker.allow.stand.in.zookeeper",
        default=False,
        doc="Whether zookeeper.connect may lead to kbroker's stand-in for ZooKeeper, which is for development and "
        "tests only. `kbroker dev` sets it. Not one of Kafka's keys.",
    )
    zookeeper_session_timeout_ms: Int = key(
        "zookeeper.session.timeout.ms",
        default=18000,
        doc="ZooKeeper session time-out: a broker that is silent for longer counts as dead.",
    )
    zookeeper_connection_timeout_ms: Int | None = key(
        "zookeeper.connection.timeout.ms",
        default=None,
        doc="How long the broker tries to reach ZooKeeper at its start; unset: the session time-out.",
    )
    zookeeper_set_acl: bool = key(
        "zookeeper.set.acl",
        default=False,
        doc="Whether only those who log in at ZooKeeper as this broker does may change what it makes there, and read "
        "credentials. What exists already keeps the ACL it has.",
    )
    kbroker_zookeeper_digest: Password | None = key(
        "kbroker.zookeeper.digest",
        default=None,
        doc="`user:password`, shown to ZooKeeper as its scheme digest; for servers without SASL. Kafka's brokers know "
        "only SASL and certificates. Not one of Kafka's keys.",
    )
    zookeeper_max_in_flight_requests: Int = key(
        "zookeeper.max.in.flight.requests",
        default=10,
        check=at_least(1),
        doc="Requests to ZooKeeper that may be under way at once.",
    )
    zookeeper_ssl_client_enable: bool = key("zookeeper.ssl.client.enable", default=False, doc="Speak TLS to ZooKeeper.")
    zookeeper_client_cnxn_socket: str | None = key(
        "zookeeper.clientCnxnSocket",
        default=None,
        effect=False,
        doc="Class of the ZooKeeper client's socket in Java; needed there for TLS.",
    )
    zookeeper_ssl_keystore_location: str | None = key(
        "zookeeper.ssl.keystore.location", default=None, doc="Key store for TLS to ZooKeeper."
    )
    zookeeper_ssl_keystore_password: Password | None = key(
        "zookeeper.ssl.keystore.password",
        default=None,
        doc="Password of the key store for TLS to ZooKeeper.",
    )
    zookeeper_ssl_keystore_type: str | None = key(
        "zookeeper.ssl.keystore.type", default=None, doc="Type of the key store for TLS to ZooKeeper."
    )
    zookeeper_ssl_truststore_location: str | None = key(
        "zookeeper.ssl.truststore.location", default=None, doc="Trust store for TLS to ZooKeeper."
    )
    zookeeper_ssl_truststore_password: Password | None = key(
        "zookeeper.ssl.truststore.password",
        default=None,
        doc="Password of the trust store for TLS to ZooKeeper.",
    )
    zookeeper_ssl_truststore_type: str | None = key(
        "zookeeper.ssl.truststore.type", default=None, doc="Type of the trust store for TLS to ZooKeeper."
    )
    zookeeper_ssl_protocol: str = key("zookeeper.ssl.protocol", default="TLSv1.2", doc="TLS version for ZooKeeper.")
    zookeeper_ssl_enabled_protocols: List | None = key(
        "zookeeper.ssl.enabled.protocols", default=None, doc="TLS versions allowed for ZooKeeper."
    )
    zookeeper_ssl_cipher_suites: List | None = key(
        "zookeeper.ssl.cipher.suites", default=None, doc="Cipher suites allowed for ZooKeeper."
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = key(
        "zookeeper.ssl.endpoint.identification.algorithm",
        default="HTTPS",
        doc="Check of ZooKeeper's host name in its certificate; empty for none.",
    )
    zookeeper_ssl_crl_enable: bool = key(
        "zookeeper.ssl.crl.enable", default=False, doc="Use certificate revocation lists with ZooKeeper."
    )
    zookeeper_ssl_ocsp_enable: bool = key("zookeeper.ssl.ocsp.enable", default=False, doc="Use OCSP with ZooKeeper.")
