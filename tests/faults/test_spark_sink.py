"""The sink that writes each row once, without Spark: whoever coordinates its transactions dies in each of its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from kbroker.client.plain_transactions import PlainTransactions
from kbroker.protocol.errors import KafkaError
from kbroker.protocol.java_hash import partition_for
from tests.faults.cluster import FaultCluster
from tests.faults.conftest import MakeFaultCluster
from tests.faults.test_transaction_kills import PROPERTIES, STATE
from tests.spark_connector.test_exactly_once import Query

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
exactly_once = pytest.importorskip("kbroker.spark_connector.exactly_once")
ledger = pytest.importorskip("kbroker.spark_connector.ledger")

TOPIC = "t"
DRIVER, FIRST_TASK = "driver", "first task"
STEPS = (
    "tasks have flushed",
    "before the decision",
    "decision is sent",
    "decision is committed",
    "one task is committed",
    "all tasks are committed",
)


@contextmanager
def passing(step: Callable[[str], None]) -> Iterator[None]:
    """Call `step` in each step of what a driver does."""
    whole_write, whole_end = PlainTransactions.write, PlainTransactions.end

    def write(self: Any, *arguments: Any) -> None:
        step("before the decision")
        whole_write(self, *arguments)
        step("decision is sent")

    def end(self: Any, owners: Any, *, commit: bool) -> Any:
        if owners[0].transactional_id.endswith("driver"):
            ended = whole_end(self, owners, commit=commit)
            step("decision is committed")
            return ended
        first = whole_end(self, owners[:1], commit=commit)
        step("one task is committed")
        ended = {**first, **whole_end(self, owners[1:], commit=commit)}
        step("all tasks are committed")
        return ended

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlainTransactions, "write", write)
        patch.setattr(PlainTransactions, "end", end)
        yield


def values(batch: int) -> list[str]:
    return [f"{batch}-{task}" for task in "abc"]


def coordinator_of(cluster: FaultCluster, transactional_id: str) -> int:
    return cluster.state(STATE, partition_for(transactional_id, len(cluster.partitions(STATE)))).leader


def write_batch(query: Query, batch: int, step: Callable[[str], None], places: int | None) -> None:
    """As Spark does it: what failed is aborted and tried again, until the ledger says that it is written."""
    problem: Exception | None = None
    for _ in range(5):
        try:
            term = query.begin()
            if ledger.is_written(term.entry, "query", batch):
                return
            done = query.write(term if places is None else replace(term, places=places), batch, values(batch))
            step("tasks have flushed")
            with passing(step):
                query.commit(term, batch, done)
            return
        except (KafkaError, OSError) as error:  # the next driver ends what is open
            problem = error
    raise AssertionError(f"batch {batch} is not written after five tries") from problem


@pytest.mark.parametrize(("places", "owner"), [(None, DRIVER), (0, FIRST_TASK)], ids=["driver", "task-elsewhere"])
def test_a_batch_is_written_once_though_a_coordinator_dies_in_each_step(
    make_fault_cluster: MakeFaultCluster, places: int | None, owner: str
) -> None:
    """The driver's, which is that of all ids; or a task's, where ids could not be placed with the driver's."""
    cluster = make_fault_cluster(properties=PROPERTIES)
    cluster.create_topic(TOPIC, [1])
    query = Query(cluster.bootstrap, TOPIC)
    query.commit(term := query.begin(), 0, query.write(term, 0, values(0)))
    struck: list[str] = []

    def strike(step: str) -> None:
        """Kill who coordinates the owner's transactions; the first time that a step comes next."""
        if len(struck) == batch or step != STEPS[len(struck)]:
            return
        struck.append(step)
        driver = exactly_once.driver_id(TOPIC)
        task = exactly_once.transactional_id(TOPIC, query.run, batch, 0, 0)
        victim = coordinator_of(cluster, driver if owner == DRIVER else task)
        cluster.kill(victim)
        cluster.until_led_by_another(STATE, victim, cluster.partitions(STATE))

    for batch in range(1, len(STEPS) + 1):
        query.run = f"run {batch}"
        write_batch(query, batch, strike, places)
        cluster.mend()
        for topic in (TOPIC, STATE):
            cluster.until_whole(topic)
    assert struck == list(STEPS)
    query.begin()
    assert query.read() == [value for each in range(len(STEPS) + 1) for value in values(each)]
