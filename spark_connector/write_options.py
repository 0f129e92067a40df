"""The options of a write, checked once: those of Spark's Kafka sink, and formats for frames with types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kbroker.spark_connector.options import GivenOptions, OptionError
from kbroker.spark_connector.read_options import is_framed

VALUE_FORMATS = ("binary", "json", "avro")
KEY_FORMATS = ("binary", "json")
OF_SPARK = ("checkpointLocation", "path", "queryName", "includeHeaders")
"""What Spark hands on, or its own sink knows, without meaning for us: headers are written where the column is there."""
AVRO = ("valueSchema", "schemaRegistry", "avroFraming")
EXACTLY_ONCE = ("exactlyOnce", "exactlyOnceName", "exactlyOnceLedger", "exactlyOnceLostBatch")
WRITE_OPTIONS = ("topic", "valueFormat", "keyFormat", "keyColumn", *AVRO, *EXACTLY_ONCE, *OF_SPARK)
LEDGER = "kbroker-spark-ledger"
TRANSACTION_TIMEOUT = "transaction.timeout.ms"
LOST_BATCH = re.compile(r"\d+ (again|skip)")


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
    exactly_once: bool = False
    name: str = ""
    """Of the query, among all that write exactly once to this cluster; empty: the write makes one up."""
    ledger: str = LEDGER
    """The topic in which queries remember what is decided."""
    lost_batch: str = ""
    """`17 again` or `17 skip`: what becomes of a batch that is known to be written in part."""
    transaction_timeout_ms: int = 0
    """Of the tasks' transactions; 0: the longest that the brokers allow."""
    client: Mapping[str, str] = field(default_factory=dict)
    """The `kafka.*` options for the producer."""


def write_options(options: Mapping[str, str], *, streaming: bool = False) -> WriteOptions:
    """Check the options of `df.write` and `writeStream`; raises OptionError saying which is wrong and why."""
    given = GivenOptions(options, WRITE_OPTIONS)
    value_format = given.choice("valueFormat", VALUE_FORMATS, "binary")
    framed = is_framed(given)
    if value_format == "avro" and not given.given("schemaRegistry") and (framed or not given.given("valueSchema")):
        raise OptionError("valueFormat=avro needs valueSchema, or schemaRegistry (which knows the id of a schema, too)")
    exactly_once, client = given.boolean("exactlyOnce", False), given.client()
    lost_batch = given.text("exactlyOnceLostBatch")
    if lost_batch and not LOST_BATCH.fullmatch(lost_batch):
        raise OptionError(f'exactlyOnceLostBatch is {lost_batch!r}: it must be such as "17 again" or "17 skip"')
    timeout = client.pop(TRANSACTION_TIMEOUT, "0") if exactly_once else "0"
    if not timeout.isdigit():
        raise OptionError(f"kafka.{TRANSACTION_TIMEOUT} is {timeout!r}: it must be a whole number of milliseconds")
    return WriteOptions(
        bootstrap=given.bootstrap(),
        topic=given.text("topic"),
        value_format=value_format,
        key_format=given.choice("keyFormat", KEY_FORMATS, "binary"),
        key_column=given.text("keyColumn"),
        value_schema=given.text("valueSchema"),
        registry=given.registry("schemaRegistry"),
        avro_is_framed=framed,
        exactly_once=exactly_once,
        name=_name(given, streaming) if exactly_once else "",
        ledger=given.text("exactlyOnceLedger", LEDGER),
        lost_batch=lost_batch,
        transaction_timeout_ms=int(timeout),
        client=client,
    )


def _name(given: GivenOptions, streaming: bool) -> str:
    """Return what a query is known by: the option's text, or the place of its checkpoint."""
    name = given.text("exactlyOnceName")
    if name or not streaming:
        return name
    place = given.text("checkpointLocation")
    if not place:
        raise OptionError(
            "exactlyOnce=true needs the option checkpointLocation (or exactlyOnceName, where the place is configured"
            " otherwise): it tells this query from others, and from what it has written before"
        )
    return re.sub("^file:/+", "/", place).rstrip("/") or "/"
