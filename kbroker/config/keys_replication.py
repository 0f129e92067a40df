"""The broker's replication, controller, quota and metrics keys."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kbroker.protocol.config_def import MAX_LONG, Class, Int, List, Long, Scope, at_least, key, one_of, satisfies

_RELEASE = re.compile(r"\d+\.\d+(\.\d+)?(\.\d+)?(-IV\d+)?")
RELEASE = satisfies(
    "release such as 3.9 or 3.9-IV0",
    lambda value: None if _RELEASE.fullmatch(value) else "is not a release such as 3.9 or 3.9-IV0",
)


@dataclass(init=False, repr=False, eq=False)
class ReplicationKeys:
    """Followers, ISR, controller, elections."""

    controller_socket_timeout_ms: Int = key(
        "controller.socket.timeout.ms", default=30000, doc="How long the controller waits for a broker's answer."
    )
    default_replication_factor: Int = key(
        "default.replication.factor",
        default=1,
        doc="Replicas of topics that are created automatically or with replication factor -1.",
    )
    replica_lag_time_max_ms: Long = key(
        "replica.lag.time.max.ms", default=30000, doc="A follower that has not caught up for this long leaves the ISR."
    )
    replica_socket_timeout_ms: Int = key(
        "replica.socket.timeout.ms", default=30000, doc="How long a follower waits for its leader's answer."
    )
    replica_socket_receive_buffer_bytes: Int = key(
        "replica.socket.receive.buffer.bytes", default=65536, doc="SO_RCVBUF of the followers' sockets."
    )
    replica_fetch_max_bytes: Int = key(
        "replica.fetch.max.bytes",
        default=1_048_576,
        check=at_least(0),
        doc="Bytes a follower asks for per partition; a larger first batch comes all the same.",
    )
    replica_fetch_wait_max_ms: Int = key(
        "replica.fetch.wait.max.ms",
        default=500,
        doc="How long a leader may hold back a follower's fetch for lack of data.",
    )
    replica_fetch_backoff_ms: Int = key(
        "replica.fetch.backoff.ms",
        default=1000,
        check=at_least(0),
        doc="Pause of a partition's follower after an error.",
    )
    replica_fetch_min_bytes: Int = key("replica.fetch.min.bytes", default=1, doc="Bytes a follower waits for.")
    replica_fetch_response_max_bytes: Int = key(
        "replica.fetch.response.max.bytes",
        default=10_485_760,
        check=at_least(0),
        doc="Bytes a follower asks for in one answer.",
    )
    num_replica_fetchers: Int = key(
        "num.replica.fetchers", default=1, scope=Scope.CLUSTER_WIDE, doc="Fetchers per leader broker."
    )
    replica_high_watermark_checkpoint_interval_ms: Long = key(
        "replica.high.watermark.checkpoint.interval.ms",
        default=5000,
        doc="How often high watermarks are written to disk.",
    )
    fetch_purgatory_purge_interval_requests: Int = key(
        "fetch.purgatory.purge.interval.requests",
        default=1000,
        effect=False,
        doc="Accepted for Kafka's sake: waiting fetches are removed as they end.",
    )
    producer_purgatory_purge_interval_requests: Int = key(
        "producer.purgatory.purge.interval.requests",
        default=1000,
        effect=False,
        doc="Accepted for Kafka's sake: waiting produce requests are removed as they end.",
    )
    delete_records_purgatory_purge_interval_requests: Int = key(
        "delete.records.purgatory.purge.interval.requests",
        default=1,
        effect=False,
        doc="Accepted for Kafka's sake: waiting requests are removed as they end.",
    )
    auto_leader_rebalance_enable: bool = key(
        "auto.leader.rebalance.enable",
        default=True,
        doc="Whether the controller moves leaderships back to the preferred replicas.",
    )
    leader_imbalance_per_broker_percentage: Int = key(
        "leader.imbalance.per.broker.percentage",
        default=10,
        doc="Share of a broker's partitions led elsewhere from which its leaderships are moved back.",
    )
    leader_imbalance_check_interval_seconds: Long = key(
        "leader.imbalance.check.interval.seconds",
        default=300,
        check=at_least(1),
        doc="How often the controller looks for imbalance.",
    )
    unclean_leader_election_interval_ms: Long = key(
        "unclean.leader.election.interval.ms",
        default=300_000,
        check=at_least(1),
        internal=True,
        effect=False,
        doc="KRaft only.",
    )
    unclean_leader_election_enable: bool = key(
        "unclean.leader.election.enable",
        default=False,
        scope=Scope.CLUSTER_WIDE,
        doc="Whether a replica outside the ISR may become leader as a last resort, losing records.",
    )
    security_inter_broker_protocol: str = key(
        "security.inter.broker.protocol",
        default="PLAINTEXT",
        check=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="Security protocol between brokers, where inter.broker.listener.name is not set.",
    )
    inter_broker_protocol_version: str = key(
        "inter.broker.protocol.version",
        default="3.9-IV0",
        check=RELEASE,
        doc="Version of the protocol between brokers; picks the versions of the requests they send.",
    )
    inter_broker_listener_name: str | None = key(
        "inter.broker.listener.name", default=None, doc="Listener that brokers use among each other."
    )
    replica_selector_class: str | None = key(
        "replica.selector.class", default=None, doc="How a consumer's nearest replica is chosen."
    )


@dataclass(init=False, repr=False, eq=False)
class QuotaKeys:
    """Windows of quotas and metrics."""

    quota_window_num: Int = key(
        "quota.window.num", default=11, check=at_least(1), doc="Samples kept for client quotas."
    )
    replication_quota_window_num: Int = key(
        "replication.quota.window.num", default=11, check=at_least(1), doc="Samples kept for replication quotas."
    )
    alter_log_dirs_replication_quota_window_num: Int = key(
        "alter.log.dirs.replication.quota.window.num",
        default=11,
        check=at_least(1),
        doc="Samples kept for the quota of moves between log directories.",
    )
    controller_quota_window_num: Int = key(
        "controller.quota.window.num",
        default=11,
        check=at_least(1),
        doc="Samples kept for the quota of topic changes.",
    )
    quota_window_size_seconds: Int = key(
        "quota.window.size.seconds",
        default=1,
        check=at_least(1),
        doc="Length of a sample for client quotas.",
    )
    replication_quota_window_size_seconds: Int = key(
        "replication.quota.window.size.seconds",
        default=1,
        check=at_least(1),
        doc="Length of a sample for replication quotas.",
    )
    alter_log_dirs_replication_quota_window_size_seconds: Int = key(
        "alter.log.dirs.replication.quota.window.size.seconds",
        default=1,
        check=at_least(1),
        doc="Length of a sample for moves between log directories.",
    )
    controller_quota_window_size_seconds: Int = key(
        "controller.quota.window.size.seconds",
        default=1,
        check=at_least(1),
        doc="Length of a sample for the quota of topic changes.",
    )
    client_quota_callback_class: Class | None = key(
        "client.quota.callback.class", default=None, doc="Java class that computes quotas."
    )
    metrics_num_samples: Int = key(
        "metrics.num.samples", default=2, check=at_least(1), effect=False, doc="Samples kept for metrics."
    )
    metrics_sample_window_ms: Long = key(
        "metrics.sample.window.ms", default=30000, check=at_least(1), effect=False, doc="Length of a metric's sample."
    )
    metrics_listeners: str = key(
        "metrics.listeners",
        default="",
        doc="HTTP://host:port,… where this broker's metrics are served to Prometheus, at /metrics. Empty: nowhere.",
    )
    metrics_partitions_enable: bool = key(
        "metrics.partitions.enable",
        default=True,
        doc="Serve the metrics of single partitions, too: some twenty lines for each replica.",
    )
    metric_reporters: List = key(
        "metric.reporters",
        default=(),
        scope=Scope.CLUSTER_WIDE,
        effect=False,
        doc="Java classes that report metrics.",
    )
    metrics_recording_level: str = key(
        "metrics.recording.level", default="INFO", effect=False, doc="Which metrics are recorded."
    )
    auto_include_jmx_reporter: bool = key("auto.include.jmx.reporter", default=True, effect=False, doc="Java's JMX.")
    kafka_metrics_reporters: List = key(
        "kafka.metrics.reporters", default=(), effect=False, doc="Java classes that report metrics."
    )
    kafka_metrics_polling_interval_secs: Int = key(
        "kafka.metrics.polling.interval.secs",
        default=10,
        check=at_least(1),
        effect=False,
        doc="How often Java metric reporters are called.",
    )
    leader_replication_throttled_rate: Long = key(
        "leader.replication.throttled.rate",
        default=MAX_LONG,
        check=at_least(0),
        scope=Scope.CLUSTER_WIDE,
        doc="Bytes per second served to followers for throttled replicas.",
    )
    follower_replication_throttled_rate: Long = key(
        "follower.replication.throttled.rate",
        default=MAX_LONG,
        check=at_least(0),
        scope=Scope.CLUSTER_WIDE,
        doc="Bytes per second fetched for throttled replicas.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second: Long = key(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        default=MAX_LONG,
        check=at_least(0),
        scope=Scope.CLUSTER_WIDE,
        doc="Bytes per second moved between log directories.",
    )
