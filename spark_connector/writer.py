"""`df.write` and `writeStream`: what Spark calls on the driver and in its tasks.

Rows are acknowledged before a task ends, so commit has nothing left to do but count, and abort cannot take anything
back: a task that is tried again writes its rows again (at least once). What writes once: exactly_once_writer.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kbroker.spark_connector.sink_layout import SinkLayout
from kbroker.spark_connector.worker_process import settle_in
from kbroker.spark_connector.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)
Messages = Sequence[WriterCommitMessage | None]


class BatchWriter(DataSourceArrowWriter):
    """Writes one frame."""

    def __init__(self, options: WriteOptions, layout: SinkLayout) -> None:
        self.options = options
        self.layout = layout

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Run on an executor: send one Spark partition's rows."""
        from kbroker.spark_connector.row_sender import send_rows

        return send_rows(self.options, self.layout, iterator)

    def commit(self, messages: Messages) -> None:
        """Hear that all rows are written."""
        settle_in()
        log.info("wrote %s", totals(messages))

    def abort(self, messages: Messages) -> None:
        """Hear that the write failed."""
        log.warning("the write failed; tasks that succeeded wrote %s, which stay", totals(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch of a streaming query."""

    def __init__(self, options: WriteOptions, layout: SinkLayout) -> None:
        self.options = options
        self.layout = layout

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Run on an executor: send one Spark partition's rows of one micro-batch."""
        from kbroker.spark_connector.row_sender import send_rows

        return send_rows(self.options, self.layout, iterator)

    def commit(self, messages: Messages, batchId: int) -> None:
        """Hear that all rows of the micro-batch are written."""
        settle_in()
        log.info("micro-batch %d: wrote %s", batchId, totals(messages))

    def abort(self, messages: Messages, batchId: int) -> None:
        """Hear that the micro-batch failed; Spark runs it again under the same id."""
        log.warning("micro-batch %d failed; tasks that succeeded wrote %s, which stay", batchId, totals(messages))


def totals(messages: Iterable[WriterCommitMessage | None]) -> str:
    """Return the counters of all tasks in words."""
    from kbroker.spark_connector.row_sender import RowsWritten

    written = [message for message in messages if isinstance(message, RowsWritten)]
    partitions = {place for each in written for place in each.offsets}
    rows, size = sum(each.rows for each in written), sum(each.bytes for each in written)
    return f"{rows} rows ({size} bytes) to {len(partitions)} partitions in {len(written)} tasks"
