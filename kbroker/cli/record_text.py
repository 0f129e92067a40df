"""Whole records as text: JSON lines, YAML documents, lines of a table."""

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kbroker.cli.output import json_text, printable, yaml_text
from kbroker.client.record_objects import as_object, readable

if TYPE_CHECKING:
    from kbroker.protocol.records.record import Record

TABLE_COLUMNS = ("partition", "offset", "timestamp", "key", "value")
TABLE_LINE = "{:>9}  {:>12}  {:<24}  {:<20}  {}"

Writer = Callable[[Sequence["Record"]], bytes]


def json_lines(records: "Iterable[Record]") -> bytes:
    """One object in each line."""
    return b"".join([json_text(as_object(record)).encode() + b"\n" for record in records])


def yaml_documents(records: "Iterable[Record]") -> bytes:
    """One document for each record."""
    objects = [as_object(record) for record in records]
    return yaml_text(objects, explicit_start=True).encode() if objects else b""


def table_lines(records: "Iterable[Record]") -> bytes:
    """Lines under the heading TABLE_COLUMNS."""
    lines = []
    for record in records:
        key, value = (_cell(readable(part)) for part in (record.key, record.value))
        lines.append(TABLE_LINE.format(record.partition, record.offset, _moment(record.timestamp), key, value))
    return "".join(f"{line}\n" for line in lines).encode()


def _moment(timestamp_ms: int) -> str:
    """As ISO 8601 has it; a producer may say any number, which is shown where it is no such moment."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value)
    return printable(text)
