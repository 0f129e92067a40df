"""The Spark type of JSON objects, found from a sample as Spark's own JSON reader finds it.

Whole numbers are bigint, others double; fields stand in alphabetical order; what is sometimes one type and sometimes
another is a string; so is what is always null.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def infer_struct(texts: Iterable[bytes]) -> StructType | None:
    """Return the type of the objects among the texts; None when there is none."""
    found: DataType = NullType()
    for text in texts:
        try:
            value = json.loads(text)
            found = _merged(found, _kind(value)) if isinstance(value, dict) else found
        except (ValueError, RecursionError):  # no JSON, or nested too deeply: the others show the form
            continue
    merged = _without_nulls(found)
    return merged if isinstance(merged, StructType) else None


def ddl(kind: DataType) -> str:
    """Return the type as Spark's DDL text, with names that are no identifiers of SQL in back-ticks."""
    if isinstance(kind, StructType):
        return f"struct<{','.join(f'{_quoted(field.name)}:{ddl(field.dataType)}' for field in kind.fields)}>"
    return f"array<{ddl(kind.elementType)}>" if isinstance(kind, ArrayType) else kind.simpleString()


def _quoted(name: str) -> str:
    return name if PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _kind(value: Any) -> DataType:
    if isinstance(value, dict):
        return StructType([StructField(name, _kind(each)) for name, each in sorted(value.items())])
    if isinstance(value, list):
        elements: list[DataType] = [NullType(), *map(_kind, value)]
        return ArrayType(functools.reduce(_merged, elements))
    if value is None:
        return NullType()
    if isinstance(value, bool):
        return BooleanType()
    if isinstance(value, int):
        return LongType() if -(1 << 63) <= value < 1 << 63 else DoubleType()
    return DoubleType() if isinstance(value, float) else StringType()


def _merged(one: DataType, other: DataType) -> DataType:
    if one == other or isinstance(other, NullType):
        return one
    if isinstance(one, NullType):
        return other
    if {type(one), type(other)} == {LongType, DoubleType}:
        return DoubleType()
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(_merged(one.elementType, other.elementType))
    if isinstance(one, StructType) and isinstance(other, StructType):
        fields = {field.name: field.dataType for field in one.fields}
        for field in other.fields:
            fields[field.name] = _merged(fields.get(field.name, NullType()), field.dataType)
        return StructType([StructField(name, kind) for name, kind in sorted(fields.items())])
    return StringType()


def _without_nulls(kind: DataType) -> DataType:
    if isinstance(kind, NullType):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(_without_nulls(kind.elementType))
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _without_nulls(field.dataType)) for field in kind.fields])
    return kind
