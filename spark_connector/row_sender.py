"""What runs on an executor when a frame is written: columns straight into record batches of an idempotent producer.

Spark's small Arrow batches are gathered before they are sent, so that each partition gets batches of a good size. Rows
of one task keep their order within a partition. All rows are acknowledged before the task ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from kbroker.spark_connector.producers import borrowed
from kbroker.spark_connector.sink_layout import SinkLayout
from kbroker.spark_connector.worker_process import settle_in
from kbroker.spark_connector.write_options import WriteOptions

if TYPE_CHECKING:
    from kbroker import Producer
    from kbroker.client.table_delivery import TableDelivery

GATHERED_BYTES = 16 << 20


@dataclass
class RowsWritten(WriterCommitMessage):
    """What one task wrote; the driver gets it in commit and abort."""

    rows: int = 0
    bytes: int = 0
    """Of record batches as sent, compressed where they were."""
    offsets: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """First and last offset in each partition; records of others may lie between."""

    def add(self, topic: str, partition: int, first: int, last: int) -> None:
        """Count what one table brought to one partition."""
        known = self.offsets.get((topic, partition), (first, last))
        self.offsets[topic, partition] = min(known[0], first), max(known[1], last)


class RowsNotWritten(RuntimeError):
    """Rows that the brokers did not take; the message names topic, partition and the broker's reason."""


def send_rows(options: WriteOptions, layout: SinkLayout, batches: Iterable[pa.RecordBatch]) -> RowsWritten:
    """Send all rows and wait until they are acknowledged; raises RowsNotWritten."""
    settle_in()
    with borrowed(options) as producer:
        return send_tables(producer, options, layout, gathered(batches, layout))


def send_tables(
    producer: Producer, options: WriteOptions, layout: SinkLayout, tables: Iterable[pa.Table]
) -> RowsWritten:
    """Send all rows with this producer and wait until they are acknowledged; raises RowsNotWritten."""
    written = RowsWritten()
    waiting: deque[TableDelivery] = deque()
    schemas = AvroSchemas(options)
    sent_before = producer.statistics()["byte-acknowledged-total"]
    for table in tables:
        for topic, rows in _by_topic(table, options, layout):
            records = _records(topic, rows, options, layout, schemas)
            waiting.append(_send(producer, topic, records, layout))
        while waiting and waiting[0].done():
            _take_result(waiting.popleft(), written)
    producer.flush()
    for delivery in waiting:
        _take_result(delivery, written)
    written.bytes = int(producer.statistics()["byte-acknowledged-total"] - sent_before)
    return written


def gathered(batches: Iterable[pa.RecordBatch], layout: SinkLayout) -> Iterator[pa.Table]:
    """Put Spark's batches together until they are large."""
    some: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        some.append(batch)
        size += batch.nbytes
        if size >= GATHERED_BYTES:
            yield pa.Table.from_batches(some).rename_columns(list(layout.names))
            some, size = [], 0
    if some:
        yield pa.Table.from_batches(some).rename_columns(list(layout.names))


def _by_topic(table: pa.Table, options: WriteOptions, layout: SinkLayout) -> Iterator[tuple[str, pa.Table]]:
    """Divide rows by topic."""
    if options.topic:
        yield options.topic, table
        return
    names = pc.unique(table[layout.topic]).to_pylist()
    if None in names:
        row = pc.index(pc.is_null(table[layout.topic]), True).as_py()
        raise RowsNotWritten(f'row {row}: the column "topic" is null, and there is no option "topic"')
    for name in names:
        yield name, table if len(names) == 1 else table.filter(pc.equal(table[layout.topic], name))


def _records(topic: str, rows: pa.Table, options: WriteOptions, layout: SinkLayout, schemas: AvroSchemas) -> pa.Table:
    """Return the columns as they are sent: key and value are bytes or text now."""
    from kbroker.client.arrow import json_column

    columns = {}
    if layout.key:
        key = rows[layout.key]
        columns["key"] = json_column(key) if options.key_format == "json" else _as_text(key)
    if options.value_format == "json":
        columns["value"] = json_column(rows[layout.value] if layout.value else rows.select(list(layout.fields)))
    elif options.value_format == "avro":
        columns["value"] = _avro(topic, rows, layout, schemas)
    else:
        columns["value"] = rows[layout.value]
    for name in (layout.headers, layout.partition):
        if name:
            columns[name] = rows[name]
    return pa.table(columns)


def _avro(topic: str, rows: pa.Table, layout: SinkLayout, schemas: AvroSchemas) -> pa.ChunkedArray:
    from kbroker.client.avro import AvroError
    from kbroker.spark_connector.avro_columns import encode_column

    values = rows[layout.value] if layout.value else rows.select(list(layout.fields)).to_struct_array()
    try:
        return encode_column(values, *schemas.of(topic))
    except AvroError as error:
        raise RowsNotWritten(f"topic {topic}: {error}") from error


class AvroSchemas:
    """What a task writes its topics' values with; the registry is asked once for each topic."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._known: dict[str, tuple[str, int | None]] = {}

    def of(self, topic: str) -> tuple[str, int | None]:
        """Return the schema, and its id where values are framed; raises RegistryError."""
        if topic not in self._known:
            self._known[topic] = self._find(topic)
        return self._known[topic]

    def _find(self, topic: str) -> tuple[str, int | None]:
        from kbroker.client.schema_registry import registry_at

        given, framed = self._options.value_schema, self._options.avro_is_framed
        if not self._options.registry or (given and not framed):
            return given, None
        registry, subject = registry_at(self._options.registry), f"{topic}-value"
        if given:
            return given, registry.id_of(subject, given)
        schema_id, newest = registry.latest(subject)
        return newest, schema_id if framed else None


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Bytes and text as they are, numbers and times as text."""
    kind = column.type
    fits = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return column if fits else column.cast(pa.string())


def _send(producer: Producer, topic: str, records: pa.Table, layout: SinkLayout) -> TableDelivery:
    try:
        return producer.send_arrow(
            topic,
            records,
            key="key" if layout.key else None,
            value="value",
            headers=layout.headers or None,
            partition=layout.partition or None,
        )
    except (ValueError, TypeError) as error:
        raise RowsNotWritten(f"topic {topic}: {error}") from error


def _take_result(delivery: TableDelivery, written: RowsWritten) -> None:
    from kbroker.client.table_delivery import TableNotWritten

    try:
        result = delivery.result()
    except TableNotWritten as error:
        raise RowsNotWritten(f"topic {delivery.topic}: {error}") from error
    written.rows += result.rows
    for partition, place in result.partitions.items():
        written.add(delivery.topic, partition, place.first, place.last)
