"""JSON texts to one Arrow column of structs: all at once in pyarrow's compiled parser, row by row where that fails.

A row is malformed when it is no JSON object, or when a field does not fit its type. As in Spark such a field becomes
null and the others stay; what is no object at all becomes null as a whole. Dates and times are ISO 8601, times without
a zone are UTC; binary is base64.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from kbroker.client.arrow import joined_lines
from kbroker.client.avro import WIDE

AN_OBJECT = r"(?s)^\s*\{.*\}\s*$"
CHUNK_ROWS = 256
"""After a failure so many rows at a time are tried again; only chunks that fail go row by row."""
WIDEST_DECIMAL = 76


class Misfit(ValueError):
    """A value that is not of its field's type."""


class JsonColumn:
    """Parses values of one struct type; keep it for all batches. `strict`: fields that the type lacks are malformed."""

    def __init__(self, kind: pa.StructType, *, strict: bool = False) -> None:
        self.kind = kind
        self._strict = strict
        self._can_parse = _is_parsable(kind)
        self._schema = pa.schema([pa.field(field.name, _parsed_as(field.type)) for field in kind])

    def parse(self, texts: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return one struct per text, null where that is null, and the malformed rows with the reason for each."""
        column = self._parse_at_once(texts)
        if column is not None:
            return column, {}
        chunks: list[pa.Array] = []
        malformed: dict[int, str] = {}
        for first in range(0, len(texts), CHUNK_ROWS):
            some = texts.slice(first, CHUNK_ROWS)
            column = self._parse_at_once(some)
            if column is None:
                column, found = self._parse_each(some)
                malformed.update((first + row, reason) for row, reason in found.items())
            chunks.append(column)
        return pa.concat_arrays(chunks) if chunks else pa.array([], self.kind), malformed

    def _parse_at_once(self, texts: pa.Array) -> pa.Array | None:
        """Return None unless every text that is there is exactly one object that fits."""
        there = texts.drop_null() if texts.null_count else texts
        if not len(there):
            return pa.nulls(len(texts), self.kind)
        if not self._can_parse or not pc.all(pc.match_substring_regex(there, AN_OBJECT)).as_py():
            return None
        lines = joined_lines(there)
        others = "error" if self._strict else "ignore"
        parse = pj.ParseOptions(self._schema, newlines_in_values=True, unexpected_field_behavior=others)
        read = pj.ReadOptions(use_threads=False, block_size=min(lines.size + 1, (1 << 31) - 1))
        try:
            table = pj.read_json(io.BytesIO(lines), read, parse)
            if table.num_rows != len(there):
                return None
            table = table.combine_chunks()
            fields = [table[field.name].cast(field.type) for field in self.kind]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        arrays = [field.combine_chunks() if field.num_chunks != 1 else field.chunk(0) for field in fields]
        structs = pa.StructArray.from_arrays(arrays, fields=list(self.kind))
        if texts.null_count == 0:
            return structs
        places = pc.subtract(pc.cumulative_sum(texts.is_valid().cast(pa.int32())), 1)
        return structs.take(pc.if_else(texts.is_valid(), places, pa.scalar(None, pa.int32())))

    def _parse_each(self, texts: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        values: list[Any] = []
        malformed: dict[int, str] = {}
        for row, text in enumerate(texts.to_pylist()):
            value, reason = (None, "") if text is None else self._parse_one(text)
            values.append(value)
            if reason:
                malformed[row] = reason
        return pa.array(values, self.kind), malformed

    def _parse_one(self, text: bytes) -> tuple[dict[str, Any] | None, str]:
        try:
            return self._fitted(json.loads(text))
        except ValueError as error:
            return None, f"not JSON: {error}"
        except RecursionError:
            return None, "JSON that is nested too deeply"

    def _fitted(self, value: Any) -> tuple[dict[str, Any] | None, str]:
        if not isinstance(value, dict):
            return None, f"a JSON {type(value).__name__}, not an object"
        misfits: list[str] = []
        found = _struct(value, self.kind, misfits)
        if self._strict:
            misfits += [
                f"{name}: not a field of the first values, a schema can name it" for name in _unknown(value, self.kind)
            ]
        return found, "; ".join(misfits)


def _is_parsable(kind: pa.DataType) -> bool:
    """Whether pyarrow parses the type, or one that casts to it."""
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_is_parsable(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _is_parsable(kind.value_type)
    return not (pa.types.is_map(kind) or pa.types.is_binary(kind) or pa.types.is_null(kind))


def _parsed_as(kind: pa.DataType) -> pa.DataType:
    """Return what pyarrow is told to parse and casts then: dates come as text, decimals as the widest there are.

    For narrower ones it does not look at the precision, and gives another number where one has too many digits.
    """
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_decimal(kind):
        return pa.decimal256(WIDEST_DECIMAL, kind.scale)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _parsed_as(field.type)) for field in kind])
    return pa.list_(_parsed_as(kind.value_type)) if pa.types.is_list(kind) else kind


def _unknown(value: Any, kind: pa.DataType) -> Iterator[str]:
    """Name the fields that the type lacks, also inside others."""
    if pa.types.is_list(kind) and isinstance(value, list):
        for each in value:
            yield from _unknown(each, kind.value_type)
    elif pa.types.is_struct(kind) and isinstance(value, dict):
        known = {field.name: field.type for field in kind}
        for name, each in value.items():
            if name in known:
                yield from _unknown(each, known[name])
            else:
                yield name


def _struct(value: dict[str, Any], kind: pa.StructType, misfits: list[str]) -> dict[str, Any]:
    """Convert each field; one that does not fit is null and noted."""
    found = {}
    for field in kind:
        try:
            found[field.name] = _convert(value.get(field.name), field.type, misfits)
        except Misfit:
            found[field.name] = None
            misfits.append(f"{field.name}: {json.dumps(value[field.name])[:80]} is not {field.type}")
    return found


def _convert(value: Any, kind: pa.DataType, misfits: list[str]) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return _struct(value, kind, misfits)
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_convert(each, kind.value_type, misfits) for each in value]
    if pa.types.is_map(kind) and isinstance(value, dict):
        return [(_text(name), _convert(each, kind.item_type, misfits)) for name, each in value.items()]
    if pa.types.is_string(kind):
        return _text(value) if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    try:
        return _scalar(value, kind)
    except (ValueError, ArithmeticError) as error:
        raise Misfit from error


def _scalar(value: Any, kind: pa.DataType) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if pa.types.is_integer(kind):
        half = 1 << (kind.bit_width - 1)
        if not isinstance(value, int) or not is_number or not -half <= value < half:
            raise Misfit
        return value
    if pa.types.is_boolean(kind) and isinstance(value, bool):
        return value
    if pa.types.is_floating(kind) and is_number:
        return float(value)
    if pa.types.is_decimal(kind) and (is_number or isinstance(value, str)):
        return _decimal(str(value), kind)
    if isinstance(value, str):
        for fits, convert in FROM_TEXT:
            if fits(kind):
                return convert(value)
    raise Misfit


def _text(value: str) -> str:
    """Return the text; half of a surrogate pair, which JSON can name, is none."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Misfit from error
    return value


def _decimal(text: str, kind: pa.DataType) -> decimal.Decimal:
    """Round to the scale; what is no number then, or has too many digits, does not fit."""
    rounded = decimal.Decimal(text).quantize(decimal.Decimal(1).scaleb(-kind.scale), context=WIDE)
    if not rounded.is_finite() or len(rounded.as_tuple().digits) > kind.precision:
        raise Misfit
    return rounded


def _time(text: str) -> datetime.datetime:
    moment = datetime.datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise Misfit from error


FROM_TEXT: tuple[tuple[Callable[[pa.DataType], bool], Callable[[str], Any]], ...] = (
    (pa.types.is_date, datetime.date.fromisoformat),
    (pa.types.is_timestamp, _time),
    (pa.types.is_binary, _bytes),
)
