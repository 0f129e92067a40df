"""The options of a write, checked once: those of Spark's Kafka sink, and formats for frames with types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kbroker.spark_connector.options import GivenOptions, OptionError
from kbroker.spark_connector.read_options import is_framed

VALUE_FORMATS = ("binary", "json", "avro")
KEY_FORMATS = ("binary", "json")
OF_SPARK = ("checkpointLocation", "path", "queryName", "includeHeaders")
"""What Spark hands on, or its own sink knows, without meaning for us: headers are written where the column is there."""
AVRO = ("valueSchema", "schemaRegistry", "avroFraming")
WRITE_OPTIONS = ("topic", "valueFormat", "keyFormat", "keyColumn", *AVRO, *OF_SPARK)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """A write, checked."""

    bootstrap: str
    topic: str = ""
    """For all rows; empty: the column `topic` says it."""
    value_format: str = "binary"
    key_format: str = "binary"
    key_column: str = ""
    """The column that becomes the key; empty: `key`, if there is one."""
    value_schema: str = ""
    """Avro's; empty: the newest of the registry's subject `<topic>-value`."""
    registry: str = ""
    avro_is_framed: bool = False
    client: Mapping[str, str] = field(default_factory=dict)
    """The `kafka.*` options for the producer."""


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check the options of `df.write` and `writeStream`; raises OptionError saying which is wrong and why."""
    given = GivenOptions(options, WRITE_OPTIONS)
    value_format = given.choice("valueFormat", VALUE_FORMATS, "binary")
    framed = is_framed(given)
    if value_format == "avro" and not given.given("schemaRegistry") and (framed or not given.given("valueSchema")):
        raise OptionError("valueFormat=avro needs valueSchema, or schemaRegistry (which knows the id of a schema, too)")
    return WriteOptions(
        bootstrap=given.bootstrap(),
        topic=given.text("topic"),
        value_format=value_format,
        key_format=given.choice("keyFormat", KEY_FORMATS, "binary"),
        key_column=given.text("keyColumn"),
        value_schema=given.text("valueSchema"),
        registry=given.url("schemaRegistry"),
        avro_is_framed=framed,
        client=given.client(),
    )
