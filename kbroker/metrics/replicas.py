"""The replicas of this broker, counted: ReplicaManager, the fetchers, directories; and partition by partition."""

from __future__ import annotations

import os
from collections.abc import Sequence

from kbroker.metrics.exposition import Exposition
from kbroker.metrics.families import Family, Section
from kbroker.metrics.sources import Sources
from kbroker.replica.hosted import HostedPartition
from kbroker.replica.partition import Role
from kbroker.replica.replication import Followed
from kbroker.segment.cleaner import LogCleaner
from kbroker.segment.producer_state import ProducerState

_declare = Section("Replicas")
_manager = "kafka_server_replicamanager_"
PARTITION_COUNT = _declare.gauge(f"{_manager}partitioncount", "Replicas here.")
LEADER_COUNT = _declare.gauge(f"{_manager}leadercount", "Partitions led here.")
OFFLINE_REPLICAS = _declare.gauge(f"{_manager}offlinereplicacount", "Replicas in log directories that have failed.")
UNDER_REPLICATED = _declare.gauge(
    f"{_manager}underreplicatedpartitions",
    "Partitions led here whose ISR lacks a replica that is not just being added.",
)
UNDER_MIN_ISR = _declare.gauge(
    f"{_manager}underminisrpartitioncount",
    "Partitions led here that refuse acks=all: fewer in sync than min.insync.replicas.",
)
AT_MIN_ISR = _declare.gauge(
    f"{_manager}atminisrpartitioncount", "Partitions led here that would refuse acks=all with one replica less in sync."
)
REASSIGNING = _declare.gauge(f"{_manager}reassigningpartitions", "Partitions led here that are being moved.")
PRODUCER_IDS = _declare.gauge(f"{_manager}produceridcount", "Producers that the logs here remember.")
ISR_SHRINKS = _declare.meter(f"{_manager}isrshrinks", "Replicas that leaders here took out of an ISR.")
ISR_EXPANDS = _declare.meter(f"{_manager}isrexpands", "Replicas that leaders here took back into an ISR.")
FAILED_ISR_UPDATES = _declare.meter(f"{_manager}failedisrupdates", "Such changes that the controller refused.")
LATE_TRANSACTIONS = _declare.gauge(
    f"{_manager}partitionswithlatetransactionscount",
    "Partitions led here with a transaction that nobody has ended five minutes after the longest that is allowed: "
    "readers of what is committed stand still there.",
)
MAX_LAG = _declare.gauge(
    "kafka_server_replicafetchermanager_maxlag",
    "Messages that the slowest replica here lacks of its leader.",
    "clientId",
)
FAILED_PARTITIONS = _declare.gauge(
    "kafka_server_replicafetchermanager_failedpartitionscount",
    "Replicas here that follow nobody any more, after an error.",
    "clientId",
)
OFFLINE_DIRECTORIES = _declare.gauge(
    "kafka_log_logmanager_offlinelogdirectorycount", "Log directories that have failed."
)
DIRECTORY_OFFLINE = _declare.gauge(
    "kafka_log_logmanager_logdirectoryoffline", "1 for a log directory that has failed.", "logDirectory"
)
DIRECTORY_SIZE = _declare.gauge(
    "kbroker_log_dir_size_bytes", "Size of the disk that a log directory lies on.", "directory"
)
DIRECTORY_FREE = _declare.gauge("kbroker_log_dir_free_bytes", "What of it is free.", "directory")
FLUSHES = _declare.summary(
    "kafka_log_logflushstats_logflushrateandtimems", "Milliseconds until a segment has reached the disk."
)
MAX_DIRTY_PERCENT = _declare.gauge(
    "kafka_log_logcleanermanager_max_dirty_percent",
    "Of the compacted log that needs it most: how much of it is not compacted, when a thread last looked.",
)
SINCE_LAST_CLEANING = _declare.gauge(
    "kafka_log_logcleanermanager_time_since_last_run_ms",
    "Since a thread last looked for a log to compact; grows beyond log.cleaner.backoff.ms where none does any more.",
)
UNCLEANABLE = _declare.gauge(
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "Logs that are left alone until the next start, as compacting them failed.",
    "logDirectory",
)
PURGATORY = _declare.gauge(
    "kafka_server_delayedoperationpurgatory_numdelayedoperations",
    "Requests that wait for replicas or for records.",
    "delayedOperation",
)
PURGATORY_SIZE = _declare.gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "The same, each as often as it waits for a partition.",
    "delayedOperation",
)
EXPIRED_FETCHES = _declare.meter(
    "kafka_server_delayedfetchmetrics_expires",
    "Fetches that found too little for as long as they were to wait: usual where little is written.",
    "fetcherType",
)
_sessions = "kafka_server_fetchsessioncache_"
FETCH_SESSIONS = _declare.gauge(f"{_sessions}numincrementalfetchsessions", "Incremental fetch sessions.")
SESSION_PARTITIONS = _declare.gauge(f"{_sessions}numincrementalfetchpartitionscached", "Partitions in them.")
SESSION_EVICTIONS = _declare.meter(
    f"{_sessions}incrementalfetchsessionevictions", "Those that went as others needed their place."
)

_partition = Section("Partitions")


def _of_partition(name: str, help: str) -> Family:
    return _partition.gauge(name, help, "topic", "partition")


IS_UNDER_REPLICATED = _of_partition(
    "kafka_cluster_partition_underreplicated", "1 where the ISR lacks a replica; 0 on followers."
)
IS_UNDER_MIN_ISR = _of_partition("kafka_cluster_partition_underminisr", "1 where acks=all is refused; 0 on followers.")
IS_AT_MIN_ISR = _of_partition(
    "kafka_cluster_partition_atminisr", "1 where one replica less in sync would have it refused; 0 on followers."
)
REPLICAS_COUNT = _of_partition(
    "kafka_cluster_partition_replicascount", "Replicas, as the leader knows; 0 on followers."
)
IN_SYNC_COUNT = _of_partition("kafka_cluster_partition_insyncreplicascount", "Replicas in sync; 0 on followers.")
LAST_STABLE_LAG = _of_partition(
    "kafka_cluster_partition_laststableoffsetlag",
    "Messages below the high watermark in transactions that are not decided.",
)
LOG_SIZE = _of_partition("kafka_log_log_size", "Bytes of the log's segments.")
LOG_END = _of_partition("kafka_log_log_logendoffset", "Offset that the next record gets.")
LOG_START = _of_partition("kafka_log_log_logstartoffset", "First offset that can be read.")
SEGMENTS = _of_partition("kafka_log_log_numlogsegments", "Segments of the log.")
CONSUMER_LAG = _partition.gauge(
    "kafka_server_fetcherlagmetrics_consumerlag",
    "Messages that a follower here lacks of its leader's high watermark; nothing before the leader has told it.",
    "clientId",
    "topic",
    "partition",
)

PER_TURN = 100
"""Partitions, before others get the interpreter."""
CLIENT = "Replica"
LATE_MS = 5 * 60_000
"""Kafka's: for so long a transaction may be over before it is late."""


def collect(sources: Sources, out: Exposition) -> None:
    """Add the broker's numbers and, unless they are switched off, those of its partitions."""
    replicas = sources.services.replicas
    hosted = list(replicas.hosted.values())
    late_before = replicas.clock() - sources.services.config.transaction_max_timeout_ms - LATE_MS
    counts = _Counts(late_before)
    with_partitions = sources.services.config.metrics_partitions_enable
    for start in range(0, len(hosted), PER_TURN):
        portion = hosted[start : start + PER_TURN]
        for each in portion:
            counts.add(each)
        if with_partitions:
            _partitions(portion, out)
        out.let_others_in()
    counts.tell(out)
    totals = replicas.totals
    out.add(ISR_SHRINKS, totals.isr_shrinks)
    out.add(ISR_EXPANDS, totals.isr_expands)
    out.add(FAILED_ISR_UPDATES, totals.failed_isr_updates)
    out.add(EXPIRED_FETCHES, totals.expired_consumer_fetches, "consumer")
    out.add(EXPIRED_FETCHES, totals.expired_follower_fetches, "follower")
    out.add(FETCH_SESSIONS, len(replicas.sessions.sessions))
    out.add(SESSION_PARTITIONS, replicas.sessions.partition_count)
    out.add(SESSION_EVICTIONS, replicas.sessions.evictions)
    if replicas.replication is not None:
        followed = replicas.replication.followed()
        out.add(MAX_LAG, max((each.lag or 0 for each in followed), default=0), CLIENT)
        out.add(FAILED_PARTITIONS, sum(each.is_given_up for each in followed), CLIENT)
        if with_partitions:
            _lags(followed, out)
    _directories(sources, out)
    out.add_summary(FLUSHES, sources.services.logs.flush_times.distribution)
    if replicas.care is not None:
        _compaction(replicas.care.cleaner, sources.services.logs.directories, out)


class _Counts:
    """What of the partitions is summed up."""

    def __init__(self, late_before_ms: int) -> None:
        """Transactions in which nothing was written since then are late."""
        self._late_before_ms = late_before_ms
        self.all = self.led = self.under_replicated = self.under_min = self.at_min = self.reassigning = 0
        self.producers = self.late_transactions = 0
        self.produce_places = self.fetch_places = 0
        self.waiting_produces: set[object] = set()
        self.waiting_fetches: set[object] = set()

    def add(self, hosted: HostedPartition) -> None:
        """Count a partition in."""
        self.all += 1
        self.producers += len(hosted.log.producers.state.producers)
        acks, fetches = (*hosted.acks, *hosted.flush_acks), (*hosted.consumers, *hosted.followers)
        self.produce_places += len(acks)
        self.fetch_places += len(fetches)
        self.waiting_produces.update(answer for _, answer, _ in acks)
        self.waiting_fetches.update(fetches)
        state = hosted.state
        if state.role is not Role.LEADER:
            return
        self.led += 1
        self.under_replicated += is_under_replicated(hosted)
        in_sync, wanted = len(state.isr), state.effective_min_isr
        self.under_min += in_sync < wanted
        self.at_min += in_sync == wanted
        self.reassigning += bool(state.adding_replicas or state.removing_replicas)
        self.late_transactions += self._is_late(hosted.log.producers.state)

    def _is_late(self, producers: ProducerState) -> bool:
        """Whether the producer of the oldest transaction that is open was silent for too long."""
        for producer_id in list(producers.transactions.open.values())[:1]:
            producer = producers.producers.get(producer_id)
            return producer is not None and 0 < producer.last_timestamp < self._late_before_ms
        return False

    def tell(self, out: Exposition) -> None:
        """Add the sums."""
        out.add(PARTITION_COUNT, self.all)
        out.add(LEADER_COUNT, self.led)
        out.add(UNDER_REPLICATED, self.under_replicated)
        out.add(UNDER_MIN_ISR, self.under_min)
        out.add(AT_MIN_ISR, self.at_min)
        out.add(REASSIGNING, self.reassigning)
        out.add(PRODUCER_IDS, self.producers)
        out.add(LATE_TRANSACTIONS, self.late_transactions)
        out.add(PURGATORY, len(self.waiting_produces), "Produce")
        out.add(PURGATORY, len(self.waiting_fetches), "Fetch")
        out.add(PURGATORY_SIZE, self.produce_places, "Produce")
        out.add(PURGATORY_SIZE, self.fetch_places, "Fetch")


def is_under_replicated(hosted: HostedPartition) -> bool:
    """Whether a partition led here lacks a replica that is not just being added."""
    state = hosted.state
    if len(state.isr) >= len(state.replicas):
        return False
    return bool(set(state.replicas).difference(state.isr, state.adding_replicas))


def _partitions(portion: list[HostedPartition], out: Exposition) -> None:
    """Add the lines of some partitions; there may be very many."""
    under, under_min, at_min = out.lines(IS_UNDER_REPLICATED), out.lines(IS_UNDER_MIN_ISR), out.lines(IS_AT_MIN_ISR)
    replicas, in_sync, lag = out.lines(REPLICAS_COUNT), out.lines(IN_SYNC_COUNT), out.lines(LAST_STABLE_LAG)
    sizes, ends, starts, segments = out.lines(LOG_SIZE), out.lines(LOG_END), out.lines(LOG_START), out.lines(SEGMENTS)
    for hosted in portion:
        log, state = hosted.log, hosted.state
        labels = f'{{topic="{hosted.topic}",partition="{hosted.partition}"}}'
        if state.role is Role.LEADER:
            isr, wanted, count = len(state.isr), state.effective_min_isr, len(state.replicas)
            is_under = is_under_replicated(hosted)
        else:
            isr, wanted, count, is_under = 0, -1, 0, False
        under.append(f"kafka_cluster_partition_underreplicated{labels} {is_under:d}")
        under_min.append(f"kafka_cluster_partition_underminisr{labels} {isr < wanted:d}")
        at_min.append(f"kafka_cluster_partition_atminisr{labels} {isr == wanted:d}")
        replicas.append(f"kafka_cluster_partition_replicascount{labels} {count}")
        in_sync.append(f"kafka_cluster_partition_insyncreplicascount{labels} {isr}")
        lag.append(f"kafka_cluster_partition_laststableoffsetlag{labels} {log.high_watermark - log.last_stable_offset}")
        own = log.segments
        sizes.append(f"kafka_log_log_size{labels} {own[0].size if len(own) == 1 else log.size}")
        ends.append(f"kafka_log_log_logendoffset{labels} {log.log_end_offset}")
        starts.append(f"kafka_log_log_logstartoffset{labels} {log.log_start_offset}")
        segments.append(f"kafka_log_log_numlogsegments{labels} {len(own)}")


def _lags(followed: list[Followed], out: Exposition) -> None:
    lines = out.lines(CONSUMER_LAG)
    for number, each in enumerate(followed, 1):
        if each.lag is not None:
            client = f"ReplicaFetcherThread-{each.fetcher}-{each.leader}"
            labels = f'clientId="{client}",topic="{each.hosted.topic}",partition="{each.hosted.partition}"'
            lines.append(f"{CONSUMER_LAG.name}{{{labels}}} {each.lag}")
        if number % PER_TURN == 0:
            out.let_others_in()


def _directories(sources: Sources, out: Exposition) -> None:
    logs = sources.services.logs
    offline = logs.offline_dirs
    out.add(OFFLINE_DIRECTORIES, len(offline))
    out.add(OFFLINE_REPLICAS, logs.offline_count)
    for path in logs.directories:
        out.add(DIRECTORY_OFFLINE, path in offline, path)
        if path in offline:
            continue
        try:
            disk = os.statvfs(path)
        except OSError:
            continue  # it is about to be found offline
        out.add(DIRECTORY_SIZE, disk.f_blocks * disk.f_frsize, path)
        out.add(DIRECTORY_FREE, disk.f_bavail * disk.f_frsize, path)


def _compaction(cleaner: LogCleaner, directories: Sequence[str], out: Exposition) -> None:
    out.add(MAX_DIRTY_PERCENT, int(100 * cleaner.dirtiest_ratio))
    out.add(SINCE_LAST_CLEANING, cleaner.since_last_run_ms)
    for path in directories:
        out.add(UNCLEANABLE, cleaner.uncleanable_in(path), path)
