"""A pyarrow table to be sent: checks it at the call, then gives its rows in slices, as columns for the encoder.

table, key="carrier", value="json" -> Slice(first row, rows, key, value, timestamps, headers, partitions)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:  # the plain install has no pyarrow
    raise ImportError("pyarrow is needed for columns: pip install 'kbroker[arrow]'") from error

from kbroker.client.arrow import HEADERS
from kbroker.client.json_rows import json_rows
from protocol.records.buffers import BinaryColumn, Buffer, HeadersColumn

SLICE_BYTES = 1 << 20
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
        self.partitions = _numbers(table, "partition", partition, pa.int32())
        self.constant_partition = partition if isinstance(partition, int) else None
        self.timestamps = _times(table, timestamp)
        self.constant_time = int(time.time() * 1000) if timestamp is None else timestamp
        self.headers = _header_column(table, headers)
        self.table = table

    @property
    def has_only_null_keys(self) -> bool:
        """Whether no row's partition follows from a key."""
        return self.key is None or self.key.null_count == self.rows

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
        """Raise ValueError naming the first row whose key and value have more bytes than `limit`."""
        sizes = None
        for column in (self.key, self.value):
            if column is not None:
                lengths = pc.fill_null(pc.binary_length(column), 0)
                sizes = lengths if sizes is None else pc.add(sizes, lengths)
        if sizes is not None and self.rows and pc.max(sizes).as_py() > limit:
            row = pc.index(pc.greater(sizes, limit), True).as_py()
            raise ValueError(f"row {row} has {sizes[row].as_py()} bytes, max_request_size allows {limit}")

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
        key = cut(self.key)
        return Slice(
            first,
            rows,
            None if key is None else binary_column(key),
            None if value is None else binary_column(value),
            int(self.constant_time) if times is None else _fixed(times, 8),
            None if headers is None else _headers(headers),
            None if targets is None else _fixed(targets, 4),
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


def _fixed(array: pa.Array, width: int) -> memoryview:
    return memoryview(array.buffers()[1])[width * array.offset : width * (array.offset + len(array))]


def _headers(array: pa.Array) -> HeadersColumn:
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


def _numbers(table: pa.Table, role: str, given: Any, kind: pa.DataType) -> pa.ChunkedArray | None:
    """Return a column of whole numbers without nulls; None when none is named."""
    if given is None or type(given) is int:
        return None
    if not isinstance(given, str):
        raise TypeError(f"{role} is the name of a column or a whole number, not {given!r}")
    column = _named(table, role, given)
    if column.null_count:
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
            if pc.list_flatten(chunk).field(0).null_count:
                raise ValueError(f"headers: column {given!r} has a header without a key")
        return column
    pairs = [{"key": key, "value": value} for key, value in given]
    return pa.chunked_array([pa.repeat(pa.scalar(pairs, HEADERS), table.num_rows)]) if pairs else None
