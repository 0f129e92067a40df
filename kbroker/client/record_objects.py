"""Records as JSON can hold them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbroker.protocol.records.record import Record


def as_object(record: Record) -> dict[str, Any]:
    """Return a record as JSON can hold it: bytes that are no UTF-8 text come as {"base64": …}."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": readable(record.key),
        "value": readable(record.value),
        "headers": [[name, readable(value)] for name, value in record.headers],
    }


def readable(value: bytes | None) -> Any:
    """Return text, or {"base64": …} for bytes that are none."""
    if value is None:
        return None
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
