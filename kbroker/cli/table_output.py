"""Records as rows of a file: what `topic consume --to` (or `--format csv|parquet`) writes.

    whole records   the columns of the client's batches: key, value, topic, partition, offset, timestamp, timestampType,
                    headers; in CSV keys and values are text and headers JSON
    --unpack        values are JSON objects: their fields are the columns, found in the first rows that are written; in
                    NDJSON each value stands as it is

Rows are collected, and written when they are many (a row group of Parquet) or when `flush` asks for them. What cannot
be written raises CommandFailed with the record's place, after the rows before it are written.
"""

import json
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from kbroker.cli.errors import CommandFailed
from kbroker.cli.file_formats import FileFormat
from kbroker.client.arrow import SCHEMA_WITH_HEADERS, plain_texts
from kbroker.client.record_objects import readable
from kbroker.client.typed_values import TextColumn, TypedValues

if TYPE_CHECKING:
    from kbroker import Consumer, TopicPartition

BATCH_ROWS = 100_000
GROUP_BYTES = 32 << 20
YEAR_32768_US = 971_890_963_200_000_000
"""Arrow counts the years of a time that is written out in 16 bits."""
MILLISECONDS_END_US = (2**63 - 1) // 1000 * 1000 + 1
"""Beyond are times that are too far away for microseconds; the client gives the largest of these for them."""
TIMES_END_US: Mapping[str, int] = {"csv": YEAR_32768_US, "parquet": MILLISECONDS_END_US}


class BatchReader:
    """Reads record batches."""

    def __init__(self, consumer: "Consumer", timeout: float) -> None:
        self._consumer = consumer
        self._timeout = timeout

    def read(self, limit: int | None, ends: "Mapping[TopicPartition, int] | None") -> Any:
        """Return some records, at most `limit` and none behind its partition's end; nothing after the timeout."""
        rows = BATCH_ROWS if limit is None else min(limit, BATCH_ROWS)
        batch = next(self._consumer.batches(rows, self._timeout), None)
        if batch is None:
            return ()
        if ends is None:
            return batch
        end = ends[batch["topic"][0].as_py(), batch["partition"][0].as_py()]  # type: ignore[index]
        return batch.slice(0, pc.sum(pc.less(batch["offset"], end)).as_py() or 0)


def chosen_rows(batch: pa.RecordBatch, wanted: Sequence[bool]) -> pa.RecordBatch:
    """Return the rows that are wanted."""
    return batch.filter(pa.array(wanted, pa.bool_()))


class TableSink:
    """Writes to a stream that its owner closes."""

    def __init__(self, stream: IO[bytes], kind: FileFormat, *, unpack: bool) -> None:
        self._stream = stream
        self._kind = kind
        self._unpack = unpack
        self._values = TypedValues("json") if unpack and kind != "ndjson" else None
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._writer: Any = None

    @property
    def may_flush(self) -> bool:
        """Whether what is flushed is there for others before the end."""
        return self._kind != "parquet"

    def write(self, batch: pa.RecordBatch) -> None:
        """Take some rows."""
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= GROUP_BYTES:
            self._write_waiting()

    def flush(self) -> None:
        """Write what was taken, where that is of use before the end."""
        if self.may_flush:
            self._write_waiting()
            self._stream.flush()

    def close(self) -> None:
        """Write the rest, and what belongs at the end."""
        try:
            self._write_waiting()
        finally:
            if self._writer is None and self._kind != "ndjson":
                self._open(self._empty_schema())
            if self._writer is not None:
                self._writer.close()
            self._stream.flush()

    def _empty_schema(self) -> pa.Schema:
        empty = pa.RecordBatch.from_pylist([], SCHEMA_WITH_HEADERS)
        return pa.schema([]) if self._unpack else self._prepared(empty)[0].schema

    def _open(self, schema: pa.Schema) -> None:
        if self._kind == "parquet":
            self._writer = pa.parquet.ParquetWriter(self._stream, schema, compression="zstd")
        else:
            self._writer = pa.csv.CSVWriter(self._stream, schema)

    def _write_waiting(self) -> None:
        if not self._waiting:
            return
        (whole,) = pa.Table.from_batches(self._waiting).combine_chunks().to_batches()
        self._waiting, self._bytes = [], 0
        rows, malformed = self._prepared(whole)
        if malformed:
            row = min(malformed)
            self._write_rows(rows[:row])
            place = f"{whole['topic'][row]}-{whole['partition'][row]} at offset {whole['offset'][row]}"
            raise CommandFailed(f"{place}: {malformed[row]}")
        self._write_rows(rows)

    def _write_rows(self, rows: Any) -> None:
        if self._kind == "ndjson":
            self._stream.write(b"".join([line + b"\n" for line in rows]))
            return
        if self._writer is None:
            self._open(rows.schema)
        self._writer.write_batch(rows)

    def _prepared(self, batch: pa.RecordBatch) -> tuple[Any, dict[int, str]]:
        """Return the rows as they are written, and what is wrong with some of them."""
        if self._unpack and self._kind == "ndjson":
            return lines_of(batch["value"].to_pylist())
        if self._values is not None:
            return self._unpacked(batch, self._values)
        late = self._late_times(batch)
        if late:
            # What is before it is written; of this one nothing can be.
            batch = batch[: min(late)]
        rows, malformed = (batch, {}) if self._kind == "parquet" else _text_columns(batch)
        return rows, malformed or late

    def _late_times(self, batch: pa.RecordBatch) -> dict[int, str]:
        """Return the first row whose time the file cannot hold."""
        times, end = batch["timestamp"].cast(pa.int64()), TIMES_END_US[self._kind]
        row = pc.index(pc.or_(pc.greater_equal(times, end), pc.less_equal(times, -end)), True).as_py()
        return {row: f"the time is too far away: {self._kind} cannot hold it, NDJSON can"} if row >= 0 else {}

    def _unpacked(self, batch: pa.RecordBatch, values: TypedValues) -> tuple[pa.RecordBatch, dict[int, str]]:
        try:
            typed, malformed = values.parse(batch, "")
        except ValueError as error:
            reason = str(error).removesuffix(": give a value_schema")
            raise CommandFailed(f"--unpack: {reason}; NDJSON takes objects of any kind") from None
        structs = typed["value"]
        fields = pa.RecordBatch.from_arrays(structs.flatten(), schema=pa.schema(list(structs.type)))
        if self._kind == "csv":
            fields = _flat(fields)
        reasons = {row: f"the value is {reason} (NDJSON takes any object)" for row, reason in malformed.items()}
        return fields, reasons


def lines_of(values: list[bytes | None]) -> tuple[list[bytes], dict[int, str]]:
    """Return each JSON object as one line, null where a value is null, and the rows that are no objects."""
    lines: list[bytes] = []
    malformed: dict[int, str] = {}
    for row, value in enumerate(values):
        try:
            found = None if value is None else json.loads(value)
        except ValueError as error:
            malformed[row] = f"the value is not JSON: {error}"
        else:
            if value is not None and not isinstance(found, dict):
                malformed[row] = "the value is no JSON object"
        if row in malformed:
            break
        if value is not None and b"\n" in value:
            value = json.dumps(found, ensure_ascii=False).encode()
        lines.append(b"null" if value is None else value.strip())
    return lines, malformed


def _text_columns(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Make text of keys and values; bytes that are none have no place in CSV."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    malformed: dict[int, str] = {}
    for name in ("key", "value"):
        columns[name], found = TextColumn().parse(batch[name])
        malformed.update(
            (row, f"the {name} is {reason}: CSV cannot hold it, Parquet and NDJSON can")
            for row, reason in found.items()
        )
    columns["headers"] = _header_texts(batch["headers"])
    return _flat(pa.RecordBatch.from_pydict(columns)), malformed


def _header_texts(headers: pa.Array) -> pa.Array:
    if headers.null_count == len(headers):
        return pa.nulls(len(headers), pa.string())
    texts = [
        None
        if each is None
        else json.dumps([[item["key"], readable(item["value"])] for item in each], ensure_ascii=False)
        for each in headers.to_pylist()
    ]
    return pa.array(texts, pa.string())


def _flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Make a batch of numbers and texts alone: times are ISO 8601, what is nested is JSON."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_nested(column.type):
            texts = [
                None if value is None else json.dumps(value, ensure_ascii=False, default=str)
                for value in column.to_pylist()
            ]
            column = pa.array(texts, pa.string())
        elif pa.types.is_timestamp(column.type):
            column = plain_texts(column)
        columns[name] = column
    return pa.RecordBatch.from_pydict(columns)
