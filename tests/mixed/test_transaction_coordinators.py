"""Transactions whose coordinators and partitions are on brokers of Kafka and on ours, and move between the two."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.faults.transactions import COMMITTED, TransactionalWriter, problems, read_committed
from tests.fixtures.kafka import KAFKA, KBROKER
from tests.mixed.cluster import MixedCluster

pytestmark = [pytest.mark.compat, pytest.mark.timeout(600)]

PARTITIONS = 6
STATE = "__transaction_state"
OTHER = {KAFKA: KBROKER, KBROKER: KAFKA}


@contextlib.contextmanager
def writing(cluster: MixedCluster) -> Iterator[list[TransactionalWriter]]:
    """One writer for each partition of __transaction_state, so that each broker coordinates one at first."""
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(TransactionalWriter(cluster.bootstrap, "t", PARTITIONS, name, seed))
            for seed, name in enumerate(("a", "b", "c"))
        ]
        until_progress(writers)
        yield writers


def until_progress(writers: list[TransactionalWriter]) -> None:
    for writer in writers:
        writer.until_progress()


def check(cluster: MixedCluster, writers: list[TransactionalWriter]) -> None:
    outcomes = {transaction: outcome for writer in writers for transaction, outcome in writer.outcomes.items()}
    assert problems(outcomes, read_committed(cluster.bootstrap, "t", PARTITIONS), PARTITIONS) == []
    assert list(outcomes.values()).count(COMMITTED) > len(outcomes) // 3


def test_each_kind_coordinates_transactions_on_partitions_of_the_other(mixed_cluster: MixedCluster) -> None:
    cluster = mixed_cluster
    cluster.start({1: KAFKA, 2: KBROKER, 3: KAFKA})
    cluster.create_topic("t", leaders=(1, 2, 3, 1, 2, 3))
    with writing(cluster) as writers:
        leaders = {cluster.state(STATE, partition).leader for partition in cluster.partitions(STATE)}
        assert leaders == {1, 2, 3}
        until_progress(writers)
    check(cluster, writers)
    assert not any(writer.errors for writer in writers)


@pytest.mark.parametrize("first", [KAFKA, KBROKER])
def test_coordinators_move_between_the_kinds_in_the_middle_of_transactions(
    mixed_cluster: MixedCluster, first: str
) -> None:
    cluster = mixed_cluster
    kinds = {1: first, 2: OTHER[first], 3: first}
    cluster.start(kinds)
    cluster.create_topic("t", leaders=(1, 2, 3, 1, 2, 3))
    with writing(cluster) as writers:
        for broker_id, kind in kinds.items():
            cluster.become(broker_id, OTHER[kind])
            for topic in ("t", STATE):
                cluster.until_whole(topic)
                cluster.balance(topic)
            until_progress(writers)
        for broker_id, kind in kinds.items():
            cluster.kill(broker_id)
            cluster.until_led_by_another(STATE, broker_id, cluster.partitions(STATE))
            until_progress(writers)
            cluster.start_broker(broker_id, OTHER[kind])
            for topic in ("t", STATE):
                cluster.until_whole(topic)
                cluster.balance(topic)
    check(cluster, writers)
    cluster.until_identical("t")
    cluster.until_identical(STATE)
