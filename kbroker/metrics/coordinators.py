"""Groups and transactions that are coordinated here, and the lag of the groups under the names of kafka_exporter.

The lag of a partition that is led elsewhere is what its leader said some seconds ago (`Sources.latest_offsets`).
"""

from __future__ import annotations

from collections import Counter, defaultdict

from kbroker.coordinator.any_group import AnyGroup
from kbroker.coordinator.group_life import GroupState
from kbroker.metrics.exposition import Exposition
from kbroker.metrics.families import Section
from kbroker.metrics.sources import Sources
from kbroker.protocol.errors import KafkaError
from kbroker.protocol.grouping import Key
from kbroker.replica.partition import Role

_declare = Section("Groups and transactions")
_manager = "kafka_coordinator_group_groupmetadatamanager_"
GROUPS = _declare.gauge(f"{_manager}numgroups", "Groups coordinated here.")
OFFSETS = _declare.gauge(f"{_manager}numoffsets", "Offsets that they have committed.")
STATES = {
    state: _declare.gauge(f"{_manager}numgroups{state.value.lower()}", f"Those of them that are {state.value}.")
    for state in GroupState
}
_metrics = "kafka_server_group_coordinator_metrics_"
COMMITS = _declare.untyped(f"{_metrics}offset_commit_count", "Commits that were written.")
EXPIRED = _declare.untyped(
    f"{_metrics}offset_expiration_count", "Committed offsets that were kept for offsets.retention.minutes and went."
)
DELETED = _declare.untyped(f"{_metrics}offset_deletion_count", "Committed offsets that somebody had removed.")
REBALANCES = _declare.untyped(
    f"{_metrics}group_completed_rebalance_count",
    "Rebalances that ended; with group.history.size=0 without those of the newer protocol.",
)
TRANSACTIONS = _declare.gauge(
    "kbroker_transactions", "Transactional ids coordinated here, by the state of their transaction.", "state"
)
PARKED = _declare.gauge(
    "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize",
    "Markers of transactions that wait for another attempt: the partition has no leader, or an error was the answer.",
)

_lag = Section("Consumer groups")
MEMBERS = _lag.gauge("kafka_consumergroup_members", "Members.", "consumergroup")
CURRENT = _lag.gauge(
    "kafka_consumergroup_current_offset", "Offset that the group has committed.", "consumergroup", "topic", "partition"
)
LAG = _lag.gauge(
    "kafka_consumergroup_lag",
    "Messages up to the high watermark that it has not committed.",
    "consumergroup",
    "topic",
    "partition",
)
CURRENT_SUM = _lag.gauge(
    "kafka_consumergroup_current_offset_sum", "Sum over the topic's partitions.", "consumergroup", "topic"
)
LAG_SUM = _lag.gauge("kafka_consumergroup_lag_sum", "Sum over the topic's partitions.", "consumergroup", "topic")

GROUPS_AT_ONCE = 50


def collect(sources: Sources, out: Exposition) -> None:
    """Add the counts of both coordinators, and each group's lag."""
    coordinator = sources.services.groups
    groups, _ = coordinator.groups()
    states = Counter(group.state_name for group in groups)
    out.add(GROUPS, len(groups))
    out.add(OFFSETS, sum(len(group.offsets.committed) for group in groups))
    for state, family in STATES.items():
        out.add(family, states[state.value])
    counts = coordinator.counts
    out.add(COMMITS, counts.commits)
    out.add(EXPIRED, counts.expired_offsets)
    out.add(DELETED, counts.deleted_offsets)
    out.add(REBALANCES, coordinator.rebalances)
    _transactions(sources, out)
    committed = [(group, dict(group.offsets.committed)) for group in groups]
    ends = latest_offsets(sources, {key for _, offsets in committed for key in offsets})
    for number, (group, offsets) in enumerate(committed):
        out.add(MEMBERS, len(group.members), group.group_id)
        _lags(out, group, {key: each.offset for key, each in offsets.items()}, ends)
        if number % GROUPS_AT_ONCE == GROUPS_AT_ONCE - 1:
            out.let_others_in()


def _lags(out: Exposition, group: AnyGroup, offsets: dict[Key, int], ends: dict[Key, int]) -> None:
    lag_sums: dict[str, int] = defaultdict(int)
    sums: dict[str, int] = defaultdict(int)
    for (topic, partition), offset in offsets.items():
        labels = (group.group_id, topic, str(partition))
        out.add(CURRENT, offset, *labels)
        sums[topic] += offset
        end = ends.get((topic, partition))
        if end is not None:  # unknown is not 0
            out.add(LAG, max(end - offset, 0), *labels)
            lag_sums[topic] += max(end - offset, 0)
    for topic, total in sums.items():
        out.add(CURRENT_SUM, total, group.group_id, topic)
    for topic, total in lag_sums.items():
        out.add(LAG_SUM, total, group.group_id, topic)


def latest_offsets(sources: Sources, wanted: set[Key]) -> dict[Key, int]:
    """Return high watermarks: of what is led here as they are, of the rest as last heard."""
    hosted = sources.services.replicas.hosted
    found = {}
    for key in wanted:
        here = hosted.get(key)
        if here is not None and here.state.role is Role.LEADER:
            found[key] = here.log.high_watermark
    elsewhere = wanted.difference(found)
    if elsewhere and sources.latest_offsets is not None:
        found.update(sources.latest_offsets(elsewhere))
    return found


def _transactions(sources: Sources, out: Exposition) -> None:
    coordinator = sources.services.transactions
    out.add(PARKED, coordinator.parked_markers)
    try:
        transactions = coordinator.transactions()
    except KafkaError:
        return  # they are still being read
    for state, count in Counter(each.state.name for each in transactions).items():
        out.add(TRANSACTIONS, count, "".join(part.capitalize() for part in state.split("_")))
