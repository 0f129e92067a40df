"""The columns of a topic's DataFrame: names and types of Spark's own Kafka source.

    key            binary         string, or struct<…>, with keyFormat
    value          binary         string, or struct<…>, with valueFormat
    topic          string
    partition      int
    offset         long
    timestamp      timestamp
    timestampType  int            0 CreateTime, 1 LogAppendTime
    headers        array<struct<key: string, value: binary>>     only with includeHeaders=true

The clients' Arrow batches carry the same names and types, `headers` always last. A schema given by the user may take
any of these columns, and with typed values name the value's fields as columns beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbroker.spark_connector.options import OptionError
from kbroker.spark_connector.read_options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TYPES = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
CORRUPT_RECORD = "_corrupt_record"


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """Which column of a frame comes from where."""

    schema: Any
    """The frame's pyspark StructType."""
    taken: tuple[str, ...]
    """Columns of the list above that the frame has, in any order."""
    fields: tuple[str, ...] = ()
    """Columns that are fields of the value."""
    has_corrupt_record: bool = False
    """Whether the text of a malformed value is wanted, in the column _corrupt_record."""


def schema_ddl(options: ReadOptions, key: str = "", value: str = "") -> str:
    """Return the schema as Spark's DDL text; `key` and `value` are the types of what is neither binary nor string."""
    columns = {"key": key or options.key_format, "value": value or options.value_format, **TYPES}
    if not options.include_headers:
        del columns["headers"]
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def plan_columns(schema: StructType, options: ReadOptions) -> ColumnPlan:
    """Find a place for each column of a schema; raises OptionError naming the first that has none."""
    typed = options.value_format not in ("binary", "string")
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    taken = tuple(name for name, kind in found.items() if _is_ours(name, kind, options))
    has_corrupt_record = typed and found.get(CORRUPT_RECORD) == "string"
    fields = tuple(name for name in found if name not in taken and not (has_corrupt_record and name == CORRUPT_RECORD))
    if fields and (not typed or "value" in taken):
        known = {"key": options.key_format, "value": options.value_format, **TYPES}
        wanted = f"it must be {known[fields[0]]}" if fields[0] in known else f"there are {', '.join(known)}"
        raise OptionError(f"the schema's column {fields[0]} ({found[fields[0]]}) is not there: {wanted}")
    return ColumnPlan(schema, taken, fields, has_corrupt_record)


def _is_ours(name: str, kind: str, options: ReadOptions) -> bool:
    if name in ("key", "value"):
        wanted = options.key_format if name == "key" else options.value_format
        if wanted == "avro":
            return True
        return kind.startswith("struct<") if wanted not in ("binary", "string") else kind == wanted
    return TYPES.get(name) == kind
