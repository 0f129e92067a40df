"""Brokers are killed, paused and stopped under transactions: what is committed is read whole, what is aborted never."""

from __future__ import annotations

import contextlib
import random

import pytest

from tests.faults.cluster import BROKERS, FaultCluster
from tests.faults.conftest import MakeFaultCluster
from tests.faults.transactions import (
    ABORTED,
    COMMITTED,
    UNKNOWN,
    LiveReader,
    OurTransactionalWriter,
    TransactionalWriter,
    out_of_order,
    problems,
    read_committed,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PARTITIONS = 6
WRITERS = (TransactionalWriter, OurTransactionalWriter, OurTransactionalWriter)
ROUNDS = 4
STATE = "__transaction_state"
PROPERTIES = {
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


def harm(cluster: FaultCluster, draw: random.Random) -> str:
    """Break one broker and mend it; returns what was done."""
    broker_id = draw.choice(BROKERS)
    kind = draw.choice(("kill", "kill", "stop", "pause"))
    if kind == "kill":
        cluster.kill(broker_id)
    elif kind == "stop":
        cluster.brokers[broker_id].stop()
    else:
        cluster.pause(broker_id)
        cluster.expire(broker_id)
    for topic in ("t", STATE):
        cluster.until_led_by_another(topic, broker_id, cluster.partitions(topic))
    return f"{kind} {broker_id}"


@pytest.mark.parametrize("seed", [1, 2])
def test_committed_transactions_are_read_whole_and_aborted_ones_never(
    make_fault_cluster: MakeFaultCluster, seed: int
) -> None:
    cluster = make_fault_cluster(properties=PROPERTIES)
    cluster.create_topic("t", [1, 2, 3, 1, 2, 3])
    draw = random.Random(seed)
    done: list[str] = []
    with contextlib.ExitStack() as stack:
        reader = stack.enter_context(LiveReader(cluster.bootstrap, "t", PARTITIONS))
        writers = [
            stack.enter_context(kind(cluster.bootstrap, "t", PARTITIONS, f"writer-{number}", seed + number))
            for number, kind in enumerate(WRITERS)
        ]
        for writer in writers:
            writer.until_progress()
        for _ in range(ROUNDS):
            done.append(harm(cluster, draw))
            for writer in writers:
                writer.until_progress()
            cluster.mend()
            cluster.until_whole("t")
            cluster.until_whole(STATE)
        for writer in writers:
            writer.finish()
        read = read_committed(cluster.bootstrap, "t", PARTITIONS)
        reader.until_seen(read)
    outcomes = {transaction: outcome for writer in writers for transaction, outcome in writer.outcomes.items()}
    counts = {kind: list(outcomes.values()).count(kind) for kind in (COMMITTED, ABORTED, UNKNOWN)}
    print(done, counts, [writer.errors for writer in writers])
    assert problems(outcomes, read, PARTITIONS) == []
    assert out_of_order(read) == []
    assert counts[COMMITTED] > 10 * len(WRITERS)
    cluster.until_identical("t")
    cluster.until_identical(STATE)
