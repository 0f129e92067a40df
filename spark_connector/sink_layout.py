"""Which columns of a frame become key, value, headers, topic and partition of its records. Decided on the driver.

binary   key, value (string or binary), headers, topic, partition: as in Spark's Kafka sink
json     `value`, if it is a struct, as one JSON object; else an object of all columns but the four others
    avro     the same as an Avro record
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegralType, StringType, StructType

from kbroker.spark_connector.options import OptionError
from kbroker.spark_connector.write_options import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = (StringType, BinaryType)
RESERVED = ("key", "headers", "topic", "partition")


@dataclass(frozen=True, slots=True)
class SinkLayout:
    """Names of columns; empty: there is none."""

    names: tuple[str, ...]
    """Of all columns, in order."""
    value: str = ""
    fields: tuple[str, ...] = ()
    """Columns that make up the JSON object, where no single one is the value."""
    key: str = ""
    headers: str = ""
    topic: str = ""
    partition: str = ""


def sink_layout(schema: StructType, options: WriteOptions) -> SinkLayout:
    """Check a frame's schema; raises OptionError naming the column and the types it may have."""
    types = {field.name: field.dataType for field in schema.fields}
    key = options.key_column or ("key" if "key" in types else "")
    if key and key not in types:
        raise OptionError(f"keyColumn={key}: the frame has no such column, only {', '.join(types)}")
    if not options.topic and "topic" not in types:
        raise OptionError('neither the option "topic" nor a column "topic" says where the rows go')
    _check(types, "topic", "a string", lambda kind: isinstance(kind, StringType))
    _check(types, "partition", "an int", lambda kind: isinstance(kind, IntegralType))
    _check(types, "headers", "array<struct<key: string, value: binary>>", _are_headers)
    if key and options.key_format == "binary" and not options.key_column:
        _check(types, key, "string or binary (or give keyFormat=json)", lambda kind: isinstance(kind, TEXT))
    value, fields = _value(types, options)
    return SinkLayout(
        names=tuple(types),
        value=value,
        fields=fields,
        key=key,
        headers="headers" if "headers" in types else "",
        topic="topic" if "topic" in types and not options.topic else "",
        partition="partition" if "partition" in types else "",
    )


def _value(types: dict[str, DataType], options: WriteOptions) -> tuple[str, tuple[str, ...]]:
    if options.value_format in ("json", "avro"):
        if isinstance(types.get("value"), StructType):
            return "value", ()
        fields = tuple(name for name in types if name not in RESERVED)
        if not fields:
            raise OptionError(f"valueFormat={options.value_format}: the frame has no column to make an object of")
        return "", fields
    if "value" not in types:
        raise OptionError(
            f'the frame has no column "value", only {", ".join(types)}; valueFormat=json makes objects of all columns'
        )
    _check(types, "value", "string or binary (or give valueFormat=json)", lambda kind: isinstance(kind, TEXT))
    return "value", ()


def _check(types: dict[str, DataType], name: str, wanted: str, fits: Callable[[DataType], bool]) -> None:
    if name in types and not fits(types[name]):
        raise OptionError(f"the column {name} is {types[name].simpleString()}, it must be {wanted}")


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    found = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return found == [("key", StringType), ("value", BinaryType)]
