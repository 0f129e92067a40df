"""Groups and transactions that are coordinated here, and the groups' lag."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kbroker.coordinator.group_keeper import GroupCounts
from kbroker.coordinator.group_offsets import CommittedOffset, GroupOffsets
from kbroker.coordinator.transaction import TransactionState
from kbroker.handlers.produce import produce
from kbroker.metrics import coordinators
from kbroker.protocol.errors import ErrorCode, KafkaError
from tests.fixtures.data_path import TOPIC, Played, one_batch
from tests.kbroker.handlers.test_produce import request_for
from tests.kbroker.metrics.scraping import collected, sources_of


def group(group_id: str, state: str = "Stable", members: int = 1, **committed: int) -> Any:
    offsets = GroupOffsets()
    for name, offset in committed.items():
        topic, _, partition = name.rpartition("_")
        offsets.committed[topic, int(partition)] = CommittedOffset(offset)
    return SimpleNamespace(group_id=group_id, state_name=state, members=dict.fromkeys(range(members)), offsets=offsets)


def parts(*groups: Any, transactions: Any = list) -> dict[str, Any]:
    return {
        "groups": SimpleNamespace(
            groups=lambda: (list(groups), ErrorCode.NONE), counts=GroupCounts(4, 3, 2), rebalances=1
        ),
        "transactions": SimpleNamespace(transactions=transactions, parked_markers=5),
    }


async def test_lag_is_what_lies_between_the_commit_and_the_high_watermark(played: Played) -> None:
    await played.lead([0, 1])
    for _ in range(5):
        produce(played.services, played.ctx(9), request_for((0, one_batch(b"a"))))
    sources = sources_of(played, **parts(group("readers", orders_0=3, orders_1=0)))
    found = collected(coordinators.collect, sources)
    of_group = {"consumergroup": "readers", "topic": TOPIC}
    assert found.value("kafka_consumergroup_lag", partition="0", **of_group) == 2
    assert found.value("kafka_consumergroup_lag", partition="1", **of_group) == 0
    assert found.value("kafka_consumergroup_current_offset", partition="0", **of_group) == 3
    assert found.value("kafka_consumergroup_lag_sum", **of_group) == 2
    assert found.value("kafka_consumergroup_members", consumergroup="readers") == 1


async def test_of_partitions_led_elsewhere_the_last_known_end_counts_and_unknown_is_not_zero(played: Played) -> None:
    sources = sources_of(played, **parts(group("readers", elsewhere_0=3, nowhere_0=7)))
    asked = []

    def latest(wanted: set[tuple[str, int]]) -> dict[tuple[str, int], int]:
        asked.append(wanted)
        return {("elsewhere", 0): 10}

    sources.latest_offsets = latest  # type: ignore[assignment]
    found = collected(coordinators.collect, sources)
    assert asked == [{("elsewhere", 0), ("nowhere", 0)}]
    assert found.value("kafka_consumergroup_lag", topic="elsewhere") == 7
    assert found.find("kafka_consumergroup_lag", topic="nowhere") == []
    assert found.value("kafka_consumergroup_current_offset", topic="nowhere") == 7


async def test_a_commit_beyond_the_end_is_no_lag(played: Played) -> None:
    await played.lead()
    found = collected(coordinators.collect, sources_of(played, **parts(group("ahead", orders_0=9))))
    assert found.value("kafka_consumergroup_lag", consumergroup="ahead") == 0


async def test_groups_and_transactions_are_counted_by_their_state(played: Played) -> None:
    transactions = [SimpleNamespace(state=TransactionState.ONGOING), SimpleNamespace(state=TransactionState.EMPTY)]
    groups = (group("a", orders_0=1, orders_1=1), group("b", "Empty", members=0))
    found = collected(coordinators.collect, sources_of(played, **parts(*groups, transactions=lambda: transactions)))
    manager = "kafka_coordinator_group_groupmetadatamanager_"
    assert found.value(manager + "numgroups") == 2
    assert found.value(manager + "numoffsets") == 2
    assert found.value(manager + "numgroupsempty") == found.value(manager + "numgroupsstable") == 1
    names = ("offset_commit", "offset_expiration", "offset_deletion", "group_completed_rebalance")
    counts = [found.value(f"kafka_server_group_coordinator_metrics_{name}_count") for name in names]
    assert counts == [4, 3, 2, 1]
    assert found.value("kbroker_transactions", state="Ongoing") == 1


async def test_a_coordinator_that_still_reads_tells_of_no_transactions(played: Played) -> None:
    def loading() -> Any:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    found = collected(coordinators.collect, sources_of(played, **parts(transactions=loading)))
    assert found.find("kbroker_transactions") == []
    manager = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
    assert found.value(manager + "unknowndestinationqueuesize") == 5
