"""The names of what a checker finds, by those of Jepsen's work on Kafka, and what each means.

What Kafka's own model allows is reported and condemns nobody: transactions write at once and are only seen at their
end, so that those of several producers interleave in the log; a consumer is promised an order within a partition, and
no picture of several partitions at one instant.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

MEANINGS = {
    "lost-write": "acknowledged, and missing though later offsets of its partition were read",
    "unseen": "acknowledged, and never read, though its partition was read to the end",
    "duplicate": "one value stands at several offsets",
    "inconsistent-offsets": "one offset had several values",
    "unexpected-value": "read, and never sent to that partition",
    "int-nonmonotonic-poll": "one operation read a partition backwards, or the same record twice",
    "int-poll-skip": "one operation read a partition and left out records that are there",
    "nonmonotonic-poll": "a consumer went backwards between two polls, with no rebalance or seek in between",
    "poll-skip": "a consumer left out records between two polls, with no rebalance or seek in between",
    "int-nonmonotonic-send": "records that one operation sent stand in another order",
    "nonmonotonic-send": "records that one producer sent one after the other stand in another order",
    "realtime-send-order": "sent after another was acknowledged, and stored before it",
    "G1a": "a record was read whose send or transaction failed (aborted read)",
    "precommitted-read": "a record was read before its transaction began to commit",
    "end-beyond-stable": "readers of committed records were told an end behind an open transaction",
    "torn-transaction": "of a committed transaction some records were read, and others are missing",
    "G1c": "transactions read each other's records: each would have had to commit before the other",
    "G1c-process": "a cycle of reads and of one process's order",
    "G1c-realtime": "a cycle of reads and of real time: something was read that was sent afterwards",
    "commit-beyond-processed": "a group's committed offset is behind records that no member has read",
    "stale-committed-offset": "a coordinator answered an offset that a later acknowledged commit had replaced",
    "aborted-offset-commit": "a coordinator answered an offset that only a failed transaction or commit had written",
    "unexpected-committed-offset": "a coordinator answered an offset that nobody had committed",
    "compacted-older-after-newer": "a key's older value stands behind a newer one",
    "admin-lost": "an acknowledged administrative change does not hold",
}
"""What Kafka promises not to happen."""
ALLOWED_MEANINGS = {
    "int-send-skip": "records of others lie between those of one operation",
    "G0": "transactions' writes interleave: each wrote before the other, in different partitions",
    "G0-process": "the same, by way of one process's order",
    "G0-realtime": "the same, by way of real time",
    "G1c-ww": "a cycle of reads and writes: writes are not isolated",
    "G1c-ww-process": "the same, by way of one process's order",
    "G1c-ww-realtime": "the same, by way of real time",
    "G-single": "a transaction saw what another did to one partition, and not to another (read skew)",
    "G-single-process": "the same, by way of one process's order",
    "G-single-realtime": "the same, by way of real time",
    "G2": "each of several transactions missed what another wrote (write skew)",
    "G2-process": "the same, by way of one process's order",
    "G2-realtime": "the same, by way of real time",
}
"""What its model allows."""
READ_UNCOMMITTED_ALLOWS = frozenset(
    {"G1a", "precommitted-read", "end-beyond-stable", "torn-transaction", "G1c", "G1c-process"}
)
"""What readers with isolation.level=read_uncommitted must expect besides."""
MOST_EXAMPLES = 8


@dataclass(frozen=True, slots=True)
class Place:
    """A spot in a partition that a finding is about."""

    key: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class Example:
    """One case, as small as it can be told."""

    text: str
    """What is wrong, in one sentence with raw offsets."""
    operations: tuple[int, ...]
    """Rows of the operations that show it."""
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """All cases of one anomaly."""

    name: str
    count: int
    examples: tuple[Example, ...] = field(default=())

    @property
    def meaning(self) -> str:
        """What the name means."""
        return MEANINGS.get(self.name) or ALLOWED_MEANINGS[self.name]


def finding(name: str, count: int, examples: Iterable[Example]) -> list[Finding]:
    """A list of one finding, or an empty one where nothing was counted; the smallest examples go first."""
    if not count:
        return []
    ordered = sorted(examples, key=lambda example: (len(example.operations), example.operations))
    return [Finding(name, count, tuple(ordered[:MOST_EXAMPLES]))]


def is_allowed(name: str, isolation: str) -> bool:
    """Whether Kafka's model, or the readers' isolation level, permits it."""
    return name in ALLOWED_MEANINGS or (isolation == "read_uncommitted" and name in READ_UNCOMMITTED_ALLOWS)
