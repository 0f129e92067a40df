"""Decoded columns as pyarrow.RecordBatch: the only module of the client that knows pyarrow.

Columns and types are those of Spark's Kafka source; no buffer is copied.
"""

from __future__ import annotations

from typing import Any

from protocol.records.buffers import BinaryColumn, Columns

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError("columns need pyarrow: pip install 'kbroker[arrow]'") from error

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
BASE_FIELDS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
]
SCHEMA = pa.schema(BASE_FIELDS)
SCHEMA_WITH_HEADERS = pa.schema([*BASE_FIELDS, pa.field("headers", pa.list_(HEADER_TYPE))])


def record_batch(columns: Columns, topic: str) -> Any:
    """Return the columns as a pyarrow.RecordBatch; with headers when they were decoded."""
    rows = columns.rows
    arrays = [
        _binary(columns.key, rows, pa.binary()),
        _binary(columns.value, rows, pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), rows),
        _fixed(pa.int32(), rows, columns.partition),
        _fixed(pa.int64(), rows, columns.offset),
        _fixed(pa.timestamp("us", tz="UTC"), rows, columns.timestamp),
        _fixed(pa.int32(), rows, columns.timestamp_type),
    ]
    if columns.headers is None:
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    headers = columns.headers
    keys = _binary(headers.keys, headers.count, pa.string())
    values = _binary(headers.values, headers.count, pa.binary())
    structs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE))
    offsets = pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(headers.offsets)])
    arrays.append(pa.ListArray.from_arrays(offsets, structs, type=pa.list_(HEADER_TYPE)))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA_WITH_HEADERS)


def _fixed(kind: Any, rows: int, data: Any) -> Any:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)])


def _binary(column: BinaryColumn, rows: int, kind: Any) -> Any:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, rows, buffers, column.null_count)
