"""Drivers that SIGKILL ends: `python -m tests.spark_connector.killed_driver BOOTSTRAP TOPIC MOMENT…`

Each driver is a process of its own, forked from this one. It finishes the batch of the driver before, as a query does
that starts again, and begins the next. It is killed around a request that changes something: MOMENT is `before` it is
sent, or `after` that and before its answer is read. There is one driver for each such request. Then there is one for
each that finishes what was left decided. Prints what each was killed at.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kbroker.client.plain_cluster import PlainCluster
from kbroker.client.plain_connection import PlainConnection
from kbroker.client.plain_transactions import PlainTransactions
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from kbroker.spark_connector.exactly_once import Term, transactional_id
from kbroker.spark_connector.ledger import Participant, is_written
from tests.spark_connector.test_exactly_once import Query

CHANGING = (InitProducerIdRequest, AddPartitionsToTxnRequest, ProduceRequest, EndTxnRequest)
TASKS = 3
AFTER = "after"


@dataclass
class Death:
    """Around which of a driver's requests it dies."""

    request: int
    """Counts down."""
    moment: str
    kinds: tuple[type, ...] = CHANGING
    is_due: bool = False
    """Whether requests count now."""

    def strike(self, moment: str, message: Any) -> None:
        """Die, if this is the request and the moment."""
        if self.is_due and self.request == 0 and moment == self.moment:
            print(self.moment, type(message).__name__, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


def mortal(death: Death) -> None:
    """Have this process killed at its death."""
    whole = PlainConnection.send

    def send(self: PlainConnection, *messages: Any, version: int | None = None) -> None:
        for message in messages:  # those that go out together may be cut off behind any of them
            counts = isinstance(message, death.kinds)
            death.request -= counts and death.is_due
            if counts:
                death.strike("before", message)
            whole(self, message, version=version)
            if counts:
                death.strike(AFTER, message)

    PlainConnection.send = send  # type: ignore[method-assign]


def write_tasks(query: Query, term: Term, batch: int) -> list[Participant]:
    """What the tasks of a batch leave open, a row each."""
    done = []
    with PlainCluster(query.bootstrap) as cluster:
        cluster.partitions([query.topic])
        transactions = PlainTransactions(cluster)
        for task in range(TASKS):
            name = transactional_id(query.topic, query.run, batch, task, 0, term.places)
            owner = transactions.take(name, term.timeout_ms)
            transactions.write(owner, (query.topic, 0), b"", b"%03d-%d" % (batch, task), 0)
            done.append(Participant(owner, 1))
    return done


def write_batch(query: Query, batch: int, death: Death) -> None:
    """As Spark does it, before its own commit log."""
    term = query.begin()
    if not is_written(term.entry, "query", batch):
        was_due, death.is_due = death.is_due, False
        done = write_tasks(query, term, batch)
        death.is_due = was_due
        query.commit(term, batch, done)


def comes_to_its_end(query: Query, batch: int, death: Death, *, in_finishing: bool = False) -> bool:
    """Whether a driver finishes the batch before this one and writes this one, without being killed in one of both."""
    child = os.fork()
    if not child:
        try:
            query.run = f"run {os.getpid()}"
            mortal(death)
            death.is_due = in_finishing
            if batch:
                write_batch(query, batch - 1, death)
            death.is_due = not in_finishing
            write_batch(query, batch, death)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert was_killed or not status, "a driver failed that was not to be killed"
    return not was_killed


def kill_all(query: Query, moments: list[str]) -> int:
    """Kill a driver at each request, and let one come to its end now and then; returns how many batches there are."""
    batch = 0
    for moment in moments:
        request = 1
        while not comes_to_its_end(query, batch, Death(request, moment)):
            request, batch = request + 1, batch + 1
        batch += 1
    request = 1
    while True:
        decision = Death(1, AFTER, (EndTxnRequest,))
        assert not comes_to_its_end(query, batch, decision)
        batch += 1
        if comes_to_its_end(query, batch, Death(request, AFTER), in_finishing=True):
            return batch + 1
        request, batch = request + 1, batch + 1


if __name__ == "__main__":
    pa.scalar("")  # loads what takes long, before it is forked
    print(kill_all(Query(*sys.argv[1:3]), sys.argv[3:]))
