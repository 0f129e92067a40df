"""What a compacted topic must not show: a key's older value behind a newer one."""

from __future__ import annotations

import numpy as np

from kbroker.verify.anomalies import MOST_EXAMPLES, Example, Finding, Place, finding
from kbroker.verify.columns import Columns
from kbroker.verify.versions import OFFSET_BITS, Versions, value_text


def check_compaction(columns: Columns, versions: Versions) -> list[Finding]:
    """Look for neighbours among the entries of one record key that are older the later they stand.

    One entry is older than another where it was acknowledged before the other was sent.
    """
    sends, operations = columns.sends, columns.operations
    entries = np.flatnonzero(versions.send >= 0)
    entries = entries[sends.record_key[versions.send[entries]] >= 0]
    if len(entries) < 2:
        return []
    send = versions.send[entries]
    group = (versions.place[entries] >> OFFSET_BITS) * len(columns.record_keys) + sends.record_key[send]
    order = np.argsort(group, kind="stable")
    entries, send, group = entries[order], send[order], group[order]
    invoked = operations.invoke_time[sends.operation[send]]
    completed = operations.end_time[sends.operation[send]]
    found = np.flatnonzero((group[1:] == group[:-1]) & (completed[1:] < invoked[:-1]))
    examples = []
    for at in found[:MOST_EXAMPLES]:
        key = versions.key(int(entries[at]))
        offsets = [versions.offset(int(each)) for each in entries[at : at + 2]]
        values = [value_text(columns, int(sends.value[each])) for each in send[at : at + 2]]
        record_key = columns.record_keys[sends.record_key[send[at]]]
        text = f"{columns.keys[key]}, record key {record_key!r}: the newer value {values[0]} is at offset {offsets[0]}"
        shown = tuple(int(sends.operation[each]) for each in send[at : at + 2])
        places = tuple(Place(key, offset) for offset in offsets)
        examples.append(Example(f"{text}, the older {values[1]} behind it, at {offsets[1]}", shown, places))
    return finding("compacted-older-after-newer", len(found), examples)
