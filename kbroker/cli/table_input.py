"""Files of rows as records, piece by piece: what `topic produce --from` reads.

    .parquet                  rows of columns
    .csv                      a heading, then rows; a column's type is that of its first values (8 MB), or --type's
    .ndjson .jsonl .json      one JSON object in each line, which is sent as it stands

CSV and NDJSON may be compressed (.gz .bz2 .lz4 .zst), and come from standard input ("-"). Of each piece three columns
are made: `key` (null without --key), `value` (the row as JSON, or one column) and `timestamp` (milliseconds, null
without --timestamp).
What cannot be read raises CommandFailed with the file and the row or line, counted from 1.
"""

import base64
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from kbroker.cli.errors import CommandFailed
from kbroker.cli.file_formats import COMPRESSION_BY_ENDING, FileFormat
from kbroker.client.arrow import joined_lines, json_column, plain_texts

PIECE_BYTES = 8 << 20
PIECE_ROWS = 65_536
STANDARD_INPUT = "-"
ROLES = ("key", "value", "timestamp")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
EXACT_INTEGERS = 2.0**53
"""From here on a double does not hold each of them."""
EXACT_DIGITS = 15
"""So many a double holds, whatever they are."""
OBJECT_LINE = r"^\s*\{.*\}\s*$"
MISFIT = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to ([^:]+): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows: a table of the columns key, value and timestamp; `first` is the number of its first row or line."""

    table: pa.Table
    first: int
    done: int
    """So much of `TableInput.total` is read."""


@dataclass(frozen=True, slots=True)
class TableInput:
    """A file and what is wanted of it; `columns`: key, value, timestamp -> name of a column."""

    path: Path
    format: FileFormat
    columns: Mapping[str, str]
    types: Mapping[str, Any] = field(default_factory=dict)
    """Of CSV: column -> pyarrow type."""

    @property
    def name(self) -> str:
        """What the file is called in messages."""
        return "standard input" if str(self.path) == STANDARD_INPUT else str(self.path)

    @property
    def row_word(self) -> str:
        """What its rows are called."""
        return "line" if self.format == "ndjson" else "row"

    @property
    def total(self) -> int | None:
        """Rows of a Parquet file, bytes of another; None where nobody knows."""
        if str(self.path) == STANDARD_INPUT:
            return None
        if self.format == "parquet":
            with self._told():
                return int(pa.parquet.read_metadata(self.path).num_rows)
        return self.path.stat().st_size

    def pieces(self) -> Iterator[Piece]:
        """Read all rows, a few megabytes at a time."""
        read = {"parquet": self._parquet, "csv": self._csv, "ndjson": self._ndjson}[self.format]
        with self._told():
            yield from read()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what pyarrow says into one line that names the file."""
        try:
            yield
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # has its own text
            raise self.failed(f"cannot be read as {self.format}: {first_line(error)}") from None

    def failed(self, reason: str) -> CommandFailed:
        """Return the error that names the file."""
        return CommandFailed(f"{self.name}: {reason}")

    def _parquet(self) -> Iterator[Piece]:
        if str(self.path) == STANDARD_INPUT:
            raise CommandFailed("Parquet cannot be read from standard input: name the file")
        with pa.parquet.ParquetFile(self.path, buffer_size=1 << 20, pre_buffer=False) as file:
            self._check_columns(file.schema_arrow.names)
            sizes = [file.metadata.row_group(group).total_byte_size for group in range(file.metadata.num_row_groups)]
            row_bytes = max(1, sum(sizes) // max(1, file.metadata.num_rows))
            rows = min(PIECE_ROWS, max(64, PIECE_BYTES // row_bytes))
            yield from self._of_batches(file.iter_batches(batch_size=rows), lambda read: read)

    def _csv(self) -> Iterator[Piece]:
        stream, position = self._opened()
        names: list[str] = []
        with stream:
            try:
                reader = pa.csv.open_csv(
                    stream,
                    pa.csv.ReadOptions(use_threads=False, block_size=PIECE_BYTES),
                    pa.csv.ParseOptions(newlines_in_values=True),
                    # Only what is empty and not quoted is null: "NA" may be a country.
                    pa.csv.ConvertOptions(
                        column_types=dict(self.types),
                        null_values=[""],
                        strings_can_be_null=True,
                        quoted_strings_can_be_null=False,
                    ),
                )
                names = reader.schema.names
                self._check_columns(names)
                if unknown := [name for name in self.types if name not in names]:
                    raise self.failed(f"--type names the column {unknown[0]!r}; there are {', '.join(names)}")
                yield from self._of_batches(self._well_guessed(reader), lambda read: position())
            except pa.ArrowInvalid as error:
                raise self.failed(csv_reason(str(error), names)) from None

    def _well_guessed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass rows of CSV on, and refuse those that the type their column was taken for would change."""
        wanted = set(self.columns.values()) if "value" in self.columns else None
        row = 2  # the heading is row 1
        for batch in batches:
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                if name in self.types or (wanted is not None and name not in wanted):
                    continue
                if changed := changed_value(column):
                    at, reason, as_it_is = changed
                    raise self.failed(
                        f"row {row + at} (the heading is row 1), column {name!r}: {reason}; --type {name}={as_it_is}"
                    )
            yield batch
            row += batch.num_rows

    def _of_batches(self, batches: Iterable[pa.RecordBatch], done: Any) -> Iterator[Piece]:
        read = 0
        for batch in batches:
            table = pa.Table.from_batches([batch])
            read += table.num_rows
            first = read - table.num_rows + 1
            if table.num_rows:
                yield Piece(self._records(table, first), first, done(read))

    def _records(self, table: pa.Table, first: int) -> pa.Table:
        """Make the three columns of rows."""
        found = {}
        for role in ROLES:
            name = self.columns.get(role)
            if role == "value" and name is None:
                found[role] = json_column(table)
            elif name is None:
                found[role] = pa.nulls(table.num_rows)
            elif role == "timestamp":
                found[role] = self._times(table[name], name, first)
            else:
                found[role] = self._texts(table[name], name, role)
        return pa.table(found)

    def _texts(self, column: pa.ChunkedArray, name: str, role: str) -> Any:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if pa.types.is_nested(kind):
            raise self.failed(f"column {name!r} is {kind}: a {role} is text, bytes, a number or a time")
        return plain_texts(column)

    def _times(self, column: pa.ChunkedArray, name: str, first: int) -> Any:
        if column.null_count:
            row = pc.index(column.is_null(), True).as_py()
            raise self.failed(f"{self.row_word} {first + row} has no {name!r}, which is to be the timestamp")
        if pa.types.is_integer(column.type):
            return column.cast(pa.int64())
        try:
            zone = column.type.tz if pa.types.is_timestamp(column.type) else "UTC"
            return column.cast(pa.timestamp("ms", zone), safe=False).cast(pa.int64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self.failed(f"column {name!r} is no time: {first_line(error)}") from None

    def _check_columns(self, names: Sequence[str]) -> None:
        for role, name in self.columns.items():
            if names.count(name) != 1:
                what = "there is no column" if name not in names else "there are several columns"
                raise self.failed(f"--{role}: {what} {name!r}; columns: {', '.join(names)}")
        if "value" not in self.columns and len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise self.failed(f"there are several columns {twice!r}, of which no JSON object can be made")

    # --- lines of JSON ----------------------------------------------------------------------------------------

    def _ndjson(self) -> Iterator[Piece]:
        stream, position = self._opened()
        names = list(dict.fromkeys(self.columns.values()))
        number = 1
        seen = not names
        with stream:
            for block in whole_lines(stream):
                if number == 1:
                    block = block.removeprefix(BYTE_ORDER_MARK)
                every = block.replace(b"\r\n", b"\n").split(b"\n")
                places = [at for at, line in enumerate(every) if line and not line.isspace()]
                if places:
                    lines = [every[at] for at in places]
                    fields = self._fields(lines, [number + at for at in places], names)
                    seen = seen or any(column.null_count < len(lines) for column in fields.values())
                    if not seen:
                        raise self.failed(f"no line of the first {len(lines)} has the field {names[0]!r}")
                    yield Piece(self._line_records(lines, fields, number + places[0]), number + places[0], position())
                number += len(every) - 1

    def _line_records(self, lines: list[bytes], fields: Mapping[str, Any], first: int) -> pa.Table:
        found: dict[str, Any] = {}
        for role in ROLES:
            name = self.columns.get(role)
            if role == "value" and name is None:
                found[role] = pa.array(lines, pa.binary())
            elif name is None:
                found[role] = pa.nulls(len(lines))
            elif role == "timestamp":
                found[role] = self._times(pa.chunked_array([fields[name]]), name, first)
            else:
                found[role] = plain_texts(pa.chunked_array([fields[name]]))
        return pa.table(found)

    def _fields(self, lines: list[bytes], numbers: list[int], names: list[str]) -> dict[str, pa.Array]:
        """Return some fields of all lines, and see that each is an object: all at once, one by one where that fails."""
        texts = pa.array(lines, pa.binary())
        if pc.all(pc.match_substring_regex(texts, OBJECT_LINE)).as_py():
            buffer = joined_lines(texts)
            read = pa.json.ReadOptions(use_threads=False, block_size=min(buffer.size + 1, (1 << 31) - 1))
            # Without names nothing is kept, and fields of several types disturb nobody.
            parse = pa.json.ParseOptions(
                None if names else pa.schema([]), unexpected_field_behavior="infer" if names else "ignore"
            )
            try:
                table = pa.json.read_json(pa.BufferReader(buffer), read, parse).combine_chunks()
            except pa.ArrowInvalid:
                table = None
            if table is not None and table.num_rows == len(lines):
                found = {name: _one_array(table, name) for name in names}
                if all(self._is_exact(name, array.type) for name, array in found.items()):
                    return found
        objects = [self._object(line, number) for line, number in zip(lines, numbers, strict=True)]
        return {name: self._field(name, [each.get(name) for each in objects], numbers) for name in names}

    def _is_exact(self, name: str, kind: pa.DataType) -> bool:
        """Whether pyarrow's reader has left the field as it stands: 1.50 and times would be written otherwise."""
        types = pa.types
        is_text = types.is_string(kind) or types.is_int64(kind) or types.is_boolean(kind) or types.is_null(kind)
        only_time = {role for role, wanted in self.columns.items() if wanted == name} == {"timestamp"}
        return is_text or (only_time and types.is_timestamp(kind))

    def _object(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            value = json.loads(line)
        except ValueError as error:
            reason = str(error).partition(": line 1 column ")
            where = f" (column {reason[2].partition(' ')[0]})" if reason[1] else ""
            raise self.failed(f"line {number} is no JSON object: {reason[0]}{where}; {_shown(line)}") from None
        if not isinstance(value, dict):
            raise self.failed(f"line {number} is no JSON object: {_shown(line)}")
        return value

    def _field(self, name: str, values: list[Any], numbers: list[int]) -> pa.Array:
        only_time = {role for role, wanted in self.columns.items() if wanted == name} == {"timestamp"}
        found: list[Any] = []
        for value, number in zip(values, numbers, strict=True):
            try:
                found.append(_milliseconds(value) if only_time else _bytes_of(value))
            except ValueError as error:
                raise self.failed(f"line {number}: {name!r} is {_shown(json.dumps(value).encode())}: {error}") from None
        return pa.array(found, pa.int64() if only_time else pa.binary())

    def _opened(self) -> tuple[Any, Any]:
        """Return a stream of the content, and how many bytes of the file it has taken."""
        if str(self.path) == STANDARD_INPUT:
            return sys.stdin.buffer, lambda: 0
        raw = pa.OSFile(str(self.path))
        codec = COMPRESSION_BY_ENDING.get(self.path.suffix.lower())
        return (raw if codec is None else pa.CompressedInputStream(raw, codec)), raw.tell


def whole_lines(stream: Any) -> Iterator[bytes]:
    """Yield blocks that end where a line ends, about PIECE_BYTES each, or what there is."""
    rest: list[bytes] = []
    while chunk := stream.read1(PIECE_BYTES):
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join([*rest, chunk[:end]])
            rest = []
        rest.append(chunk[end:])
    last = b"".join(rest)
    if last:
        yield last + b"\n"


def column_type(text: str) -> pa.DataType:
    """Return a type by its name; ValueError says which there are."""
    try:
        return pa.type_for_alias(text)
    except ValueError:
        known = "string, binary, bool, int32, int64, double, date32, timestamp[ms]"
        raise ValueError(f"{text!r} is no type; such as {known} are") from None


def changed_value(column: pa.Array) -> tuple[int, str, str] | None:
    """Return where a guessed type does not hold a value of CSV as it stands there: place, reason, types that do."""
    if pa.types.is_binary(column.type):
        at, value = next((at, value) for at, value in enumerate(column.to_pylist()) if not _is_text(value))
        return at, f"{_shown(value)} is not UTF-8", "binary takes bytes; write the file in UTF-8 to send text"
    if not pa.types.is_floating(column.type):
        return None
    if (at := pc.index(pc.is_inf(column), True).as_py()) >= 0:
        return at, "it is too large for a number, and would be null", "string takes it as text"
    if (at := pc.index(pc.is_nan(column), True).as_py()) >= 0:
        return at, "NaN is no number of JSON, and would be null", "string takes it as text, =double as null"
    large = pc.indices_nonzero(pc.greater_equal(pc.abs(column), EXACT_INTEGERS)).to_pylist()
    if not large:
        return None
    # Beside fractions 1.5e20 is a measurement; more digits than any double holds are an integer's also there.
    only_integers = pc.all(pc.equal(column, pc.floor(column))).as_py()
    for at in large:
        value = column[at].as_py()
        if only_integers or float(f"{value:.{EXACT_DIGITS}g}") != value:
            reason = f"{value} is what a number keeps of so large an integer"
            return at, reason, "string takes it as text, =double as that"
    return None


def _is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def csv_reason(text: str, names: Sequence[str]) -> str:
    """Say in the user's words what pyarrow's CSV reader says."""
    found = MISFIT.search(text)
    if found is None:
        return text.removeprefix("CSV parse error: ").partition("\n")[0]
    column, row, kind, reason = found.groups()
    name = names[int(column)] if names else ""
    place = f"row {row} (the heading is row 1)" if row else "a row"
    which = f"column {name!r}" if names else f"column number {int(column) + 1}"
    reason = reason.partition("\n")[0]
    return f"{place}, {which}: {reason}, and the column is {kind}; --type {name or 'COLUMN'}=string takes it as text"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text."""
    return str(error).partition("\n")[0] or type(error).__name__


def _one_array(table: pa.Table, name: str) -> pa.Array:
    if name not in table.column_names:
        return pa.nulls(table.num_rows)
    column = table[name]
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _bytes_of(value: Any) -> bytes | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
        return base64.b64decode(value["base64"], validate=True)  # as `topic consume --format json` writes bytes
    if isinstance(value, dict | list):
        raise ValueError("text or a number is wanted")
    return json.dumps(value).encode()


def _milliseconds(value: Any) -> int | None:
    if value is None or type(value) is int:
        return value
    if not isinstance(value, str):
        raise ValueError("milliseconds since 1970 or an ISO 8601 time are wanted")
    moment = datetime.fromisoformat(value)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _shown(line: bytes) -> str:
    text = line.strip().decode(errors="replace")
    return text if len(text) <= 60 else f"{text[:60]}…"
