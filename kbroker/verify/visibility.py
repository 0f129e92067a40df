"""Whether what was acknowledged is there, whole, and nothing else is: lost, unseen, torn, aborted, read too early."""

from __future__ import annotations

import numpy as np

from kbroker.verify.anomalies import MOST_EXAMPLES, Example, Finding, Place, finding
from kbroker.verify.columns import FAIL_CODE, INFO_CODE, OK_CODE, TXN, UNKNOWN_OFFSET, Columns, Flags, Ints
from kbroker.verify.versions import OFFSET_BITS, Versions, value_text


def check_visibility(
    columns: Columns, versions: Versions, is_read_to_the_end: bool, has_final_reads: bool
) -> list[Finding]:
    """All findings of this module; what lies at the end is only missed where partitions were read to their ends.

    Where the last phase read all partitions from their beginning, only what it found is there.
    """
    seen, highest, final_reads = _seen(columns, versions, is_read_to_the_end and has_final_reads)
    missing = np.flatnonzero(versions.must_hold & ~versions.is_superseded & ~seen)
    sends = columns.sends
    is_below = (sends.offset[missing] != UNKNOWN_OFFSET) & (sends.offset[missing] <= highest[sends.key[missing]])
    lost, beyond = missing[is_below], missing[~is_below]
    found = _missing("lost-write", columns, lost, highest, final_reads)
    if is_read_to_the_end:
        found += _missing("unseen", columns, beyond, highest, final_reads)
        found += _torn(columns, seen, missing)
    else:
        found += _torn(columns, seen, lost)
    return found + _aborted(columns, versions) + _precommitted(columns, versions) + _ends(columns)


def _seen(columns: Columns, versions: Versions, only_final: bool) -> tuple[Flags, Ints, Ints]:
    """Which sends were read, the highest offset that was read of each key, and the rows of reads that count."""
    reads = columns.reads
    counted = np.arange(len(reads))
    if only_final:
        counted = np.flatnonzero(columns.operations.final[reads.operation])
    writers = versions.writer_of_read[counted]
    seen = np.zeros(len(columns.sends), dtype=np.bool_)
    seen[writers[writers >= 0]] = True
    highest = np.full(max(len(columns.keys), 1), -1, dtype=np.int64)
    order = np.argsort(versions.read_entry[counted], kind="stable")
    entries = versions.place[versions.read_entry[counted][order]]
    highest[entries >> OFFSET_BITS] = entries & ((1 << OFFSET_BITS) - 1)  # rising: the last one stays
    return seen, highest, counted


def _missing(name: str, columns: Columns, rows: Ints, highest: Ints, counted: Ints) -> list[Finding]:
    sends, reads = columns.sends, columns.reads
    examples = []
    for row in rows[:MOST_EXAMPLES]:
        key, offset = int(sends.key[row]), int(sends.offset[row])
        top = int(highest[key])
        where = f"offset {offset}" if offset != UNKNOWN_OFFSET else "an offset that was not told"
        text = f"{columns.keys[key]}: value {value_text(columns, int(sends.value[row]))} is acknowledged at {where}"
        witness = counted[(reads.key[counted] == key) & (reads.offset[counted] == top)]
        upto = f"reads went up to offset {top}" if top >= 0 else "no read of this partition found anything"
        examples.append(
            Example(
                f"{text}, and missing; {upto}",
                (int(sends.operation[row]), *(int(reads.operation[each]) for each in witness[:1])),
                (Place(key, offset if offset != UNKNOWN_OFFSET else None), Place(key, top if top >= 0 else None)),
            )
        )
    return finding(name, len(rows), examples)


def _torn(columns: Columns, seen: Flags, missing: Ints) -> list[Finding]:
    """Committed transactions of which some was read, and some is missing."""
    operations, sends = columns.operations, columns.sends
    missing = missing[operations.kind[sends.operation[missing]] == TXN]
    torn = np.unique(sends.operation[missing])
    if not len(torn):
        return []
    was_seen = np.zeros(len(operations), dtype=np.bool_)
    was_seen[sends.operation[seen]] = True
    torn = torn[was_seen[torn]]
    examples = []
    for operation in torn[:MOST_EXAMPLES]:
        rows = np.flatnonzero(sends.operation == operation)
        there = [_place_text(columns, int(row)) for row in rows if seen[row]]
        gone = [_place_text(columns, int(row)) for row in rows if row in missing]
        examples.append(
            Example(
                f"of one transaction {', '.join(there)} can be read, and {', '.join(gone)} cannot",
                (int(operation),),
                tuple(Place(int(sends.key[row]), int(sends.offset[row])) for row in rows),
            )
        )
    return finding("torn-transaction", len(torn), examples)


def _place_text(columns: Columns, send: int) -> str:
    sends = columns.sends
    offset = int(sends.offset[send])
    where = f" offset {offset}" if offset != UNKNOWN_OFFSET else ""
    return f"{columns.keys[sends.key[send]]}{where} (value {value_text(columns, int(sends.value[send]))})"


def _aborted(columns: Columns, versions: Versions) -> list[Finding]:
    """Reads of what certainly failed."""
    writers = versions.writer_of_read
    known = np.flatnonzero(writers >= 0)
    type_of_writer = columns.operations.type[columns.sends.operation[writers[known]]]
    rows = known[type_of_writer == FAIL_CODE]
    return finding("G1a", len(rows), _reads_of(columns, versions, rows, "was read, and its send failed for sure"))


def _precommitted(columns: Columns, versions: Versions) -> list[Finding]:
    """Reads of what a transaction sent, that ended before it began to commit."""
    operations, sends, reads = columns.operations, columns.sends, columns.reads
    known = np.flatnonzero(versions.writer_of_read >= 0)
    writer = sends.operation[versions.writer_of_read[known]]
    is_txn = operations.kind[writer] == TXN
    is_early = (operations.commit_time[writer] >= 0) & (
        operations.complete_time[reads.operation[known]] < operations.commit_time[writer]
    )
    rows = known[is_txn & (is_early | (writer == reads.operation[known]))]
    text = "was read before its transaction began to commit"
    return finding("precommitted-read", len(rows), _reads_of(columns, versions, rows, text))


def _ends(columns: Columns) -> list[Finding]:
    """Ends that were told behind a record of a transaction that had not begun to end by then.

    One whose own end nobody knows may have been ended before by others: by who took its place, or for taking too long.
    """
    operations, sends, ends = columns.operations, columns.sends, columns.ends
    is_txn, type_of = operations.kind[sends.operation] == TXN, operations.type[sends.operation]
    known = np.flatnonzero(is_txn & (type_of != INFO_CODE) & (sends.offset != UNKNOWN_OFFSET))
    examples = []
    for key in np.unique(ends.key):
        rows = known[sends.key[known] == key]
        rows = rows[np.argsort(sends.offset[rows], kind="stable")]
        latest = np.maximum.accumulate(operations.commit_time[sends.operation[rows]])
        asked = np.flatnonzero((ends.key == key) & (operations.type[ends.operation] == OK_CODE))
        below = np.searchsorted(sends.offset[rows], ends.offset[asked])
        answered = operations.complete_time[ends.operation[asked]]
        is_wrong = (below > 0) & (np.append(latest, -1)[below - 1] > answered)
        for at in np.flatnonzero(is_wrong):
            undecided = rows[: below[at]][operations.commit_time[sends.operation[rows[: below[at]]]] > answered[at]]
            examples.append(_end_example(columns, int(asked[at]), int(undecided[0])))
    return finding("end-beyond-stable", len(examples), examples)


def _end_example(columns: Columns, asked: int, send: int) -> Example:
    ends, sends = columns.ends, columns.sends
    key, offset, end = int(ends.key[asked]), int(sends.offset[send]), int(ends.offset[asked])
    text = f"{columns.keys[key]} was said to end at {end}, and the transaction of offset {offset} was still open"
    shown = int(sends.operation[send]), int(ends.operation[asked])
    return Example(text, shown, (Place(key, offset),))


def _reads_of(columns: Columns, versions: Versions, rows: Ints, what: str) -> list[Example]:
    sends, reads = columns.sends, columns.reads
    return [
        Example(
            f"{columns.keys[reads.key[row]]} offset {reads.offset[row]}: value"
            f" {value_text(columns, int(reads.value[row]))} {what}",
            tuple(dict.fromkeys((int(sends.operation[versions.writer_of_read[row]]), int(reads.operation[row])))),
            (Place(int(reads.key[row]), int(reads.offset[row])),),
        )
        for row in rows[:MOST_EXAMPLES]
    ]
