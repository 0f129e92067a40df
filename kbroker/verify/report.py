"""What a judgement says, in words: the verdict first, the smallest counterexample, all findings, how well it served."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kbroker.verify.anomalies import Example, Finding
from kbroker.verify.checker import ANOMALY, Judgement
from kbroker.verify.columns import KINDS, TYPES, UNKNOWN_OFFSET, Columns
from kbroker.verify.versions import value_text

AROUND = 3
"""So many offsets around a place are shown of an operation."""
MOST_RECORDS = 12
MOST_GAPS = 3


def report_text(judgement: Judgement) -> str:
    """The whole report."""
    return "\n".join(_lines(judgement)) + "\n"


def smallest(judgement: Judgement) -> tuple[Finding, Example] | None:
    """The counterexample with the fewest operations, of the anomalies."""
    found = [(each, example) for each in judgement.anomalies for example in each.examples]
    return min(found, key=lambda pair: (len(pair[1].operations), len(pair[1].text)), default=None)


def _lines(judgement: Judgement) -> Iterator[str]:
    columns = judgement.columns
    yield f"{judgement.verdict.upper()}: {judgement.reason}"
    sends, reads = len(columns.sends), len(columns.reads)
    yield f"{len(columns.operations)} operations, {sends} records sent, {reads} read, {len(columns.faults)} faults"
    shown = smallest(judgement)
    if judgement.verdict == ANOMALY and shown is not None:
        yield ""
        yield f"Smallest counterexample ({shown[0].name}): {shown[1].text}"
        yield from (f"  {line}" for line in operation_lines(columns, shown[1]))
    for title, findings, shown_of_each in (
        ("Anomalies", judgement.anomalies, 3),
        ("Allowed by Kafka's model", judgement.allowed, 0),
    ):
        if findings:
            yield ""
            yield f"{title}:"
        for each in findings:
            yield f"  {each.name}: {each.count} ({each.meaning})"
            yield from (f"    {example.text}" for example in each.examples[:shown_of_each])
    yield ""
    yield from _served(judgement)


def _served(judgement: Judgement) -> Iterator[str]:
    availability = judgement.availability
    yield "Availability:"
    for gap in availability.gaps[:MOST_GAPS]:
        yield f"  {gap.key}: longest time without an acknowledgement {gap.seconds:.2f} s, from {gap.begin_s:.2f} s on"
    for each in availability.recoveries:
        took = (
            "no acknowledgement afterwards" if each.seconds is None else f"{each.seconds:.2f} s until all took records"
        )
        yield f"  healed at {each.healed_s:.2f} s: {took} (last: {each.key})"
    yield f"  most records acknowledged and not yet read: {availability.worst_lag}"


def operation_lines(columns: Columns, example: Example) -> list[str]:
    """The operations of an example, cut down to what lies around its places."""
    wanted = {(place.key, place.offset) for place in example.places}
    return [_operation_line(columns, row, wanted) for row in example.operations]


def _operation_line(columns: Columns, row: int, wanted: set[tuple[int, int | None]]) -> str:
    operations = columns.operations
    begin = f"{operations.invoke_time[row] / 1e9:.6f}"
    complete = int(operations.complete_index[row])
    end = f"{operations.complete_time[row] / 1e9:.6f}" if complete >= 0 else "…"
    what = f"{TYPES[operations.type[row]]} {KINDS[operations.kind[row]]}"
    index = f"#{operations.invoke_index[row]}" + (f"-#{complete}" if complete >= 0 else "")
    text = f"{index} process {columns.processes[operations.process[row]]} {begin}-{end} s {what}"
    return f"{text}: {'; '.join(_contents(columns, row, wanted)) or 'nothing'}"


def _contents(columns: Columns, row: int, wanted: set[tuple[int, int | None]]) -> Iterator[str]:
    for word, records in (("send", columns.sends), ("read", columns.reads)):
        first, end = np.searchsorted(records.operation, [row, row + 1])
        shown = [at for at in range(first, end) if _is_near(int(records.key[at]), int(records.offset[at]), wanted)]
        for at in shown[:MOST_RECORDS]:
            offset = int(records.offset[at])
            where = "?" if offset == UNKNOWN_OFFSET else str(offset)
            yield f"{word} {columns.keys[records.key[at]]}[{where}]={value_text(columns, int(records.value[at]))}"
        if len(shown) > MOST_RECORDS:
            yield f"{len(shown) - MOST_RECORDS} more"
    for word, offsets in (("commit", columns.commits), ("committed", columns.fetches)):
        first, end = np.searchsorted(offsets.operation, [row, row + 1])
        for at in range(first, end):
            yield f"{word} {columns.groups[offsets.group[at]]} {columns.keys[offsets.key[at]]}={offsets.offset[at]}"
    first, end = np.searchsorted(columns.ends.operation, [row, row + 1])
    yield from (f"end {columns.keys[columns.ends.key[at]]}={columns.ends.offset[at]}" for at in range(first, end))
    yield from (str(answers) for at, answers in columns.admin if at == row)


def _is_near(key: int, offset: int, wanted: set[tuple[int, int | None]]) -> bool:
    """Whether a record lies near a place; without any places all do."""
    if not wanted:
        return True
    return any(
        key == other and (at is None or offset == UNKNOWN_OFFSET or abs(offset - at) <= AROUND) for other, at in wanted
    )
