"""Histories: what each process began and how it ended, as JSON lines.

    {"index": 4, "process": 3, "type": "invoke", "f": "send", "operations": [["send", "t:0", 17]], "time": 1200}
    {"index": 5, "process": 3, "type": "ok", "f": "send", "operations": [["send", "t:0", [5, 17]]], "time": 1900}

`type`: `ok` (it happened), `fail` (it did not happen, for sure) or `info` (nobody knows; the process ends, and a new
one takes its place). `time`: nanoseconds since the start. Values are integers, unique in the whole history; a key is a
partition, written TOPIC:NUMBER. `operations` of an invocation say what is wanted, those of a completion what came:

    ["send", key, value]                      wanted, or its offset is not known
    ["send", key, [offset, value]]            stored there; [offset, value, record_key] where records have keys
    ["poll"]                                  wanted
    ["poll", {key: [[offset, value], …]}]     read, in this order
    ["commit", group, key, offset]            committed offset: the next to be read
    ["committed", group, key, offset]         what the coordinator answers; -1: none
    ["end", key, offset]                      where a reader of committed records is told that the partition ends

`f` is one of: send, poll, txn (any of them, of one transaction, which commits at the end), commit, committed, ends,
assign and subscribe (operations: the keys; they replace the former ones), seek (the keys whose position is set anew),
crash, admin. The nemesis is process "nemesis"; its operations are of type info. More fields, each optional:

    rebalances    of a completion: keys that were taken from or given to the consumer meanwhile
    commit_time   of a txn: when it began to commit or to abort; until then nobody may read what it sent
    final         true in the last phase, when all is healed
    error         why it failed, in words
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

INVOKE, OK, FAIL, INFO = "invoke", "ok", "fail", "info"
NEMESIS = "nemesis"
HISTORY_FILE = "history.jsonl"
SETTINGS_FILE = "test.json"
STALLED = "stalled"
"""The last phase could read no further, though nothing failed."""


class DamagedHistory(Exception):
    """A line of a history is none; the text says which and why."""


@dataclass(slots=True)
class Event:
    """One line."""

    index: int
    process: int | str
    type: str
    f: str
    operations: list[Any]
    time: int
    more: dict[str, Any] = field(default_factory=dict)
    """The optional fields."""

    def fields(self) -> dict[str, Any]:
        """The line as a mapping, in the order in which it is written."""
        return {
            "index": self.index,
            "process": self.process,
            "type": self.type,
            "f": self.f,
            "operations": self.operations,
            "time": self.time,
            **self.more,
        }


class Recorder:
    """Numbers, times and writes the events of all threads."""

    def __init__(self, file: IO[str], now: Callable[[], int] = time.monotonic_ns) -> None:
        self._file = file
        self._now = now
        self._start = now()
        self._count = 0
        self._lock = threading.Lock()

    @property
    def elapsed(self) -> int:
        """Nanoseconds since the start."""
        return self._now() - self._start

    def record(self, process: int | str, type: str, f: str, operations: list[Any], **more: Any) -> Event:
        """Write one event; what is None in `more` is left out."""
        known = {name: value for name, value in more.items() if value is not None}
        with self._lock:
            event = Event(self._count, process, type, f, operations, self.elapsed, known)
            self._count += 1
            self._file.write(encode(event))
        return event


_JSON = json.JSONEncoder(separators=(",", ":"))


def encode(event: Event) -> str:
    """One line."""
    return _JSON.encode(event.fields()) + "\n"


def decode(line: str | bytes, number: int) -> Event:
    """Read one line; `number` is for the error."""
    try:
        found = json.loads(line)
        event = Event(
            found.pop("index"),
            found.pop("process"),
            found.pop("type"),
            found.pop("f"),
            found.pop("operations") or [],
            found.pop("time"),
            found,
        )
    except (ValueError, AttributeError, KeyError) as error:
        raise DamagedHistory(f"line {number} is no event of a history ({error!r}): {line[:100]!r}") from error
    return event


def write_history(path: Path, events: Iterable[Event]) -> None:
    """Write a whole history."""
    with path.open("w") as file:
        file.writelines(encode(event) for event in events)


def read_history(path: Path) -> Iterator[Event]:
    """Read a history event by event; a last line that was cut short is left out, as a crash leaves one."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n") and not line.rstrip().endswith(b"}"):
                return
            if line.strip():
                yield decode(line, number)


def settings_of(folder: Path) -> Mapping[str, Any]:
    """What was asked for when the history was recorded; empty where nobody wrote it down."""
    path = folder / SETTINGS_FILE
    if not path.exists():
        return {}
    found = json.loads(path.read_text())
    return found if isinstance(found, dict) else {}
