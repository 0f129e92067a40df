"""Decoded columns as pyarrow record batches: the buffers are wrapped, not copied.

    key            binary                        partition      int32
    value          binary                        offset         int64
    topic          string                        timestamp      timestamp[us, UTC]
                                                 timestampType  int32: 0 CreateTime, 1 LogAppendTime
    headers        list<struct<key: string, value: binary>>, null where a record has none

Names and types are those of Spark's Kafka source (with Spark's `includeHeaders`).
"""

from __future__ import annotations

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:  # the plain install has no pyarrow
    raise ImportError("pyarrow is needed for columns: pip install 'kbroker[arrow]'") from error

from protocol.records.buffers import BinaryColumn, Columns, HeadersColumn

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))
FIELDS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
]
SCHEMA = pa.schema(FIELDS)
SCHEMA_WITH_HEADERS = pa.schema([*FIELDS, pa.field("headers", HEADERS)])


class RecordBatches:
    """Makes record batches of one topic's columns; keeps the constant topic column between them."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._topics = pa.nulls(0, pa.string())

    def wrap(self, columns: Columns) -> pa.RecordBatch:
        """Return the columns as one batch; its buffers are the columns' own."""
        rows = columns.rows
        if len(self._topics) < rows:
            self._topics = pa.repeat(pa.scalar(self._topic, pa.string()), rows)
        arrays = [
            _binary(columns.key, rows, pa.binary()),
            _binary(columns.value, rows, pa.binary()),
            self._topics.slice(0, rows),
            _fixed(columns.partition, rows, pa.int32()),
            _fixed(columns.offset, rows, pa.int64()),
            _fixed(columns.timestamp, rows, pa.timestamp("us", tz="UTC")),
            _fixed(columns.timestamp_type, rows, pa.int32()),
        ]
        if columns.headers is None:
            return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
        return pa.RecordBatch.from_arrays([*arrays, _headers(columns.headers, rows)], schema=SCHEMA_WITH_HEADERS)


def _fixed(buffer: memoryview, rows: int, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(buffer)], 0)


def _binary(column: BinaryColumn, rows: int, kind: pa.DataType) -> pa.Array:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, rows, buffers, column.null_count)


def _headers(column: HeadersColumn, rows: int) -> pa.Array:
    children = [_binary(column.keys, column.count, pa.string()), _binary(column.values, column.count, pa.binary())]
    structs = pa.StructArray.from_arrays(children, fields=list(HEADER))
    offsets = pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(column.offsets)], 0)
    lists = pa.ListArray.from_arrays(offsets, structs, type=HEADERS)
    # Spark's source says null, not an empty list, where a record has no headers.
    empty = pc.equal(lists.value_lengths(), 0)
    return pa.ListArray.from_arrays(offsets, structs, type=HEADERS, mask=empty) if pc.any(empty).as_py() else lists
