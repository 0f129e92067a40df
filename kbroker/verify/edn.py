"""Histories as EDN, for Jepsen's own checkers: `jepsen.tests.kafka` reads the same operations.

`operations` become `:value`, types and functions keywords, partitions stay texts; what their checker does not know
(admin changes, committed offsets, the nemesis) is left out unless it is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kbroker.verify.history import NEMESIS, Event

KNOWN = frozenset({"send", "poll", "txn", "assign", "subscribe", "crash"})


def edn_lines(events: Iterable[Event], *, everything: bool = False) -> Iterator[str]:
    """One line for each event."""
    for event in events:
        if everything or (event.f in KNOWN and event.process != NEMESIS):
            yield _event(event)


def _event(event: Event) -> str:
    process = f":{event.process}" if isinstance(event.process, str) else str(event.process)
    fields = [
        f":index {event.index}",
        f":time {event.time}",
        f":type :{event.type}",
        f":process {process}",
        f":f :{event.f}",
        f":value {_operations(event)}",
    ]
    if event.more.get("rebalances"):
        fields.append(f":rebalance-log [{{:keys {edn(event.more['rebalances'])}}}]")
    if event.more.get("from_beginning"):
        fields.append(":seek-to-beginning? true")
    return "{" + ", ".join(fields) + "}"


def _operations(event: Event) -> str:
    if event.f in ("assign", "subscribe", "crash", "seek") or event.process == NEMESIS:
        return edn(event.operations)
    return "[" + " ".join(_operation(each) for each in event.operations) + "]"


def _operation(operation: list[Any]) -> str:
    what, *rest = operation
    if what == "send" and isinstance(rest[1], list):
        # Theirs know of no record keys.
        offset, value = rest[1][:2]
        rest = [rest[0], value if offset is None else [offset, value]]
    elif what == "poll" and rest:
        rest = [{key: [place[:2] for place in places] for key, places in rest[0].items()}]
    return f"[:{what}" + "".join(f" {edn(each)}" for each in rest) + "]"


def edn(value: Any) -> str:
    """A plain value."""
    match value:
        case None:
            return "nil"
        case bool():
            return "true" if value else "false"
        case str():
            escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
            return f'"{escaped}"'
        case dict():
            return "{" + ", ".join(f"{edn(key)} {edn(each)}" for key, each in value.items()) + "}"
        case list() | tuple():
            return "[" + " ".join(edn(each) for each in value) + "]"
    return str(value)
