"""Whole records as text: JSON lines, YAML documents, lines of a table."""

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kbroker.cli.output import printable
from kbroker.client.record_objects import as_object, readable

if TYPE_CHECKING:
    from kbroker.protocol.records.record import Record

TABLE_COLUMNS = ("partition", "offset", "timestamp", "key", "value")
TABLE_LINE = "{:>9}  {:>12}  {:<24}  {:<20}  {}"

Writer = Callable[[Sequence["Record"]], bytes]


def json_lines(records: "Iterable[Record]") -> bytes:
    """One object in each line."""
    return b"".join([json.dumps(as_object(record), ensure_ascii=False).encode() + b"\n" for record in records])


def yaml_documents(records: "Iterable[Record]") -> bytes:
    """One document for each record."""
    import yaml

    objects = [as_object(record) for record in records]
    if not objects:
        return b""
    text: str = yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True, explicit_start=True)
    return text.encode()


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
