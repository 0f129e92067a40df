"""What runs on an executor in a write that happens once: a task's rows in a transaction of its own, left open.

The transactional id comes from the query, this run of it, the batch's number, the partition and the attempt: no attempt
fences another one that may have won. The driver ends the transaction; a task that fails aborts it itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from kbroker.client.plain_transactions import Owner
from kbroker.spark_connector.exactly_once import Term, transactional_id
from kbroker.spark_connector.ledger import LedgerError, Participant, is_written
from kbroker.spark_connector.producers import new_producer
from kbroker.spark_connector.row_sender import RowsWritten, gathered, send_tables
from kbroker.spark_connector.sink_layout import SinkLayout
from kbroker.spark_connector.worker_process import settle_in
from kbroker.spark_connector.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

QUERY_ID, BATCH_ID, RUN_ID = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
"""Local properties that Spark gives each task of a streaming query."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A task's place in Spark's work."""

    query: str
    run: str
    batch: int
    partition: int
    number: int


@dataclass
class TaskWritten(WriterCommitMessage):
    """What one task wrote, and how its transaction is ended."""

    term: Term
    attempt: Attempt
    rows: RowsWritten = field(default_factory=RowsWritten)
    owner: Owner | None = None
    """Of the open transaction; None where there was nothing to write."""
    was_written: bool = False
    """Nothing was sent, for the batch was decided before: `rows` only counts what it has now."""

    @property
    def participant(self) -> Participant | None:
        """What the ledger keeps of the task."""
        if self.owner is None:
            return None
        places = sorted((topic, partition, *span) for (topic, partition), span in self.rows.offsets.items())
        return Participant(self.owner, self.rows.rows, tuple(places))


def streaming_attempt() -> Attempt:
    """Return this task's place in its query; raises LedgerError where Spark does not tell."""
    context = TaskContext.get()
    assert context is not None, "this is no task"
    query, batch, run = (context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID, RUN_ID))
    if not query or not batch:
        raise LedgerError(f"Spark does not tell a task which query and batch it writes ({QUERY_ID}, {BATCH_ID})")
    return Attempt(query, run or query, int(batch), context.partitionId(), context.attemptNumber())


def batch_attempt(write: str) -> Attempt:
    """Return this task's place in a batch write."""
    context = TaskContext.get()
    assert context is not None, "this is no task"
    return Attempt(write, write, 0, context.partitionId(), context.attemptNumber())


def write_once(
    options: WriteOptions, layout: SinkLayout, term: Term, attempt: Attempt, batches: Iterable[pa.RecordBatch]
) -> TaskWritten:
    """Send all rows in a transaction that is left open; nothing where the batch was written before.

    Raises RowsNotWritten, OptionError, LedgerError: the transaction is aborted then.
    """
    settle_in()
    if is_written(term.entry, attempt.query, attempt.batch):
        taken = sum(each.num_rows for each in batches)  # upstream, a task is done when its rows are taken
        return TaskWritten(term, attempt, RowsWritten(taken), was_written=True)
    tables = (table for table in gathered(batches, layout) if table.num_rows)
    first = next(tables, None)
    if first is None:
        return TaskWritten(term, attempt)
    place = attempt.batch, attempt.partition, attempt.number
    name = transactional_id(term.name, attempt.run, *place, term.places)
    with new_producer(options, transactional_id=name, transaction_timeout_ms=term.timeout_ms) as producer:
        producer.begin()
        rows = send_tables(producer, options, layout, chain((first,), tables))
        handed = producer.hand_over()
    assert handed is not None, "rows were sent"
    return TaskWritten(term, attempt, rows, Owner(name, *handed))
