"""What each partition's log held, as far as anybody knows: the basis of all other checks.

An entry of the log is a (key, offset) that was read by anybody, or that the writer of a record was told and that must
have become visible: acknowledged outside of a transaction, or in one that committed (its end is acknowledged, or one of
its records was read).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kbroker.verify.anomalies import MOST_EXAMPLES, Example, Finding, Place, finding
from kbroker.verify.columns import INFO_CODE, OK_CODE, TXN, UNKNOWN_OFFSET, Columns, Flags, Ints

OFFSET_BITS = 44
MOST_EMPTY = 4
"""A table over all values is made when no more than this times the values' number would be empty."""


@dataclass(slots=True)
class Versions:
    """The log, and who wrote and read each entry of it."""

    place: Ints
    """Of each entry: its key << OFFSET_BITS | its offset; rising, each once."""
    send: Ints
    """The send of each entry's value; -1 where nobody sent it."""
    is_visible: Flags
    """Whether a reader must find the entry: it is committed, and compaction may not have taken it."""
    visible_before: Ints
    """How many entries before each one must be found; one more number for the end."""
    writer_of_read: Ints
    """The send of each record that was read; -1 where nobody sent it to that key."""
    read_entry: Ints
    """The entry of each record that was read."""
    send_entry: Ints
    """The entry at the offset that each send was told; -1 where it was told none, or nobody knows that it holds."""
    must_hold: Flags
    """Of each send: it is acknowledged, or its transaction must have committed."""
    is_superseded: Flags
    """Of each send: a later offset has the same record key, so that compaction may take it."""
    findings: list[Finding]

    def key(self, entry: int) -> int:
        """The key of an entry."""
        return int(self.place[entry]) >> OFFSET_BITS

    def offset(self, entry: int) -> int:
        """The offset of an entry."""
        return int(self.place[entry]) & ((1 << OFFSET_BITS) - 1)


def places(key: Ints, offset: Ints) -> Ints:
    """Keys and offsets in one number, which sorts as they do."""
    return (key << OFFSET_BITS) | offset


class ValueIndex:
    """Finds the row of a value."""

    def __init__(self, values: Ints) -> None:
        self._values = values
        self._low = int(values.min(initial=0))
        span = int(values.max(initial=0)) - self._low + 1
        self._table: NDArray[np.int32] | None = None
        if span <= MOST_EMPTY * len(values) + 1000:
            self._table = np.full(span, -1, dtype=np.int32)
            self._table[values - self._low] = np.arange(len(values), dtype=np.int32)
        else:
            self._order = np.argsort(values, kind="stable")
            self._sorted = values[self._order]

    def rows(self, wanted: Ints) -> Ints:
        """The row of each value; -1 where there is none."""
        if not len(self._values):
            return np.full(len(wanted), -1, dtype=np.int64)
        if self._table is not None:
            at = wanted - self._low
            is_inside = (at >= 0) & (at < len(self._table))
            return np.where(is_inside, self._table[np.where(is_inside, at, 0)], -1).astype(np.int64)
        at = np.minimum(np.searchsorted(self._sorted, wanted), len(self._sorted) - 1)
        return np.where(self._sorted[at] == wanted, self._order[at], -1)


def find_versions(columns: Columns, is_compacted: bool = False) -> Versions:
    """Put the logs together."""
    sends, reads = columns.sends, columns.reads
    writer = ValueIndex(sends.value).rows(reads.value)
    is_stranger = (writer < 0) | (sends.key[writer] != reads.key) if len(sends) else np.ones(len(reads), dtype=np.bool_)
    writer_of_read = np.where(is_stranger, -1, writer)
    findings = _strangers(columns, np.flatnonzero(is_stranger))

    must_hold = _must_hold(columns, writer_of_read)
    is_told = must_hold & (sends.offset != UNKNOWN_OFFSET)
    told = np.flatnonzero(is_told)
    all_places = np.concatenate([places(reads.key, reads.offset), places(sends.key, sends.offset)[told]])
    all_sends = np.concatenate([writer_of_read, told])
    all_values = np.concatenate([reads.value, sends.value[told]])
    order = np.argsort(all_places, kind="stable")
    sorted_places, sorted_values = all_places[order], all_values[order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = sorted_places[1:] != sorted_places[:-1]
    entry_of_sorted = np.cumsum(is_first) - 1
    first = np.flatnonzero(is_first)
    differs = np.flatnonzero(~is_first & (sorted_values != sorted_values[first[entry_of_sorted]]))
    place, entry_send = sorted_places[first], all_sends[order[first]]
    findings += _inconsistent(columns, order, entry_of_sorted, first, differs, all_sends)
    entries = np.empty(len(order), dtype=np.int64)
    entries[order] = entry_of_sorted
    send_entry = np.full(len(sends), -1, dtype=np.int64)
    send_entry[told] = entries[len(reads) :]
    findings += _duplicates(columns, place, entry_send, sorted_places[differs], all_sends[order[differs]])

    superseded = _superseded(columns, place, entry_send) if is_compacted else np.zeros(len(sends), dtype=np.bool_)
    has_writer = entry_send >= 0
    visible = np.zeros(len(place), dtype=np.bool_)
    visible[has_writer] = (must_hold & ~superseded)[entry_send[has_writer]]
    before = np.zeros(len(place) + 1, dtype=np.int64)
    np.cumsum(visible, out=before[1:])
    return Versions(
        place,
        entry_send,
        visible,
        before,
        writer_of_read,
        entries[: len(reads)],
        send_entry,
        must_hold,
        superseded,
        findings,
    )


def _must_hold(columns: Columns, writer_of_read: Ints) -> Flags:
    """Which sends are acknowledged, or belong to transactions that must have committed."""
    operations, sends = columns.operations, columns.sends
    type_of_send = operations.type[sends.operation]
    is_txn = operations.kind[sends.operation] == TXN
    read = np.unique(writer_of_read[writer_of_read >= 0])
    is_proven = np.zeros(len(operations), dtype=np.bool_)
    is_proven[sends.operation[read]] = True
    is_seen = np.zeros(len(sends), dtype=np.bool_)
    is_seen[read] = True
    info = type_of_send == INFO_CODE
    # Outside of a transaction each record stands for itself: an offset is its acknowledgement.
    alone = ~is_txn & info & (is_seen | (sends.offset != UNKNOWN_OFFSET))
    together = is_txn & info & is_proven[sends.operation]
    found: Flags = (type_of_send == OK_CODE) | alone | together
    return found


def _strangers(columns: Columns, rows: Ints) -> list[Finding]:
    reads = columns.reads
    examples = [
        Example(
            f"{columns.keys[reads.key[row]]} offset {reads.offset[row]}: value"
            f" {value_text(columns, int(reads.value[row]))} was read, and nobody sent it there",
            (int(reads.operation[row]),),
            (Place(int(reads.key[row]), int(reads.offset[row])),),
        )
        for row in rows[:MOST_EXAMPLES]
    ]
    return finding("unexpected-value", len(rows), examples)


def _inconsistent(
    columns: Columns, order: Ints, entry_of_sorted: Ints, first: Ints, differs: Ints, all_sends: Ints
) -> list[Finding]:
    """Offsets at which several values were seen."""
    count = len(np.unique(entry_of_sorted[differs]))
    examples = []
    for at in differs[:MOST_EXAMPLES]:
        rows = [int(order[first[entry_of_sorted[at]]]), int(order[at])]
        (key, offset, one), (_, _, other) = (_observation(columns, row, all_sends) for row in rows)
        examples.append(
            Example(
                f"{columns.keys[key]} offset {offset}: value {value_text(columns, one)}, and value"
                f" {value_text(columns, other)} too",
                tuple(dict.fromkeys(_operation(columns, row, all_sends) for row in rows)),
                (Place(key, offset),),
            )
        )
    return finding("inconsistent-offsets", count, examples)


def _observation(columns: Columns, row: int, all_sends: Ints) -> tuple[int, int, int]:
    """(key, offset, value) of a row among all reads, and behind them sends."""
    reads, sends = columns.reads, columns.sends
    if row < len(reads):
        return int(reads.key[row]), int(reads.offset[row]), int(reads.value[row])
    send = int(all_sends[row])
    return int(sends.key[send]), int(sends.offset[send]), int(sends.value[send])


def _operation(columns: Columns, row: int, all_sends: Ints) -> int:
    if row < len(columns.reads):
        return int(columns.reads.operation[row])
    return int(columns.sends.operation[all_sends[row]])


def _duplicates(columns: Columns, place: Ints, entry_send: Ints, odd_places: Ints, odd_sends: Ints) -> list[Finding]:
    """Values that stand at several offsets."""
    pairs = np.stack([np.concatenate([entry_send, odd_sends]), np.concatenate([place, odd_places])])
    if len(odd_sends):
        pairs = np.unique(pairs, axis=1)
    pairs = pairs[:, pairs[0] >= 0]
    counts = np.bincount(pairs[0], minlength=1)
    several = np.flatnonzero(counts > 1)
    examples = []
    sends, reads = columns.sends, columns.reads
    for send in several[:MOST_EXAMPLES]:
        offsets = [int(each) & ((1 << OFFSET_BITS) - 1) for each in np.sort(pairs[1][pairs[0] == send])]
        key, value = int(sends.key[send]), int(sends.value[send])
        readers = reads.operation[(reads.value == value) & (reads.key == key)]
        examples.append(
            Example(
                f"{columns.keys[key]}: value {value_text(columns, value)} stands at offsets {offsets}",
                (int(sends.operation[send]), *_first_of_each(readers)),
                tuple(Place(key, offset) for offset in offsets),
            )
        )
    return finding("duplicate", len(several), examples)


def _first_of_each(operations: Ints) -> tuple[int, ...]:
    return tuple(int(each) for each in np.unique(operations)[:2])


def _superseded(columns: Columns, place: Ints, entry_send: Ints) -> Flags:
    """Which sends have a later entry with the same record key in the same partition."""
    sends = columns.sends
    found = np.zeros(len(sends), dtype=np.bool_)
    keyed = np.flatnonzero(entry_send >= 0)
    keyed = keyed[sends.record_key[entry_send[keyed]] >= 0]
    if not len(keyed):
        return found
    width = max(len(columns.record_keys), 1)
    entry_group = (place[keyed] >> OFFSET_BITS) * width + sends.record_key[entry_send[keyed]]
    newest = np.full(int(entry_group.max()) + 1, -1, dtype=np.int64)
    newest[entry_group] = place[keyed]  # rising: the last one stays
    group = sends.key * width + sends.record_key
    is_known = (sends.record_key >= 0) & (group < len(newest)) & (sends.offset != UNKNOWN_OFFSET)
    known = np.flatnonzero(is_known)
    found[known] = places(sends.key, sends.offset)[known] < newest[group[known]]
    return found


def value_text(columns: Columns, value: int) -> str:
    """A value as it stands in the history."""
    return columns.odd_values[-2 - value] if value < -1 else str(value)
