"""Values out of znodes, held to what requests can carry: what is written there by hand would fail much later (pure).

All raise one of `UNREADABLE`; `znodes.py` names the path then.
"""

from __future__ import annotations

import json
import re
from typing import Any

UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What taking a node's data apart may raise, whatever somebody wrote there."""

LAST_EPOCH = (1 << 31) - 2
"""There is one more: an election makes it."""
_LAST_INT32 = (1 << 31) - 1
_LONGEST_TEXT = (1 << 15) - 1
_TOPIC = re.compile(r"(?!\.\.?$)[a-zA-Z0-9._-]{1,249}")
_READ = json.JSONDecoder().decode


def read_json(data: bytes | None) -> Any:
    """What a node holds. Half of a surrogate pair can be written in JSON, but is no text: no request could carry it."""
    text = str(data or b"", "utf-8")
    value = _READ(text)
    if "\\" in text:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def write_json(value: dict[str, Any]) -> bytes:
    """What a node is to hold, as compact as Kafka writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def number(value: Any, lowest: int = 0, highest: int = _LAST_INT32) -> int:
    """An integer within limits; text that is one, too, as Kafka writes some numbers so."""
    found = int(value)
    if not lowest <= found <= highest:
        raise ValueError(f"{found} is not within {lowest} and {highest}")
    return found


def topic_name(name: str) -> str:
    """A name by which there can be a topic: no folder could have another one."""
    if not _TOPIC.fullmatch(name):
        raise ValueError("that is no topic's name")
    return name


def broker_ids(values: Any) -> tuple[int, ...]:
    """A list of brokers' ids."""
    if type(values) is not list:
        raise TypeError(f"{values!r:.40} is no list")
    for each in values:
        if type(each) is not int or not 0 <= each <= _LAST_INT32:
            raise ValueError(f"{each!r:.40} is no broker's id")
    return tuple(values)


def text(value: Any) -> str:
    """A text that fits a request of any version."""
    if not isinstance(value, str) or len(value.encode()) > _LONGEST_TEXT:
        raise ValueError(f"{value!r:.40} is no text, or too long a one")
    return value
