"""The broker's keys for groups, transactions and producer state."""

from __future__ import annotations

from dataclasses import dataclass

from kbroker.protocol.config_def import MAX_INT, Int, List, Long, Scope, Short, at_least, between, key, one_of


@dataclass(init=False, repr=False, eq=False)
class GroupKeys:
    """Groups and committed offsets."""

    group_min_session_timeout_ms: Int = key(
        "group.min.session.timeout.ms", default=6000, doc="Shortest session time-out a group member may ask for."
    )
    group_max_session_timeout_ms: Int = key(
        "group.max.session.timeout.ms", default=1_800_000, doc="Longest session time-out a group member may ask for."
    )
    group_initial_rebalance_delay_ms: Int = key(
        "group.initial.rebalance.delay.ms",
        default=3000,
        doc="How long the first rebalance of an empty group waits for more members.",
    )
    group_max_size: Int = key("group.max.size", default=MAX_INT, check=at_least(1), doc="Most members of a group.")
    group_history_size: Int = key(
        "group.history.size",
        default=100,
        check=at_least(0),
        doc="Rebalances of each group that its coordinator keeps in memory, with their reasons, for "
        "`kbroker group history`. Not one of Kafka's keys.",
    )
    group_coordinator_rebalance_protocols: List = key(
        "group.coordinator.rebalance.protocols",
        default=("classic", "consumer"),
        check=one_of("classic", "consumer", "share", "unknown"),
        doc="Group protocols that are on. Leave consumer (KIP-848) out while Java brokers of 3.9 are in the cluster.",
    )
    group_consumer_session_timeout_ms: Int = key(
        "group.consumer.session.timeout.ms",
        default=45_000,
        check=at_least(1),
        doc="A member of a consumer group (KIP-848) that is not heard of for so long is removed.",
    )
    group_consumer_heartbeat_interval_ms: Int = key(
        "group.consumer.heartbeat.interval.ms",
        default=5_000,
        check=at_least(1),
        doc="How often members of a consumer group (KIP-848) shall send heartbeats.",
    )
    group_consumer_max_size: Int = key(
        "group.consumer.max.size", default=MAX_INT, check=at_least(1), doc="Most members of a consumer group (KIP-848)."
    )
    group_consumer_migration_policy: str = key(
        "group.consumer.migration.policy",
        default="bidirectional",
        check=one_of("disabled", "upgrade", "downgrade", "bidirectional"),
        doc="Whether groups with members pass from the classic protocol to the newer one (KIP-848), and back.",
    )
    offset_metadata_max_bytes: Int = key(
        "offset.metadata.max.bytes", default=4096, doc="Longest text that may be committed beside an offset."
    )
    offsets_load_buffer_size: Int = key(
        "offsets.load.buffer.size",
        default=5_242_880,
        check=at_least(1),
        doc="Bytes read at once while offsets are loaded.",
    )
    offsets_topic_replication_factor: Short = key(
        "offsets.topic.replication.factor", default=3, check=at_least(1), doc="Replicas of __consumer_offsets."
    )
    offsets_topic_num_partitions: Int = key(
        "offsets.topic.num.partitions", default=50, check=at_least(1), doc="Partitions of __consumer_offsets."
    )
    offsets_topic_segment_bytes: Int = key(
        "offsets.topic.segment.bytes", default=104_857_600, check=at_least(1), doc="Segment size of __consumer_offsets."
    )
    offsets_topic_compression_codec: Int = key(
        "offsets.topic.compression.codec",
        default=0,
        doc="Compression of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    )
    offsets_retention_minutes: Int = key(
        "offsets.retention.minutes",
        default=10080,
        check=at_least(1),
        doc="How long the offsets of an empty group are kept.",
    )
    offsets_retention_check_interval_ms: Long = key(
        "offsets.retention.check.interval.ms",
        default=600_000,
        check=at_least(1),
        doc="How often the broker looks for offsets to forget.",
    )
    offsets_commit_timeout_ms: Int = key(
        "offsets.commit.timeout.ms", default=5000, check=at_least(1), doc="How long a commit may wait for the replicas."
    )
    offsets_commit_required_acks: Short = key(
        "offsets.commit.required.acks", default=-1, doc="Acknowledgements a commit needs; leave it at -1."
    )


@dataclass(init=False, repr=False, eq=False)
class TransactionKeys:
    """Transactions and producer state."""

    transaction_state_log_min_isr: Int = key(
        "transaction.state.log.min.isr", default=2, check=at_least(1), doc="min.insync.replicas of __transaction_state."
    )
    transaction_state_log_load_buffer_size: Int = key(
        "transaction.state.log.load.buffer.size",
        default=5_242_880,
        check=at_least(1),
        doc="Bytes read at once while transactions are loaded.",
    )
    transaction_state_log_replication_factor: Short = key(
        "transaction.state.log.replication.factor", default=3, check=at_least(1), doc="Replicas of __transaction_state."
    )
    transaction_state_log_num_partitions: Int = key(
        "transaction.state.log.num.partitions", default=50, check=at_least(1), doc="Partitions of __transaction_state."
    )
    transaction_state_log_segment_bytes: Int = key(
        "transaction.state.log.segment.bytes",
        default=104_857_600,
        check=at_least(1),
        doc="Segment size of __transaction_state.",
    )
    transaction_partition_verification_enable: bool = key(
        "transaction.partition.verification.enable",
        default=True,
        scope=Scope.CLUSTER_WIDE,
        doc="Ask the transaction coordinator before a transaction's first batch is appended.",
    )
    producer_id_expiration_ms: Int = key(
        "producer.id.expiration.ms",
        default=86_400_000,
        check=at_least(1),
        scope=Scope.CLUSTER_WIDE,
        doc="How long an idle producer's sequences are remembered.",
    )
    producer_id_expiration_check_interval_ms: Int = key(
        "producer.id.expiration.check.interval.ms",
        default=600_000,
        check=at_least(1),
        internal=True,
        doc="How often the broker looks for producers to forget.",
    )
    kbroker_new_cluster_transaction_version: Int = key(
        "kbroker.new.cluster.transaction.version",
        default=0,
        check=between(0, 2),
        doc="transaction.version of a cluster whose first broker starts with this: 2 gives each transaction an epoch "
        "of its own (KIP-890), and keeps Kafka's 3.9 brokers out. Changed later by `kbroker cluster features`. Not one "
        "of Kafka's keys.",
    )
    transactional_id_expiration_ms: Int = key(
        "transactional.id.expiration.ms",
        default=604_800_000,
        check=at_least(1),
        doc="How long an idle transactional id is remembered.",
    )
    transaction_max_timeout_ms: Int = key(
        "transaction.max.timeout.ms",
        default=900_000,
        check=at_least(1),
        doc="Longest transaction time-out a producer may ask for.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: Int = key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        default=10000,
        check=at_least(1),
        doc="How often the coordinator looks for transactions that took too long.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: Int = key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        default=3_600_000,
        check=at_least(1),
        doc="How often the coordinator looks for transactional ids to forget.",
    )
