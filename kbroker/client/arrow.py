"""All that knows pyarrow: decoded columns as record batches, tables as columns to encode, rows as JSON.

Decoded columns are wrapped, not copied:

    key            binary                        partition      int32
    value          binary                        offset         int64
    topic          string                        timestamp      timestamp[us, UTC]
                                                 timestampType  int32: 0 CreateTime, 1 LogAppendTime
    headers        list<struct<key: string, value: binary>>, null where a record has none

Names and types are those of Spark's Kafka source (with Spark's `includeHeaders`).

A table to be sent is checked at the call; its rows then come in slices:

    table, key="carrier", value="json" -> Slice(first row, rows, key, value, timestamps, headers, partitions)

JSON is made column by column in pyarrow's compiled code, one object per row. Nulls, and floats that JSON has no number
for, become null; times are ISO 8601. Nested columns (lists, structs) go through Python's json, which is slower.
"""

from __future__ import annotations

import base64
import json
import time
from array import array as numbers
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:  # the plain install has no pyarrow
    raise ImportError("pyarrow is needed for columns: pip install 'kbroker[arrow]'") from error

from kbroker.client.errors import RowTooLarge
from kbroker.protocol.records.buffers import BinaryColumn, Buffer, Columns, HeadersColumn

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
        self._topics = _repeated(topic, 0)

    def wrap(self, columns: Columns) -> pa.RecordBatch:
        """Return the columns as one batch; its buffers are the columns' own."""
        rows = columns.rows
        if len(self._topics) < rows:
            self._topics = _repeated(self._topic, max(rows, 2 * len(self._topics)))
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


def joined_lines(texts: pa.Array) -> pa.Buffer:
    """Return binary values without nulls one behind the other, a line feed between them."""
    all_of_them = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts.cast(pa.binary()))
    return pc.binary_join(all_of_them, b"\n")[0].as_buffer()


def _repeated(text: str, rows: int) -> pa.Array:
    """Return the same text in each row. (`pa.scalar` loads pandas where that is installed: a third of a second.)"""
    data = text.encode()
    offsets = numbers("i", range(0, (rows + 1) * len(data), len(data)))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data * rows)], 0)


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
    empty = pc.equal(offsets.slice(0, rows), offsets.slice(1))  # no number beside them: that loads pandas, too
    return pa.ListArray.from_arrays(offsets, structs, type=HEADERS, mask=empty) if pc.any(empty).as_py() else lists


SLICE_BYTES = 1 << 20
NO_PARTITION = -1
JSON = "json"


@dataclass(frozen=True, slots=True)
class Slice:
    """Some rows, as ColumnEncoder.append takes them."""

    first: int
    rows: int
    key: BinaryColumn | None
    value: BinaryColumn | None
    timestamps: Buffer | int
    headers: HeadersColumn | None
    partitions: Buffer | None
    """-1: the row has none of its own."""
    largest: int
    """Bytes of key and value of the largest row."""


class TableRows:
    """Raises TypeError or ValueError for what cannot be sent, before anything is."""

    def __init__(
        self,
        table: pa.Table | pa.RecordBatch,
        key: str | None,
        value: str | None,
        headers: str | Sequence[tuple[str, bytes | None]] | None,
        partition: str | int | None,
        timestamp: str | int | None,
    ) -> None:
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not isinstance(table, pa.Table):
            raise TypeError(f"a pyarrow Table or RecordBatch is wanted, not {type(table).__name__}")
        self.rows: int = table.num_rows
        self.key = None if key is None else _column(table, "key", key)
        self.json: pa.Table | None = None
        self.value: pa.ChunkedArray | None = None
        if value == JSON:
            extra = [name for name in (headers, partition, timestamp) if isinstance(name, str)]
            self.json = table.drop_columns(extra)
        elif value is not None:
            self.value = _column(table, "value", value)
        self.partitions = _numbers(table, "partition", partition, pa.int32(), may_be_null=True)
        if self.partitions is not None and self.partitions.null_count == self.rows:
            self.partitions = None
        self.constant_partition = partition if isinstance(partition, int) else None
        self.timestamps = _times(table, timestamp)
        self.constant_time = int(time.time() * 1000) if timestamp is None else timestamp
        self.headers = _header_column(table, headers)
        self.table = table

    @property
    def has_only_null_keys(self) -> bool:
        """Whether no row's partition follows from a key."""
        return self.key is None or self.key.null_count == self.rows

    @property
    def some_lack_partitions(self) -> bool:
        """Whether some rows have a partition of their own and others none."""
        return self.partitions is not None and self.partitions.null_count > 0

    def check_partitions(self, count: int) -> None:
        """Raise ValueError for a partition that the topic does not have."""
        if self.constant_partition is not None:
            found = [self.constant_partition]
        elif self.partitions is not None and self.rows:
            ends = pc.min_max(self.partitions).as_py()
            found = [ends["min"], ends["max"]]
        else:
            return
        for partition in found:
            if not 0 <= partition < count:
                raise ValueError(f"there is no partition {partition}, the topic has {count}")

    def check_sizes(self, limit: int) -> None:
        """Raise RowTooLarge for the first row whose key and value have more bytes than `limit`."""
        sizes = None
        for column in (self.key, self.value):
            if column is not None:
                lengths = pc.binary_length(column)
                if lengths.null_count:
                    lengths = pc.fill_null(lengths, 0)
                sizes = lengths if sizes is None else pc.add(sizes, lengths)
        if sizes is not None and self.rows and pc.max(sizes).as_py() > limit:
            row = pc.index(pc.greater(sizes, limit), True).as_py()
            raise RowTooLarge(row, sizes[row].as_py(), limit)

    def slices(self, slice_bytes: int = SLICE_BYTES) -> Iterator[Slice]:
        """Give all rows in order, about so many bytes at a time."""
        table = self.table
        per_row = max(1, table.nbytes // max(1, self.rows))
        step = min(65_536, max(64, slice_bytes // per_row & ~7))
        for first in range(0, self.rows, step):
            yield self._slice(first, min(step, self.rows - first))

    def _slice(self, first: int, rows: int) -> Slice:
        def cut(column: pa.ChunkedArray | None) -> pa.Array | None:
            return None if column is None else _one(column.slice(first, rows))

        value = cut(self.value)
        if self.json is not None:
            value = json_rows(self.json.slice(first, rows).combine_chunks().to_batches()[0])
        times, targets, headers = cut(self.timestamps), cut(self.partitions), cut(self.headers)
        if targets is not None and targets.null_count:
            targets = pc.fill_null(targets, NO_PARTITION)
        key = cut(self.key)
        return Slice(
            first,
            rows,
            None if key is None else binary_column(key),
            None if value is None else binary_column(value),
            int(self.constant_time) if times is None else _fixed_buffer(times, 8),
            None if headers is None else _headers_column(headers),
            None if targets is None else _fixed_buffer(targets, 4),
            0 if self.json is None or value is None else pc.max(pc.binary_length(value)).as_py(),
        )

    @staticmethod
    def row_bytes(column: BinaryColumn | None, rows: int) -> list[bytes | None]:
        """Return the rows' values as objects, for a partitioner written in Python."""
        if column is None:
            return [None] * rows
        buffers = [None if b is None else pa.py_buffer(b) for b in (column.validity, column.offsets, column.data)]
        values: list[bytes | None] = pa.Array.from_buffers(pa.binary(), rows, buffers, column.null_count).to_pylist()
        return values


def binary_column(array: pa.Array) -> BinaryColumn:
    """Return a binary or string array's buffers, without a copy where its null bits start on a byte."""
    if array.null_count and array.offset % 8:
        array = pa.concat_arrays([array, array.slice(0, 0)])
    validity, offsets, data = array.buffers()
    start, rows = array.offset, len(array)
    bits = None
    if array.null_count:
        bits = memoryview(validity)[start // 8 : (start + rows + 7) // 8]
    places = memoryview(offsets)[4 * start : 4 * (start + rows + 1)] if offsets is not None else bytes(4)
    return BinaryColumn(places, b"" if data is None else memoryview(data), bits, array.null_count)


def _one(column: pa.ChunkedArray) -> pa.Array:
    """Return a column's slice as one array."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _fixed_buffer(array: pa.Array, width: int) -> memoryview:
    return memoryview(array.buffers()[1])[width * array.offset : width * (array.offset + len(array))]


def _headers_column(array: pa.Array) -> HeadersColumn:
    array = pa.concat_arrays([array, array.slice(0, 0)])  # starts at 0 then
    places = memoryview(array.offsets.buffers()[1])[: 4 * (len(array) + 1)]
    structs = array.values
    keys, values = structs.field(0), structs.field(1)
    return HeadersColumn(places, binary_column(keys), binary_column(values), len(structs))


def _named(table: pa.Table, role: str, name: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise ValueError(f"{role}: the table has no column {name!r}, only {', '.join(table.column_names)}")
    return table.column(name)


def _column(table: pa.Table, role: str, name: Any) -> pa.ChunkedArray:
    """Return a column of bytes or text with 32-bit offsets."""
    if not isinstance(name, str):
        raise TypeError(f"{role} is the name of a column, not {name!r}")
    column = _named(table, role, name)
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    if pa.types.is_null(kind) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return column.cast(pa.binary())
    if not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
        raise TypeError(f"{role}: column {name!r} is {kind}, binary or string is wanted; cast it first")
    return column


def _numbers(
    table: pa.Table, role: str, given: Any, kind: pa.DataType, *, may_be_null: bool = False
) -> pa.ChunkedArray | None:
    """Return a column of whole numbers; None when none is named."""
    if given is None or type(given) is int:
        return None
    if not isinstance(given, str):
        raise TypeError(f"{role} is the name of a column or a whole number, not {given!r}")
    column = _named(table, role, given)
    if column.null_count and not may_be_null:
        raise ValueError(f"{role}: column {given!r} has nulls")
    if not pa.types.is_integer(column.type):
        raise TypeError(f"{role}: column {given!r} is {column.type}, whole numbers are wanted")
    return column.cast(kind)


def _times(table: pa.Table, given: Any) -> pa.ChunkedArray | None:
    """Return a column of milliseconds."""
    if isinstance(given, str) and pa.types.is_timestamp(_named(table, "timestamp", given).type):
        column = table.column(given)
        if column.null_count:
            raise ValueError(f"timestamp: column {given!r} has nulls")
        return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return _numbers(table, "timestamp", given, pa.int64())


def _header_column(table: pa.Table, given: Any) -> pa.ChunkedArray | None:
    """Return list<struct<key, value>>: a column, or the same headers for each row."""
    if given is None:
        return None
    if isinstance(given, str):
        column = pc.fill_null(_named(table, "headers", given).cast(HEADERS), pa.scalar([], HEADERS))
        column.validate(full=True)
        for chunk in column.chunks:
            pairs = pc.list_flatten(chunk)
            if pairs.null_count or pairs.field(0).null_count:
                raise ValueError(f"headers: column {given!r} has a header without a key")
        return column
    pairs = [{"key": key, "value": value} for key, value in given]
    return pa.chunked_array([pa.repeat(pa.scalar(pairs, HEADERS), table.num_rows)]) if pairs else None


NEEDS_ESCAPE = r'["\\\x00-\x1f]'
SHORT_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def json_rows(batch: pa.RecordBatch) -> pa.Array:
    """Return one string per row."""
    if batch.num_columns == 0:
        return pa.repeat(pa.scalar("{}"), batch.num_rows)
    parts: list[Any] = []
    opening = "{"
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        parts += [pa.scalar(f"{opening}{json.dumps(name, ensure_ascii=False)}:"), _texts(column)]
        opening = ","
    return pc.binary_join_element_wise(*parts, pa.scalar("}"), pa.scalar(""))


def json_column(rows: pa.Table | pa.ChunkedArray) -> pa.ChunkedArray:
    """Return JSON for each row of a table (an object), or for each value of a column; null where a struct is null."""
    chunks = []
    if isinstance(rows, pa.Table):
        chunks = [json_rows(batch) for batch in rows.to_batches()]
    for chunk in rows.chunks if isinstance(rows, pa.ChunkedArray) else ():
        if pa.types.is_struct(chunk.type):
            texts = json_rows(pa.RecordBatch.from_arrays(chunk.flatten(), names=[f.name for f in chunk.type]))
        else:
            texts = _texts(chunk)
        chunks.append(pc.if_else(chunk.is_valid(), texts, pa.scalar(None, pa.string())) if chunk.null_count else texts)
    return pa.chunked_array(chunks, pa.string())


def _texts(column: pa.Array) -> pa.Array:
    """Return each value as it stands in JSON."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    types = pa.types
    if types.is_null(kind):
        return pa.repeat(pa.scalar("null"), len(column))
    if types.is_floating(kind):
        texts = pc.if_else(pc.is_finite(column), column.cast(pa.string()), pa.scalar(None, pa.string()))
    elif types.is_integer(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        texts = column.cast(pa.string())
    elif types.is_string(kind) or types.is_large_string(kind):
        texts = _quoted(_escaped(column.cast(pa.string())))
    elif types.is_timestamp(kind):
        texts = _quoted(pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1))
    elif types.is_date(kind) or types.is_time(kind):
        texts = _quoted(column.cast(pa.string()))
    elif types.is_duration(kind):
        texts = column.cast(pa.int64()).cast(pa.string())
    else:
        texts = pa.array([json.dumps(value, default=_plain) for value in column.to_pylist()], pa.string())
    return pc.fill_null(texts, "null") if texts.null_count else texts


def plain_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return each value as text, as it stands in JSON but without quotes; text and bytes stay what they are."""
    types = pa.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if types.is_timestamp(kind):
        return pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)
    if types.is_duration(kind):
        return column.cast(pa.int64()).cast(pa.string())
    is_number_or_time = types.is_primitive(kind) or types.is_decimal(kind)
    return column.cast(pa.string()) if is_number_or_time else column


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar('"'), texts, pa.scalar('"'), pa.scalar(""))


def _escaped(texts: pa.Array) -> pa.Array:
    """Escape what JSON wants escaped; mostly there is nothing."""
    if not pc.any(pc.match_substring_regex(texts, NEEDS_ESCAPE)).as_py():
        return texts
    texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    for code in range(32):
        character = chr(code)
        if pc.any(pc.match_substring(texts, character)).as_py():
            texts = pc.replace_substring(texts, character, SHORT_ESCAPES.get(character, f"\\u{code:04x}"))
    return texts


def _plain(value: Any) -> Any:
    """Say what stands for a value inside a nested one that JSON does not know."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
