"""The broker's log and cleaner keys: defaults of the topics' keys, and the logs' chores."""

from __future__ import annotations

from dataclasses import dataclass

from kbroker.config.keys_replication import RELEASE
from kbroker.protocol.config_def import (
    MAX_DOUBLE,
    MAX_LONG,
    Class,
    Double,
    Int,
    List,
    Long,
    Scope,
    at_least,
    between,
    key,
    one_of,
)


@dataclass(init=False, repr=False, eq=False)
class LogKeys:
    """Directories, segments, retention, flushing, timestamps."""

    num_partitions: Int = key(
        "num.partitions",
        default=1,
        check=at_least(1),
        doc="Partitions of topics that are created automatically or with -1 partitions.",
    )
    kbroker_max_partitions_per_topic: Int = key(
        "kbroker.max.partitions.per.topic",
        default=10_000,
        check=at_least(1),
        scope=Scope.CLUSTER_WIDE,
        doc="Most partitions a topic can be given when it is created or extended; what has more already is served. "
        "Not one of Kafka's keys.",
    )
    kbroker_max_topic_names_bytes: Int = key(
        "kbroker.max.topic.names.bytes",
        default=4_000_000,
        check=at_least(1),
        scope=Scope.CLUSTER_WIDE,
        doc="Most bytes of ZooKeeper's list of all topics: each name and four bytes more. A topic that would make it "
        "longer is refused, as no broker of Kafka reads a list of more than 4 MiB, and ZooKeeper's own tools stop at "
        "1 MiB (`jute.maxbuffer`). Not one of Kafka's keys.",
    )
    kbroker_max_replicas_per_request: Int = key(
        "kbroker.max.replicas.per.request",
        default=100_000,
        check=at_least(1),
        scope=Scope.CLUSTER_WIDE,
        doc="Most replicas (partitions times replication factor) that one request can create, all its topics together. "
        "Not one of Kafka's keys.",
    )
    log_dir: str = key("log.dir", default="/tmp/kafka-logs", doc="Directory of the logs, where log.dirs is not set.")
    log_dirs: str | None = key("log.dirs", default=None, doc="Directories of the logs, separated by commas.")
    log_segment_bytes: Int = key(
        "log.segment.bytes",
        default=1_073_741_824,
        check=at_least(14),
        scope=Scope.CLUSTER_WIDE,
        doc="Size at which a new segment begins.",
    )
    log_roll_ms: Long | None = key(
        "log.roll.ms",
        default=None,
        scope=Scope.CLUSTER_WIDE,
        doc="Age at which a new segment begins; goes before log.roll.hours.",
    )
    log_roll_hours: Int = key(
        "log.roll.hours", default=168, check=at_least(1), doc="Age at which a new segment begins, in hours."
    )
    log_roll_jitter_ms: Long | None = key(
        "log.roll.jitter.ms",
        default=None,
        scope=Scope.CLUSTER_WIDE,
        doc="Random part taken off the age at which segments roll; goes before log.roll.jitter.hours.",
    )
    log_roll_jitter_hours: Int = key(
        "log.roll.jitter.hours",
        default=0,
        check=at_least(0),
        doc="Random part taken off the age at which segments roll, in hours.",
    )
    log_retention_ms: Long | None = key(
        "log.retention.ms",
        default=None,
        scope=Scope.CLUSTER_WIDE,
        doc="How long records are kept; goes before the keys in minutes and hours; -1: for ever.",
    )
    log_retention_minutes: Int | None = key(
        "log.retention.minutes", default=None, doc="How long records are kept, in minutes; goes before the hours."
    )
    log_retention_hours: Int = key("log.retention.hours", default=168, doc="How long records are kept, in hours.")
    log_retention_bytes: Long = key(
        "log.retention.bytes", default=-1, scope=Scope.CLUSTER_WIDE, doc="Bytes kept per partition; -1: no limit."
    )
    log_retention_check_interval_ms: Long = key(
        "log.retention.check.interval.ms",
        default=300_000,
        check=at_least(1),
        doc="How often the broker looks for segments to remove.",
    )
    log_cleanup_policy: List = key(
        "log.cleanup.policy",
        default=("delete",),
        check=one_of("delete", "compact"),
        scope=Scope.CLUSTER_WIDE,
        doc="What happens to old records: delete, compact, or both.",
    )
    log_index_size_max_bytes: Int = key(
        "log.index.size.max.bytes",
        default=10_485_760,
        check=at_least(4),
        scope=Scope.CLUSTER_WIDE,
        doc="Largest offset index of a segment.",
    )
    log_index_interval_bytes: Int = key(
        "log.index.interval.bytes",
        default=4096,
        check=at_least(0),
        scope=Scope.CLUSTER_WIDE,
        doc="Bytes of log for each index entry.",
    )
    log_flush_interval_messages: Long = key(
        "log.flush.interval.messages",
        default=MAX_LONG,
        check=at_least(1),
        scope=Scope.CLUSTER_WIDE,
        doc="Messages after which a partition is forced to disk before they are acknowledged.",
    )
    log_segment_delete_delay_ms: Long = key(
        "log.segment.delete.delay.ms",
        default=60000,
        check=at_least(0),
        scope=Scope.CLUSTER_WIDE,
        doc="Pause before a removed segment's files are deleted.",
    )
    log_flush_scheduler_interval_ms: Long = key(
        "log.flush.scheduler.interval.ms", default=MAX_LONG, doc="How often the broker looks for logs to force to disk."
    )
    log_flush_interval_ms: Long | None = key(
        "log.flush.interval.ms",
        default=None,
        scope=Scope.CLUSTER_WIDE,
        doc="Age at which messages are forced to disk; unset: log.flush.scheduler.interval.ms.",
    )
    log_flush_offset_checkpoint_interval_ms: Int = key(
        "log.flush.offset.checkpoint.interval.ms",
        default=60000,
        check=at_least(0),
        doc="How often recovery points are written to disk.",
    )
    log_flush_start_offset_checkpoint_interval_ms: Int = key(
        "log.flush.start.offset.checkpoint.interval.ms",
        default=60000,
        check=at_least(0),
        doc="How often log start offsets are written to disk.",
    )
    log_preallocate: bool = key(
        "log.preallocate",
        default=False,
        scope=Scope.CLUSTER_WIDE,
        effect=False,
        doc="Accepted for compatibility: files are never made larger than their contents.",
    )
    num_recovery_threads_per_data_dir: Int = key(
        "num.recovery.threads.per.data.dir",
        default=1,
        check=at_least(1),
        scope=Scope.CLUSTER_WIDE,
        doc="Threads per directory that open and recover logs at a start, once one alone has had to wait for the disk; "
        "fewer than 4 count as 4.",
    )
    auto_create_topics_enable: bool = key(
        "auto.create.topics.enable",
        default=True,
        doc="Whether a topic is created when a client asks for one that does not exist.",
    )
    min_insync_replicas: Int = key(
        "min.insync.replicas",
        default=1,
        check=at_least(1),
        scope=Scope.CLUSTER_WIDE,
        doc="Replicas that must have a record before acks=all is answered.",
    )
    log_local_retention_ms: Long = key(
        "log.local.retention.ms",
        default=-2,
        check=at_least(-2),
        scope=Scope.CLUSTER_WIDE,
        effect=False,
        doc="Accepted for compatibility: means something only with tiered storage.",
    )
    log_local_retention_bytes: Long = key(
        "log.local.retention.bytes",
        default=-2,
        check=at_least(-2),
        scope=Scope.CLUSTER_WIDE,
        effect=False,
        doc="Accepted for compatibility: means something only with tiered storage.",
    )
    log_message_format_version: str = key(
        "log.message.format.version",
        default="3.0-IV1",
        check=RELEASE,
        effect=False,
        doc="Deprecated and ignored: records are always stored in format v2.",
    )
    log_message_timestamp_type: str = key(
        "log.message.timestamp.type",
        default="CreateTime",
        check=one_of("CreateTime", "LogAppendTime"),
        scope=Scope.CLUSTER_WIDE,
        doc="Which time a record carries: the producer's (CreateTime) or the broker's (LogAppendTime).",
    )
    log_message_timestamp_difference_max_ms: Long = key(
        "log.message.timestamp.difference.max.ms",
        default=MAX_LONG,
        check=at_least(0),
        scope=Scope.CLUSTER_WIDE,
        doc="Deprecated: largest distance of a record's time from the broker's, both ways.",
    )
    log_message_timestamp_before_max_ms: Long = key(
        "log.message.timestamp.before.max.ms",
        default=MAX_LONG,
        check=at_least(0),
        scope=Scope.CLUSTER_WIDE,
        doc="How far a record's time may lie before the broker's.",
    )
    log_message_timestamp_after_max_ms: Long = key(
        "log.message.timestamp.after.max.ms",
        default=MAX_LONG,
        check=at_least(0),
        scope=Scope.CLUSTER_WIDE,
        doc="How far a record's time may lie after the broker's.",
    )
    create_topic_policy_class_name: Class | None = key(
        "create.topic.policy.class.name", default=None, doc="Java class that checks new topics."
    )
    alter_config_policy_class_name: Class | None = key(
        "alter.config.policy.class.name", default=None, doc="Java class that checks configuration changes."
    )
    log_message_downconversion_enable: bool = key(
        "log.message.downconversion.enable",
        default=True,
        scope=Scope.CLUSTER_WIDE,
        effect=False,
        doc="Whether records are converted for clients too old for format v2. They are refused in either case here.",
    )
    log_initial_task_delay_ms: Long = key(
        "log.initial.task.delay.ms",
        default=30000,
        check=at_least(0),
        internal=True,
        doc="Pause between start and the first of the logs' periodic chores.",
    )


@dataclass(init=False, repr=False, eq=False)
class CleanerKeys:
    """Compaction."""

    log_cleaner_threads: Int = key(
        "log.cleaner.threads", default=1, check=at_least(0), scope=Scope.CLUSTER_WIDE, doc="Threads that compact logs."
    )
    log_cleaner_io_max_bytes_per_second: Double = key(
        "log.cleaner.io.max.bytes.per.second",
        default=MAX_DOUBLE,
        scope=Scope.CLUSTER_WIDE,
        doc="Most bytes per second compaction reads and writes.",
    )
    log_cleaner_dedupe_buffer_size: Long = key(
        "log.cleaner.dedupe.buffer.size",
        default=134_217_728,
        scope=Scope.CLUSTER_WIDE,
        doc="Memory for the keys seen by compaction, over all threads.",
    )
    log_cleaner_io_buffer_size: Int = key(
        "log.cleaner.io.buffer.size",
        default=524_288,
        check=at_least(0),
        scope=Scope.CLUSTER_WIDE,
        doc="Memory for compaction's reading and writing, over all threads.",
    )
    log_cleaner_io_buffer_load_factor: Double = key(
        "log.cleaner.io.buffer.load.factor",
        default=0.9,
        scope=Scope.CLUSTER_WIDE,
        doc="How full the table of keys may get.",
    )
    log_cleaner_backoff_ms: Long = key(
        "log.cleaner.backoff.ms",
        default=15000,
        check=at_least(0),
        scope=Scope.CLUSTER_WIDE,
        doc="Pause of compaction when there is nothing to do.",
    )
    log_cleaner_min_cleanable_ratio: Double = key(
        "log.cleaner.min.cleanable.ratio",
        default=0.5,
        check=between(0, 1),
        scope=Scope.CLUSTER_WIDE,
        doc="Share of a log not yet compacted from which it is compacted.",
    )
    log_cleaner_enable: bool = key("log.cleaner.enable", default=True, doc="Whether logs are compacted at all.")
    log_cleaner_delete_retention_ms: Long = key(
        "log.cleaner.delete.retention.ms",
        default=86_400_000,
        check=at_least(0),
        scope=Scope.CLUSTER_WIDE,
        doc="How long a deletion mark is kept in a compacted log.",
    )
    log_cleaner_min_compaction_lag_ms: Long = key(
        "log.cleaner.min.compaction.lag.ms",
        default=0,
        check=at_least(0),
        scope=Scope.CLUSTER_WIDE,
        doc="Age below which a record is not compacted.",
    )
    log_cleaner_max_compaction_lag_ms: Long = key(
        "log.cleaner.max.compaction.lag.ms",
        default=MAX_LONG,
        check=at_least(1),
        scope=Scope.CLUSTER_WIDE,
        doc="Age at which a record becomes due for compaction.",
    )


@dataclass(init=False, repr=False, eq=False)
class ScrubKeys:
    """Reading old segments again."""

    log_scrub_interval_ms: Long = key(
        "log.scrub.interval.ms",
        default=604_800_000,
        check=at_least(0),
        scope=Scope.CLUSTER_WIDE,
        doc="How often all closed segments are read again and checked; what is damaged is named in the log and mended "
        "from an in-sync replica. 0: never. Not one of Kafka's keys.",
    )
    log_scrub_max_bytes_per_second: Double = key(
        "log.scrub.max.bytes.per.second",
        default=10_485_760.0,
        check=at_least(1),
        scope=Scope.CLUSTER_WIDE,
        doc="Most bytes per second that are read for that. Not one of Kafka's keys.",
    )
