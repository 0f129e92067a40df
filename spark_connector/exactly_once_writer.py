"""`exactlyOnce=true`: what Spark calls on the driver and in its tasks.

Spark makes a stream's writer anew for each batch, pickles it for the tasks, and makes another one to call commit or
abort. So the driver takes over when a writer is pickled, and what that yields comes back with the tasks' messages. A
batch write's writer is pickled once, and the pickled one is told to commit.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kbroker.spark_connector.exactly_once import Term, driver_of
from kbroker.spark_connector.ledger import Participant, check_rows
from kbroker.spark_connector.sink_layout import SinkLayout
from kbroker.spark_connector.worker_process import settle_in
from kbroker.spark_connector.write_options import WriteOptions
from kbroker.spark_connector.writer import Messages, totals

if TYPE_CHECKING:
    import pyarrow as pa

    from kbroker.spark_connector.transactional_tasks import TaskWritten

log = logging.getLogger(__name__)


class ExactlyOnceStreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch of a streaming query, once."""

    def __init__(self, options: WriteOptions, layout: SinkLayout, term: Term | None = None) -> None:
        self.options = options
        self.layout = layout
        self._term = term

    def __reduce__(self) -> tuple[Any, ...]:
        if self._term is None:
            with driver_of(self.options, self.options.name, streaming=True) as driver:
                self._term = driver.begin()
        return type(self), (self.options, self.layout, self._term)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Run on an executor: send one Spark partition's rows of one micro-batch, in a transaction."""
        from kbroker.spark_connector.transactional_tasks import streaming_attempt, write_once

        assert self._term is not None
        return write_once(self.options, self.layout, self._term, streaming_attempt(), iterator)

    def commit(self, messages: Messages, batchId: int) -> None:
        """Decide the micro-batch and commit its transactions."""
        settle_in()
        done = tasks_of(messages)
        if done and done[0].was_written:
            entry = done[0].term.entry
            assert entry is not None
            check_rows(entry, sum(each.rows.rows for each in done), self.options.lost_batch)
            log.info("micro-batch %d was written before", batchId)
            return
        commit_tasks(self.options, done, streaming=True)
        log.info("micro-batch %d: wrote %s", batchId, totals([each.rows for each in done]))

    def abort(self, messages: Messages, batchId: int) -> None:
        """Abort the micro-batch's transactions, unless it was decided; Spark runs it again under the same id."""
        abort_tasks(self.options, tasks_of(messages), streaming=True)
        log.warning("micro-batch %d failed", batchId)


class ExactlyOnceBatchWriter(DataSourceArrowWriter):
    """Writes one frame: all of it or nothing."""

    def __init__(self, options: WriteOptions, layout: SinkLayout, term: Term | None = None, write: str = "") -> None:
        self.options = options
        self.layout = layout
        self._term = term
        self._write = write

    def __reduce__(self) -> tuple[Any, ...]:
        if self._term is None:
            self._write = str(uuid.uuid4())
            with driver_of(self.options, self.options.name or self._write, streaming=False) as driver:
                self._term = driver.begin()
        return type(self), (self.options, self.layout, self._term, self._write)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Run on an executor: send one Spark partition's rows, in a transaction."""
        from kbroker.spark_connector.transactional_tasks import batch_attempt, write_once

        assert self._term is not None
        return write_once(self.options, self.layout, self._term, batch_attempt(self._write), iterator)

    def commit(self, messages: Messages) -> None:
        """Decide the write and commit its transactions."""
        settle_in()
        done = tasks_of(messages)
        commit_tasks(self.options, done, streaming=False)
        log.info("wrote %s", totals([each.rows for each in done]))

    def abort(self, messages: Messages) -> None:
        """Abort the write's transactions, unless it was decided."""
        abort_tasks(self.options, tasks_of(messages), streaming=False)
        log.warning("the write failed")


def commit_tasks(options: WriteOptions, done: list[TaskWritten], *, streaming: bool) -> None:
    """Decide what the tasks have written; raises LedgerError, BrokerError."""
    winners = participants_of(done)
    if not winners:
        return
    term, attempt = done[0].term, done[0].attempt
    with driver_of(options, term.name, streaming=streaming) as driver:
        driver.decide(term, attempt.query, attempt.batch, winners)
        driver.abort_losers(attempt.run)


def abort_tasks(options: WriteOptions, done: list[TaskWritten], *, streaming: bool) -> None:
    """Abort what the tasks have left open, as far as it is known."""
    if not done:
        log.warning("transactions of tasks that were killed are aborted when the query starts again, or by the brokers")
        return
    term, attempt = done[0].term, done[0].attempt
    with driver_of(options, term.name, streaming=streaming) as driver:
        if driver.abort(term, attempt.query, attempt.batch, participants_of(done)):
            driver.abort_losers(attempt.run)


def tasks_of(messages: Messages) -> list[TaskWritten]:
    """Return what the tasks told that came to their end."""
    from kbroker.spark_connector.transactional_tasks import TaskWritten

    return [message for message in messages if isinstance(message, TaskWritten)]


def participants_of(done: list[TaskWritten]) -> list[Participant]:
    """Return the transactions of tasks that had rows."""
    return [each.participant for each in done if each.participant is not None]
