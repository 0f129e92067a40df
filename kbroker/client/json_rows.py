"""Rows of a record batch as JSON objects, one text per row, made column by column in pyarrow's compiled code.

    carrier  delay  at                          {"carrier":"UA","delay":3.5,"at":"2013-01-01T05:15:00Z"}
    "UA"     3.5    2013-01-01 05:15:00 UTC

Nulls, and floats that JSON has no number for, become null. Times are ISO 8601. Nested columns (lists, structs) go
through Python's json, which is slower.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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
