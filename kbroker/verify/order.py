"""Whether reads and sends follow the log: what goes backwards, and what is left out."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from kbroker.verify.anomalies import MOST_EXAMPLES, Example, Finding, Place, finding
from kbroker.verify.columns import (
    ALL_KEYS,
    NEVER,
    OK_CODE,
    TXN,
    UNKNOWN_OFFSET,
    Columns,
    Flags,
    Ints,
    KeyEvents,
    Records,
)
from kbroker.verify.versions import Versions


def check_order(columns: Columns, versions: Versions) -> list[Finding]:
    """All findings of this module."""
    found = _polls(columns, versions)
    found += _sends(columns, versions)
    return found + _realtime(columns, versions)


@dataclass(slots=True)
class Sequences:
    """Records by process and key, each in the order of its process."""

    rows: Ints
    is_same: Flags
    """Of each record but the first: it follows one of the same process and key."""
    is_same_operation: Flags
    """… and of the same operation."""


def _sequences(columns: Columns, records: Records, rows: Ints) -> Sequences:
    process = columns.operations.process[records.operation[rows]]
    group = process * max(len(columns.keys), 1) + records.key[rows]
    if len(group) and group.max() < np.iinfo(np.int16).max:
        # Sorted by digits, in no time.
        group = group.astype(np.int16)
    order = np.argsort(group, kind="stable")
    rows, group = rows[order], group[order]
    operation = records.operation[rows]
    is_same = group[1:] == group[:-1]
    return Sequences(rows, is_same, is_same & (operation[1:] == operation[:-1]))


def _polls(columns: Columns, versions: Versions) -> list[Finding]:
    """Skips and steps back, within an operation and from one to the next."""
    reads = columns.reads
    found = _sequences(columns, reads, np.arange(len(reads)))
    if len(found.rows) < 2:
        return []
    entry = versions.read_entry[found.rows]
    inside = np.flatnonzero(found.is_same_operation) + 1
    pairs = Pairs(columns, versions, found.rows, entry, inside - 1, inside)
    internal = pairs.judged("int-poll-skip", "int-nonmonotonic-poll", "in one operation")

    # The last record of an operation that succeeded is where the next one has to go on.
    is_ok = columns.operations.type[reads.operation[found.rows]] == OK_CODE
    at = np.arange(len(found.rows))
    last_ok = np.maximum.accumulate(np.where(is_ok, at, -1))
    starts = np.flatnonzero(np.concatenate([[True], ~found.is_same]))
    group_start = np.repeat(starts, np.diff(np.append(starts, len(at))))
    later = np.flatnonzero(found.is_same & ~found.is_same_operation) + 1
    before = last_ok[later - 1]
    is_known = before >= group_start[later]
    later, before = later[is_known], before[is_known]
    external = Pairs(columns, versions, found.rows, entry, before, later)
    return internal + external.judged("poll-skip", "nonmonotonic-poll", "between two operations")


@dataclass(slots=True)
class Pairs:
    """Pairs of records of one process and key that were read one after the other."""

    columns: Columns
    versions: Versions
    rows: Ints
    entry: Ints
    before: Ints
    after: Ints

    def judged(self, skip: str, back: str, where: str) -> list[Finding]:
        """The pairs that leave something out, and those that do not go forward, but for recorded rebalances."""
        one, other = self.entry[self.before], self.entry[self.after]
        is_back = other <= one
        between = self.versions.visible_before[other] - self.versions.visible_before[np.minimum(one + 1, other)]
        suspicious = np.flatnonzero(is_back | (between > 0))
        suspicious = suspicious[~self._is_forgiven(suspicious)]
        skips, backs = suspicious[~is_back[suspicious]], suspicious[is_back[suspicious]]
        return finding(skip, len(skips), self._examples(skips, f"were left out {where}", between)) + finding(
            back, len(backs), self._examples(backs, f"went backwards {where}", None)
        )

    def _is_forgiven(self, pairs: Ints) -> Flags:
        reads, operations = self.columns.reads, self.columns.operations
        rows = self.rows[self.before[pairs]]
        first, last = reads.operation[rows], reads.operation[self.rows[self.after[pairs]]]
        process, key = operations.process[first], reads.key[rows]
        forgiven = np.zeros(len(pairs), dtype=np.bool_)
        for events in (self.columns.moves, self.columns.rebalances):
            forgiven |= _has_event(self.columns, events, process, key, first, last)
        return forgiven

    def _examples(self, pairs: Ints, what: str, skipped: Ints | None) -> list[Example]:
        reads, columns = self.columns.reads, self.columns
        examples = []
        for pair in pairs[:MOST_EXAMPLES]:
            rows = [int(self.rows[self.before[pair]]), int(self.rows[self.after[pair]])]
            key = int(reads.key[rows[0]])
            one, other = (int(reads.offset[row]) for row in rows)
            number = "reads" if skipped is None else f"{skipped[pair]} records"
            process = columns.processes[columns.operations.process[reads.operation[rows[0]]]]
            text = f"{columns.keys[key]}: process {process} read offset {one} and then {other}: {number} {what}"
            shown = tuple(dict.fromkeys(int(reads.operation[row]) for row in rows))
            examples.append(Example(text, shown, (Place(key, one), Place(key, other))))
        return examples


def _has_event(columns: Columns, events: KeyEvents, process: Ints, key: Ints, first: Ints, last: Ints) -> Flags:
    """Whether an event of the process and key lies between the operations, both included."""
    found = np.zeros(len(first), dtype=np.bool_)
    if not len(events.operation):
        return found
    keys, count = len(columns.keys) + 1, len(columns.operations) + 1
    by = columns.operations.process[events.operation] * keys + events.key + 1
    codes = np.sort(by * count + events.operation)
    for wanted in (key + 1, np.full(len(key), ALL_KEYS + 1)):
        base = (process * keys + wanted) * count
        found |= np.searchsorted(codes, base + first) < np.searchsorted(codes, base + last, side="right")
    return found


def _sends(columns: Columns, versions: Versions) -> list[Finding]:
    """Records of one producer that lie in another order than they were sent in."""
    sends = columns.sends
    known = np.flatnonzero((sends.offset != UNKNOWN_OFFSET) & versions.must_hold)
    found = _sequences(columns, sends, known)
    if len(found.rows) < 2:
        return []
    offset = sends.offset[found.rows]
    is_back = found.is_same & (offset[1:] <= offset[:-1])
    inside = np.flatnonzero(is_back & found.is_same_operation)
    outside = np.flatnonzero(is_back & ~found.is_same_operation)
    entry = versions.send_entry[found.rows]
    forward = np.flatnonzero(found.is_same_operation & ~is_back)
    between = versions.visible_before[entry[forward + 1]] - versions.visible_before[entry[forward] + 1]
    skips = forward[between > 0]
    return (
        finding("int-nonmonotonic-send", len(inside), _send_examples(columns, found.rows, inside))
        + finding("nonmonotonic-send", len(outside), _send_examples(columns, found.rows, outside))
        + finding("int-send-skip", len(skips), _send_examples(columns, found.rows, skips))
    )


def _send_examples(columns: Columns, rows: Ints, found: Ints) -> list[Example]:
    return [_pair_of_sends(columns, int(rows[at]), int(rows[at + 1]), "first", "then") for at in found[:MOST_EXAMPLES]]


def _pair_of_sends(columns: Columns, one: int, other: int, before: str, after: str) -> Example:
    sends = columns.sends
    key = int(sends.key[one])
    offsets = int(sends.offset[one]), int(sends.offset[other])
    values = int(sends.value[one]), int(sends.value[other])
    text = f"{columns.keys[key]}: sent {before}, value {values[0]} is at offset {offsets[0]};"
    return Example(
        f"{text} sent {after}, value {values[1]} is at offset {offsets[1]}",
        tuple(dict.fromkeys((int(sends.operation[one]), int(sends.operation[other])))),
        tuple(Place(key, offset) for offset in offsets),
    )


def _realtime(columns: Columns, versions: Versions) -> list[Finding]:
    """Records that were sent after another was acknowledged, and lie before it."""
    sends, operations = columns.sends, columns.operations
    known = versions.send[versions.send >= 0]
    known = known[operations.kind[sends.operation[known]] != TXN]
    invoked = operations.invoke_time[sends.operation[known]]
    completed = operations.end_time[sends.operation[known]]
    key = sends.key[known]
    bounds = np.concatenate([[0], np.flatnonzero(key[1:] != key[:-1]) + 1, [len(key)]]).astype(np.int64)
    count, examples = 0, []
    for start, end in itertools.pairwise(bounds.tolist()):
        part = slice(start, end)
        # The earliest acknowledgement at any later offset.
        earliest = np.append(np.minimum.accumulate(completed[part][::-1])[::-1][1:], NEVER)
        inverted = np.flatnonzero(earliest < invoked[part])
        count += len(inverted)
        for at in inverted[:MOST_EXAMPLES]:
            behind = start + at + 1 + int(np.argmin(completed[start + at + 1 : end]))
            pair = int(known[start + at]), int(known[behind])
            examples.append(_pair_of_sends(columns, *pair, "when the other was acknowledged", "earlier"))
    return finding("realtime-send-order", count, examples)
