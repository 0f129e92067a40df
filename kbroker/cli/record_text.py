"""Whole records as text: JSON lines, YAML documents, lines of a table."""

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

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
        moment = datetime.fromtimestamp(record.timestamp / 1000, UTC).isoformat(timespec="milliseconds")
        key, value = (_cell(readable(part)) for part in (record.key, record.value))
        lines.append(TABLE_LINE.format(record.partition, record.offset, moment.replace("+00:00", "Z"), key, value))
    return "".join(f"{line}\n" for line in lines).encode()


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value)
    return text.replace("\n", "\\n")
