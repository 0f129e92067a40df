"""The column `value` of record batches as text or as typed fields: what `batches(value_format=…)` does.

    "string"    string: UTF-8
    "json"      struct<…>: the fields of a JSON object, of a type that is given, or found in the topic's first batch

A value that is no UTF-8, no JSON object, or not of its type is malformed.
"""

from __future__ import annotations

import json
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from kbroker.client.arrow import joined_lines
from kbroker.client.errors import ConfigurationError
from kbroker.client.json_columns import AN_OBJECT, JsonColumn

ValueFormat = Literal["binary", "string", "json"]
Malformed = Literal["raise", "null"]


class TextColumn:
    """UTF-8; what is none is malformed, and stands with replacement characters."""

    def parse(self, texts: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return the texts and the malformed rows."""
        try:
            return texts.cast(pa.string()), {}
        except pa.ArrowInvalid:
            values = texts.to_pylist()
        decoded = [None if value is None else value.decode(errors="replace") for value in values]
        pairs = enumerate(zip(decoded, values, strict=True))
        bad = {row: "not UTF-8" for row, (text, value) in pairs if text is not None and text.encode() != value}
        return pa.array(decoded, pa.string()), bad


class TypedValues:
    """Parses the values of one reading; keeps the types it has found, one for each topic.

    `schema`: a pyarrow Schema or struct type, for "json" only. `malformed`: "raise", or "null" for what does not fit.
    """

    def __init__(self, value_format: ValueFormat, schema: Any = None, malformed: Malformed = "raise") -> None:
        if value_format not in get_args(ValueFormat):
            raise ConfigurationError(f"value_format is binary, string or json, not {value_format!r}")
        if malformed not in get_args(Malformed):
            raise ConfigurationError(f"malformed is 'raise' or 'null', not {malformed!r}")
        if schema is not None and value_format != "json":
            raise ConfigurationError(f"value_schema needs value_format='json', not {value_format!r}")
        self.raises = malformed == "raise"
        self._format = value_format
        self._kind = None if schema is None else _struct_type(schema)
        self._columns: dict[str, TextColumn | JsonColumn] = {}

    def parse(self, batch: pa.RecordBatch, topic: str) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Return the batch with its values parsed, and the malformed rows with the reason for each."""
        values = batch["value"]
        column = self._columns.get(topic) or self._column(values, topic)
        parsed, malformed = column.parse(values)
        at = batch.schema.get_field_index("value")
        schema = batch.schema.set(at, pa.field("value", parsed.type))
        arrays = batch.columns
        arrays[at] = parsed
        return pa.RecordBatch.from_arrays(arrays, schema=schema), malformed

    def _column(self, values: pa.Array, topic: str) -> TextColumn | JsonColumn:
        if self._format == "string":
            found: TextColumn | JsonColumn = TextColumn()
        elif self._kind is not None:
            found = JsonColumn(self._kind)
        else:
            kind = inferred_type(values)
            # Fields that come later would be lost without a word if they were not malformed.
            found = JsonColumn(kind if kind is not None else pa.struct([]), strict=True)
            if kind is None:
                return found  # nothing to learn from: the next batch is asked
        self._columns[topic] = found
        return found


def inferred_type(values: pa.Array) -> pa.StructType | None:
    """Return the type of the JSON objects among the values, as pyarrow's reader finds it; None where there is none.

    Fields that are always null are strings. ValueError for objects that have no type in common.
    """
    objects = values.filter(pc.match_substring_regex(values, AN_OBJECT))
    if not len(objects):
        return None
    try:
        return _read_type(objects)
    except pa.ArrowInvalid:
        valid = [value for value in objects.to_pylist() if _is_object(value)]
    try:
        return _read_type(pa.array(valid, pa.binary())) if valid else None
    except pa.ArrowInvalid as error:
        raise ValueError(f"the values have no type in common ({error}): give a value_schema") from None


def _read_type(objects: pa.Array) -> pa.StructType:
    lines = joined_lines(objects)
    read = pj.ReadOptions(use_threads=False, block_size=min(lines.size + 1, (1 << 31) - 1))
    schema = pj.read_json(pa.BufferReader(lines), read, pj.ParseOptions(newlines_in_values=True)).schema
    kind: pa.StructType = _settled(pa.struct(list(schema)))
    return kind


def _settled(kind: pa.DataType) -> pa.DataType:
    """Make a type that later values fit too: no nulls, times with a zone and microseconds."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _settled(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_settled(kind.value_type))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns" if kind.unit == "ns" else "us", tz="UTC")
    return pa.string() if pa.types.is_null(kind) else kind


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _struct_type(schema: Any) -> pa.StructType:
    if isinstance(schema, pa.Schema):
        return pa.struct(list(schema))
    if isinstance(schema, pa.DataType) and pa.types.is_struct(schema):
        return schema
    raise ConfigurationError(f"value_schema is a pyarrow Schema or struct type, not {schema!r}")
