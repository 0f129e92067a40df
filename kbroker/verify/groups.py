"""Whether groups' committed offsets hold: none beyond what was processed, none that has been replaced."""

from __future__ import annotations

import numpy as np

from kbroker.verify.anomalies import Example, Finding, Place, finding
from kbroker.verify.columns import FAIL_CODE, NEVER, OK_CODE, Columns, Flags, GroupOffsets, Ints
from kbroker.verify.versions import OFFSET_BITS, Versions, places


def check_groups(columns: Columns, versions: Versions) -> list[Finding]:
    """All findings of this module."""
    return _beyond_processed(columns, versions) + _answers(columns)


def _beyond_processed(columns: Columns, versions: Versions) -> list[Finding]:
    """Records below a group's highest committed offset that no process of the group has read."""
    commits, operations = columns.commits, columns.operations
    succeeded = np.flatnonzero(operations.type[commits.operation] == OK_CODE)
    count, examples = 0, []
    for group in np.unique(commits.group[succeeded]):
        rows = succeeded[commits.group[succeeded] == group]
        members = np.unique(operations.process[commits.operation[commits.group == group]])
        processed = _read_by(columns, versions, members)
        for key in np.unique(commits.key[rows]):
            of_key = rows[commits.key[rows] == key]
            highest = of_key[np.argmax(commits.offset[of_key])]
            skipped = _unread_below(versions, processed, int(key), int(commits.offset[highest]))
            count += len(skipped)
            if len(skipped):
                examples.append(_beyond_example(columns, versions, int(highest), skipped))
    return finding("commit-beyond-processed", count, examples)


def _read_by(columns: Columns, versions: Versions, members: Ints) -> Flags:
    """Which entries were read by processes."""
    is_member = np.zeros(len(columns.processes), dtype=np.bool_)
    is_member[members] = True
    reads = columns.reads
    # What the last phase reads is read by no group.
    operations = columns.operations
    counts = is_member[operations.process[reads.operation]] & (operations.final[reads.operation] == 0)
    found = np.zeros(len(versions.place), dtype=np.bool_)
    found[versions.read_entry[counts]] = True
    return found


def _unread_below(versions: Versions, processed: Flags, key: int, offset: int) -> Ints:
    first, end = np.searchsorted(versions.place, [key << OFFSET_BITS, (key << OFFSET_BITS) | offset])
    part = slice(first, end)
    return np.flatnonzero(versions.is_visible[part] & ~processed[part]) + int(first)


def _beyond_example(columns: Columns, versions: Versions, commit: int, skipped: Ints) -> Example:
    commits, sends = columns.commits, columns.sends
    offset, key = int(commits.offset[commit]), int(commits.key[commit])
    missed = versions.offset(int(skipped[0]))
    text = f"group {columns.groups[commits.group[commit]]} committed {offset} of {columns.keys[key]}"
    return Example(
        f"{text}, and none of its members has read offset {missed} ({len(skipped)} such records)",
        (int(sends.operation[versions.send[skipped[0]]]), int(commits.operation[commit])),
        (Place(key, missed), Place(key, offset)),
    )


def _answers(columns: Columns) -> list[Finding]:
    """Judge what coordinators answered: the offset of the last commit, or of one that was under way."""
    commits, fetches, operations = columns.commits, columns.fetches, columns.operations
    answered = np.flatnonzero(operations.type[fetches.operation] == OK_CODE)
    ends = operations.end_time
    found: dict[str, list[Example]] = {}
    partitions = _by_partition(commits)
    for fetch in answered:
        rows = partitions.get((int(fetches.group[fetch]), int(fetches.key[fetch])))
        verdict = _judge(columns, ends, int(fetch), rows)
        if verdict is not None:
            name, example = verdict
            found.setdefault(name, []).append(example)
    return [each for name, examples in sorted(found.items()) for each in finding(name, len(examples), examples)]


def _by_partition(commits: GroupOffsets) -> dict[tuple[int, int], Ints]:
    if not len(commits):
        return {}
    code = places(commits.group, commits.key)
    order = np.argsort(code, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(code[order])) + 1)
    return {(int(commits.group[part[0]]), int(commits.key[part[0]])): part for part in parts}


def _judge(columns: Columns, ends: Ints, fetch: int, rows: Ints | None) -> tuple[str, Example] | None:
    """The name and the example of what is wrong with an answer; None where nothing is."""
    commits, fetches, operations = columns.commits, columns.fetches, columns.operations
    operation, offset = int(fetches.operation[fetch]), int(fetches.offset[fetch])
    asked, answered = operations.invoke_time[operation], ends[operation]
    rows = np.empty(0, dtype=np.int64) if rows is None else rows
    kinds = operations.type[commits.operation[rows]]
    begun = operations.invoke_time[commits.operation[rows]]
    ended = np.where(kinds == FAIL_CODE, NEVER, ends[commits.operation[rows]])
    done = np.flatnonzero((kinds == OK_CODE) & (ended < asked))
    last = done[np.argmax(begun[done])] if len(done) else None
    replaced_before = begun[last] if last is not None else -1
    same = (commits.offset[rows] == offset) & (begun < answered)
    if (same & (kinds != FAIL_CODE) & (ended >= replaced_before)).any() or (offset == -1 and last is None):
        return None
    shown = [] if last is None else [int(commits.operation[rows[last]])]
    newest = "" if last is None else f", and {commits.offset[rows[last]]} was committed before it was asked"
    if offset == -1 or (same & (kinds != FAIL_CODE)).any():
        name, why = "stale-committed-offset", newest
    elif same.any():
        name, why = "aborted-offset-commit", ", and whoever committed it failed"
        shown = [int(commits.operation[rows[np.flatnonzero(same)[0]]])]
    else:
        name, why = "unexpected-committed-offset", ", and nobody committed it"
    key = int(fetches.key[fetch])
    text = f"group {columns.groups[fetches.group[fetch]]}: the committed offset of {columns.keys[key]} is {offset}{why}"
    return name, Example(text, (*shown, operation), (Place(key, offset if offset >= 0 else None),))
