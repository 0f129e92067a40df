"""A member of a group of the newer protocol (KIP-848), and the step that brings it nearer to its target (pure).

    STABLE ──target changed──▶ UNREVOKED ──gave up what it must──▶ STABLE or UNRELEASED
                 │                                                      ▲
                 └──nothing to give up──▶ STABLE or UNRELEASED ──others gave up──┘

A member keeps its epoch until it has confirmed, by the partitions it says it owns, that it gave up everything that is
not in its target any more. Then it gets the target's epoch, and those partitions of it that nobody else still owns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from kbroker.coordinator.member import NEVER
from kbroker.security.authorizer import Everything

Partitions = dict[bytes, frozenset[int]]
"""topic id -> partitions; no entry is empty."""

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


class Look(NamedTuple):
    """What a pattern was found to match when its member was heard of last."""

    regex: str
    found: frozenset[str]
    """All topics."""
    may: frozenset[str]
    """Those of them that the member may describe."""


class MemberState(IntEnum):
    """As it is written in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClassicMembership:
    """What is kept of a member that speaks the classic protocol in a group of the newer one."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(slots=True, eq=False)
class ConsumerMember:
    """One member."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    """RE2 syntax; matched against whole names."""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMembership | None = None
    epoch: int = JOIN_EPOCH
    previous_epoch: int = LEAVE_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    pending_revocation: Partitions = field(default_factory=dict)
    deadline: int = NEVER
    """When it is taken for dead unless it is heard of."""
    revocation_deadline: int = NEVER
    """When it must have given up what it has to."""
    authority: Everything | None = None
    """What it may do; None until it is heard of."""
    seen_rules: int = -1
    """Version of the access rules by which its pattern was looked at last."""
    look: Look | None = None
    """What its pattern means, of a member that may not describe everything."""

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has all of the target of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def current(self) -> tuple[object, ...]:
        """Everything that is written as the member's current assignment."""
        return self.epoch, self.previous_epoch, self.state, self.assigned, self.pending_revocation

    def subscription(self) -> tuple[object, ...]:
        """Everything that is written as the member's metadata."""
        return (
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.topic_names,
            self.topic_regex,
            self.rebalance_timeout_ms,
            self.server_assignor,
            self.classic,
        )

    def reconcile(
        self,
        target_epoch: int,
        target: Mapping[bytes, frozenset[int]],
        owned: Partitions | None,
        is_free: Callable[[bytes, int], bool],
    ) -> None:
        """Go a step towards the target. `owned`: what the member says it has now; None when it did not say.

        `is_free(topic, partition)`: whether no other member has it, or has still to give it up.
        """
        if self.state is MemberState.STABLE and self.epoch == target_epoch:
            return
        if self.state is MemberState.UNREVOKED_PARTITIONS and (
            owned is None or intersection(owned, self.pending_revocation)
        ):
            return
        kept = intersection(self.assigned, target)
        revoked = difference(self.assigned, target)
        if revoked and (owned is None or intersection(owned, revoked)):
            self.state = MemberState.UNREVOKED_PARTITIONS
            self.assigned, self.pending_revocation = kept, revoked
            return
        wanted = difference(target, kept)
        free = {topic: frozenset(each for each in parts if is_free(topic, each)) for topic, parts in wanted.items()}
        self.assigned = union(kept, free)
        self.pending_revocation = {}
        self.state = MemberState.STABLE if self.assigned == target else MemberState.UNRELEASED_PARTITIONS
        self.move_to(target_epoch)

    def move_to(self, epoch: int) -> None:
        """Take a new epoch; the one before is still accepted from a member that missed the answer."""
        if epoch != self.epoch:
            self.previous_epoch, self.epoch = self.epoch, epoch


def union(first: Mapping[bytes, frozenset[int]], second: Mapping[bytes, frozenset[int]]) -> Partitions:
    """Return what is in either."""
    merged = {topic: first.get(topic, frozenset()) | second.get(topic, frozenset()) for topic in {*first, *second}}
    return {topic: partitions for topic, partitions in merged.items() if partitions}


def intersection(first: Mapping[bytes, frozenset[int]], second: Mapping[bytes, frozenset[int]]) -> Partitions:
    """Return what is in both."""
    common = {topic: partitions & second[topic] for topic, partitions in first.items() if topic in second}
    return {topic: partitions for topic, partitions in common.items() if partitions}


def difference(first: Mapping[bytes, frozenset[int]], second: Mapping[bytes, frozenset[int]]) -> Partitions:
    """Return what is in the first only."""
    left = {topic: partitions - second.get(topic, frozenset()) for topic, partitions in first.items()}
    return {topic: partitions for topic, partitions in left.items() if partitions}
