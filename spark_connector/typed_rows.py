"""Records as the frame's columns, in a task: values and keys parsed, malformed rows treated as `mode` says.

PERMISSIVE      what does not fit is null (default)
DROPMALFORMED   the row is left out
FAILFAST        the task fails, naming topic, partition and offset
"""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from kbroker.client.json_columns import JsonColumn
from kbroker.client.schema_registry import registry_at
from kbroker.client.typed_values import TextColumn
from kbroker.spark_connector.avro_columns import AvroColumn
from kbroker.spark_connector.columns import CORRUPT_RECORD, ColumnPlan
from kbroker.spark_connector.options import OptionError
from kbroker.spark_connector.read_options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)


class MalformedRecord(ValueError):
    """A key or value that is not of its format; the message names topic, partition and offset."""


class Parser(Protocol):
    """Bytes to typed values; see JsonColumn.parse."""

    def parse(self, texts: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return the values, and the malformed rows with the reason for each."""


class TypedRows:
    """Makes the frame's batches of the client's; keep it for all batches of a task."""

    def __init__(self, options: ReadOptions, plan: ColumnPlan) -> None:
        self._options = options
        self._plan = plan
        self._schema = arrow_schema(plan.schema)
        self.malformed = 0
        """Rows so far."""
        self._parsers: dict[str, Parser] = {}
        if "key" in plan.taken:
            self._add_parser("key", options.key_format, self._schema.field("key").type)
        if "value" in plan.taken:
            self._add_parser("value", options.value_format, self._schema.field("value").type)
        elif plan.fields or plan.has_corrupt_record:
            fields = pa.struct([self._schema.field(name) for name in plan.fields])
            self._add_parser("value", options.value_format, fields)

    def _add_parser(self, column: str, kind: str, target: pa.DataType) -> None:
        if kind == "string":
            self._parsers[column] = TextColumn()
        elif kind == "json":
            self._parsers[column] = JsonColumn(target)
        elif kind == "avro":
            options = self._options
            schema = options.key_schema if column == "key" else options.value_schema
            registry = registry_at(options.registry) if options.registry else None
            if not schema and not (registry and options.avro_is_framed):
                raise OptionError(f"{column}Schema is needed to read Avro, or schemaRegistry for framed Avro")
            self._parsers[column] = AvroColumn(target, schema, framed=options.avro_is_framed, registry=registry)

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows under the frame's schema."""
        columns = {name: batch[name] for name in batch.schema.names}
        malformed: dict[int, str] = {}
        for name, parser in self._parsers.items():
            columns[name], found = parser.parse(batch[name])
            malformed.update((row, f"{name} is {reason}") for row, reason in found.items())
        if self._plan.fields:
            values = columns["value"].flatten()
            columns.update(zip((field.name for field in columns["value"].type), values, strict=True))
        if self._plan.has_corrupt_record:
            texts = batch["value"].take(pa.array(sorted(malformed), pa.int64())).to_pylist()
            known = dict(zip(sorted(malformed), texts, strict=True))
            columns[CORRUPT_RECORD] = pa.array([_text(known.get(row)) for row in range(batch.num_rows)], pa.string())
        if malformed and self._options.mode == "FAILFAST":
            row = min(malformed)
            place = f"{batch['topic'][row]}-{batch['partition'][row]} at offset {batch['offset'][row]}"
            raise MalformedRecord(f"{place}: {malformed[row]} (mode=FAILFAST)")
        self.malformed += len(malformed)
        arrays = [columns[field.name] for field in self._schema]
        typed = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if malformed and self._options.mode == "DROPMALFORMED":
            typed = typed.filter(pa.array([row not in malformed for row in range(batch.num_rows)]))
        return typed


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark checks ours against."""
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # Spark 4.1: times are UTC by default


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")
