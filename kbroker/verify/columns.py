"""A history as columns: one row for each operation, each record that was sent and each record that was read.

Rows of operations are in the order of their completions, those that never completed behind all others; rows of records
are in the order of their operations. Processes, keys, groups and record keys are numbered in the order in which they
came. Built from events one by one (`ColumnsBuilder`), so that a history need not fit into memory as objects.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kbroker.verify.history import FAIL, INFO, INVOKE, NEMESIS, OK, Event, decode
from kbroker.verify.line_reader import Begun, LineReader

Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

TYPES = (OK, FAIL, INFO)
OK_CODE, FAIL_CODE, INFO_CODE = range(3)
KINDS = ("send", "poll", "txn", "commit", "committed", "assign", "subscribe", "seek", "crash", "admin", "ends")
SEND, POLL, TXN, COMMIT, COMMITTED, ASSIGN, SUBSCRIBE, SEEK, CRASH, ADMIN, ENDS = range(11)
NEVER = np.iinfo(np.int64).max
"""The time of completion of what nobody knows to have completed."""
UNKNOWN_OFFSET = -1
ALL_KEYS = -1


class Names:
    """Numbers names in the order in which they come."""

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}

    def number(self, name: Any) -> int:
        """The number of a name, a new one for a new name."""
        return self.known.setdefault(name, len(self.known))

    @property
    def names(self) -> list[Any]:
        """All names, by number."""
        return list(self.known)


@dataclass(slots=True)
class Operations:
    """One row for each operation."""

    process: Ints
    kind: Ints
    type: Ints
    invoke_index: Ints
    complete_index: Ints
    """-1 where it never completed."""
    invoke_time: Ints
    complete_time: Ints
    """When the client said so; NEVER where it never did."""
    commit_time: Ints
    """When a transaction began to commit or to abort; -1 where it is not known."""
    final: Ints
    """1 in the last phase, when all is healed."""

    @property
    def end_time(self) -> Ints:
        """When it was over; NEVER where nobody knows whether it happened, or will still happen."""
        found: Ints = np.where(self.type == INFO_CODE, NEVER, self.complete_time)
        return found

    def __len__(self) -> int:
        return len(self.process)


@dataclass(slots=True)
class Records:
    """One row for each record that was sent, or read."""

    operation: Ints
    key: Ints
    value: Ints
    offset: Ints
    """UNKNOWN_OFFSET where nobody was told."""
    record_key: Ints
    """-1 where records have no keys."""

    def __len__(self) -> int:
        return len(self.operation)


@dataclass(slots=True)
class GroupOffsets:
    """One row for each offset that was committed, or asked for."""

    operation: Ints
    group: Ints
    key: Ints
    offset: Ints

    def __len__(self) -> int:
        return len(self.operation)


@dataclass(slots=True)
class Ends:
    """One row for each end of a partition that a reader of committed records was told."""

    operation: Ints
    key: Ints
    offset: Ints

    def __len__(self) -> int:
        return len(self.operation)


@dataclass(slots=True)
class KeyEvents:
    """Rows (operation, key): what happened to a consumer's key; ALL_KEYS for each of them."""

    operation: Ints
    key: Ints


@dataclass(slots=True)
class FaultEvent:
    """What the nemesis did, and when."""

    time: int
    name: str
    operations: list[Any]


@dataclass(slots=True)
class Columns:
    """A whole history."""

    processes: list[Any]
    keys: list[Any]
    groups: list[Any]
    record_keys: list[Any]
    odd_values: list[Any]
    """Values that are no integers; they count as -2, -3, … in this order."""
    operations: Operations
    sends: Records
    reads: Records
    commits: GroupOffsets
    fetches: GroupOffsets
    ends: Ends
    moves: KeyEvents
    """Positions that were set: the new assignment or subscription leaves the key out, or a seek names it."""
    rebalances: KeyEvents
    admin: list[tuple[int, list[Any]]]
    """(operation, what was asked or answered)."""
    faults: list[FaultEvent]


class Rows:
    """Growing columns of integers."""

    def __init__(self, width: int) -> None:
        self.columns = [array("q") for _ in range(width)]
        self._appends = [column.append for column in self.columns]

    def append(self, *values: int) -> None:
        """Add one row."""
        for append, value in zip(self._appends, values, strict=True):
            append(value)

    def extend(self, rows: memoryview, count: int) -> None:
        """Add rows that lie one behind the other."""
        width = len(self.columns)
        table = np.frombuffer(rows, dtype=np.int64, count=count * width).reshape(count, width)
        for number, column in enumerate(self.columns):
            column.frombytes(np.ascontiguousarray(table[:, number]).tobytes())

    def taken(self) -> list[Ints]:
        """The columns, which are given away: memory is not held twice."""
        found = [np.frombuffer(column, dtype=np.int64) for column in self.columns]
        self.columns = []
        return found


class ColumnsBuilder:
    """Takes events in their order; `build` at the end."""

    def __init__(self) -> None:
        self.processes = Names()
        self.keys = Names()
        self.groups = Names()
        self.record_keys = Names()
        self.odd_values = Names()
        self.operations = Rows(9)
        self.sends = Rows(5)
        self.reads = Rows(5)
        self.commits = Rows(4)
        self.fetches = Rows(4)
        self.ends = Rows(3)
        self.moves = Rows(2)
        self.rebalances = Rows(2)
        self.admin: list[tuple[int, list[Any]]] = []
        self.faults: list[FaultEvent] = []
        self.row = 0
        self.waiting: dict[Any, Begun] = {}
        self._positions: dict[int, set[int]] = {}
        """Process -> keys that it was given to read."""

    def add(self, event: Event) -> None:
        """Take one event."""
        if event.process == NEMESIS:
            self.faults.append(FaultEvent(event.time, event.f, event.operations))
        elif event.type == INVOKE:
            self.waiting[event.process] = event.index, event.time, bool(event.more.get("final")), event
        elif event.type in TYPES:
            begun = self.waiting.pop(event.process, None)
            self._operation(event, (event.index, event.time, False, event) if begun is None else begun)

    def build(self) -> Columns:
        """The history as columns; what was invoked and never completed is what nobody knows."""
        for begun in self.waiting.values():
            said = begun[3] if isinstance(begun[3], Event) else decode(begun[3], 0)
            self._operation(Event(-1, said.process, INFO, said.f, said.operations, NEVER, said.more), begun)
        self.waiting.clear()
        return Columns(
            self.processes.names,
            self.keys.names,
            self.groups.names,
            self.record_keys.names,
            self.odd_values.names,
            Operations(*self.operations.taken()),
            Records(*self.sends.taken()),
            Records(*self.reads.taken()),
            GroupOffsets(*self.commits.taken()),
            GroupOffsets(*self.fetches.taken()),
            Ends(*self.ends.taken()),
            KeyEvents(*self.moves.taken()),
            KeyEvents(*self.rebalances.taken()),
            self.admin,
            self.faults,
        )

    def extend(self, reader: LineReader) -> None:
        """Take the rows of a reader of lines."""
        for rows, view, count in (
            (self.operations, reader.operation_rows, reader.operations),
            (self.sends, reader.send_rows, reader.sends),
            (self.reads, reader.read_rows, reader.reads),
        ):
            rows.extend(view, count)
        self.row += reader.operations

    def _operation(self, event: Event, begun: Begun) -> None:
        process = self.processes.number(event.process)
        kind = KINDS.index(event.f) if event.f in KINDS else ADMIN
        row = self.row
        self.row += 1
        more = event.more
        self.operations.append(
            process,
            kind,
            TYPES.index(event.type),
            begun[0],
            event.index,
            begun[1],
            event.time,
            more.get("commit_time", -1),
            bool(more.get("final")) or begun[2],
        )
        if kind == ADMIN:
            self.admin.append((row, event.operations))
        elif kind in (ASSIGN, SUBSCRIBE, SEEK):
            if event.type != FAIL:
                self._set_position(row, process, kind, event)
        elif kind != CRASH:
            for operation in event.operations:
                self._micro_operation(row, operation)
        for key in more.get("rebalances", ()):
            self.rebalances.append(row, self.keys.number(key))

    def _micro_operation(self, row: int, operation: list[Any]) -> None:
        what = operation[0]
        if what == "send":
            found = operation[2]
            place = found if isinstance(found, list) else (None, found)
            self._record(self.sends, row, self.keys.number(operation[1]), place)
        elif what == "poll":
            for key, places in operation[1].items() if len(operation) > 1 else ():
                number = self.keys.number(key)
                for place in places:
                    self._record(self.reads, row, number, place)
        elif what == "end" and len(operation) > 2:
            self.ends.append(row, self.keys.number(operation[1]), operation[2])
        elif what in ("commit", "committed"):
            rows = self.commits if what == "commit" else self.fetches
            if len(operation) > 3:
                _, group, key, offset = operation
                rows.append(row, self.groups.number(group), self.keys.number(key), offset)

    def _record(self, rows: Rows, row: int, key: int, place: Any) -> None:
        offset, value = place[0], place[1]
        if type(value) is not int or value < 0:
            value = -2 - self.odd_values.number(repr(value))
        record_key = self.record_keys.number(place[2]) if len(place) > 2 and place[2] is not None else -1
        rows.append(row, key, value, UNKNOWN_OFFSET if offset is None else offset, record_key)

    def _set_position(self, row: int, process: int, kind: int, event: Event) -> None:
        """Note whose position is new: keys that are left out now, and after a seek those that it names."""
        named = {self.keys.number(key) for key in event.operations}
        if kind == SEEK or event.more.get("from_beginning"):
            moved = named
        else:
            moved = self._positions.get(process, set()) - named
        if kind != SEEK:
            self._positions[process] = named
        for key in moved:
            self.moves.append(row, key)


def columns_of(events: Iterable[Event]) -> Columns:
    """All events as columns."""
    builder = ColumnsBuilder()
    for event in events:
        builder.add(event)
    return builder.build()
