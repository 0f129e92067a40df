"""Whether acknowledged administrative changes hold once all is healed.

Operations of `admin` events: ["create-topic", name, partitions], ["create-partitions", name, count],
["delete-topic", name], and at the end, of the type ok and final: ["topics", {name: partitions}].
"""

from __future__ import annotations

from typing import Any

from kbroker.verify.anomalies import Example, Finding, finding
from kbroker.verify.columns import FAIL_CODE, OK_CODE, Columns


def check_admin(columns: Columns) -> list[Finding]:
    """Compare what was changed with the last list of topics."""
    operations = columns.operations
    changes: list[tuple[int, list[Any]]] = []
    listed: tuple[int, dict[str, int]] | None = None
    for row, answers in columns.admin:
        for answer in answers:
            if answer[0] == "topics":
                if len(answer) > 1 and operations.type[row] == OK_CODE and operations.final[row]:
                    listed = row, answer[1]
            elif operations.type[row] != FAIL_CODE:
                changes.append((row, answer))
    if listed is None:
        return []
    by_topic: dict[str, list[tuple[int, list[Any]]]] = {}
    for row, change in changes:
        by_topic.setdefault(change[1], []).append((row, change))
    examples = [
        example for topic, found in by_topic.items() for example in _judge(columns, topic, found, listed[0], listed[1])
    ]
    return finding("admin-lost", len(examples), examples)


def _judge(
    columns: Columns, topic: str, changes: list[tuple[int, list[Any]]], listing: int, topics: dict[str, int]
) -> list[Example]:
    """What is wrong with one topic; its last change counts if it is known to be the last."""
    operations = columns.operations
    ends = operations.end_time
    row, last = max(changes, key=lambda each: int(operations.invoke_time[each[0]]))
    begun = operations.invoke_time[row]
    others = [other for other, _ in changes if other != row]
    if operations.type[row] != OK_CODE or any(ends[other] >= begun for other in others):
        return []
    partitions = topics.get(topic)
    what = last[0]
    if what == "delete-topic":
        wrong = None if partitions is None else f"topic {topic} was deleted, and is there"
    elif partitions is None:
        wrong = f"topic {topic}: {what} was acknowledged, and the topic is missing"
    else:
        wrong = None if partitions == last[2] else f"topic {topic} must have {last[2]} partitions, and has {partitions}"
    return [] if wrong is None else [Example(wrong, (row, listing))]
