"""The sticky assignors: partitions shared out evenly, and as few as possible change hands (KIP-54, KIP-429, KIP-881).

Where all members subscribe to the same topics there is a quick way (`_Quotas`); where they do not, `uneven.py` has the
general one. Both do what Java's do in Java's order, so that leaders of either kind agree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from kbroker.client.group.subscriptions import NO_GENERATION, Subscription
from kbroker.client.group.topic_racks import GroupRacks, Members, Topics
from kbroker.client.group.uneven import UnevenAssignment
from kbroker.client.group.user_data import cooperative_previous, sticky_previous
from kbroker.client.types import TopicPartition
from kbroker.protocol.java_hash import java_hash, java_map_order

Assignment = dict[str, list[TopicPartition]]
Previous = Callable[[Subscription], tuple[Sequence[TopicPartition], int | None]]


def assign_sticky(topics: Topics, members: Members) -> Assignment:
    """Assign for members that have given everything up and want it back."""
    return _assign(topics, members, sticky_previous)[0]


def assign_cooperatively(topics: Topics, members: Members) -> Assignment:
    """Assign for members that keep what they have: what changes hands is first taken away, then given."""
    assignment, moving = _assign(topics, members, cooperative_previous)
    if moving is None:
        moving = _moving(members, assignment)
    for partition, member in moving.items():
        if partition in assignment[member]:
            assignment[member].remove(partition)
    return assignment


def _moving(members: Members, assignment: Assignment) -> dict[TopicPartition, str]:
    """Return the partitions that one member has and another is to get, with the latter."""
    added: dict[TopicPartition, str] = {}
    revoked: set[TopicPartition] = set()
    for member, partitions in assignment.items():
        owned = set(members[member].owned)
        added |= {partition: member for partition in partitions if partition not in owned}
        revoked |= owned.difference(partitions)
    return {partition: member for partition, member in added.items() if partition in revoked}


def _assign(
    topics: Topics, members: Members, previous: Previous
) -> tuple[Assignment, dict[TopicPartition, str] | None]:
    """Return the assignment and what changes hands; None where nobody kept account of that."""
    wanted = {topic for member in members.values() for topic in member.topics}
    topics = {topic: partitions for topic, partitions in topics.items() if topic in wanted}
    ordered = {member: members[member] for member in java_map_order(members, java_hash)}
    owned, disputed = _owned(topics, ordered, previous)
    racks = GroupRacks(topics, members)
    if len({frozenset(member.topics) for member in members.values()}) <= 1:
        quotas = _Quotas(topics, owned, disputed, racks)
        return quotas.build(), quotas.moving
    return UnevenAssignment(topics, ordered, owned, racks, previous).build(), None


def _owned(topics: Topics, members: Members, previous: Previous) -> tuple[Assignment, set[TopicPartition]]:
    """Return what each member had, the younger generation's word before the older's; and what two claim alike."""
    owned: Assignment = {}
    owner: dict[TopicPartition, str] = {}
    disputed: set[TopicPartition] = set()
    for member, subscription in members.items():
        had, generation = previous(subscription)
        mine = owned[member] = []
        for partition in had:
            if partition.partition >= len(topics.get(partition.topic, ())):
                continue
            other = owner.get(partition)
            # Java compares with the generation in the other's subscription, whatever its user data says.
            gap = 0 if other is None else _known(generation) - max(members[other].generation, NO_GENERATION)
            if other is not None and gap < 0:
                continue
            if other is not None and partition in owned[other]:
                owned[other].remove(partition)
            if other is not None and gap == 0:
                disputed.add(partition)
            else:
                mine.append(partition)
            owner[partition] = member
    return owned, disputed


def _known(generation: int | None) -> int:
    return NO_GENERATION if generation is None else generation


class _Quotas:
    """Each member gets the smaller or the larger share; as many get the larger one as there is remainder."""

    def __init__(self, topics: Topics, owned: Assignment, disputed: set[TopicPartition], racks: GroupRacks) -> None:
        self.moving: dict[TopicPartition, str] = {}
        self._topics, self._owned, self._disputed, self._racks = topics, owned, disputed, racks
        self._small, self._remainder = divmod(sum(map(len, topics.values())), len(owned))
        self._large = self._small + (self._remainder > 0)
        self._with_large = 0
        self._below: list[str] = []
        """Members that have less than the smaller share."""
        self._may_grow: list[str] = []
        """Members with exactly the smaller share that may still get one more."""
        self._revoked: dict[TopicPartition, str] = {}
        self._assignment: Assignment = {member: [] for member in owned}

    def build(self) -> Assignment:
        """Keep what can be kept, then give the rest: near first, then in turns."""
        for member in self._owned:
            self._keep(member)
        kept = {partition for partitions in self._assignment.values() for partition in partitions}
        self._below.sort()
        self._may_grow.sort()
        rest = [
            key for topic in sorted(self._topics) for index in range(len(self._topics[topic]))
            if (key := TopicPartition(topic, index)) not in kept
        ]  # fmt: skip
        rest = self._racks.fewest_consumers_first(rest)
        if self._racks.members:
            rest = self._give_near(rest)
        self._give_in_turns(rest)
        return self._assignment

    def _keep(self, member: str) -> None:
        """Leave a member what it had, up to its share."""
        far = [key for key in self._owned[member] if self._racks.mismatch(member, key)]
        near = [key for key in self._owned[member] if not self._racks.mismatch(member, key)]
        mine = sorted((key for key in near if key not in self._disputed), key=lambda key: (key.partition, key.topic))
        if len(mine) < self._small:
            self._below.append(member)
            share = len(mine)
        elif len(mine) >= self._large and self._with_large < self._remainder:
            self._count_large()
            share = self._large
        else:
            share = self._small
            if self._with_large < self._remainder:
                self._may_grow.append(member)
        self._assignment[member] += mine[:share]
        self._revoked |= dict.fromkeys([*far, *mine[share:]], member)

    def _count_large(self) -> None:
        self._with_large += 1
        if self._with_large == self._remainder:
            self._may_grow.clear()

    def _give_near(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Give partitions to members in their racks, in turns; returns those that nobody near could take."""
        turn = 0
        rest = []
        for partition in partitions:
            member = None
            at = self._next_near(partition, self._below, turn)
            if at is not None:
                member = self._below[at]
                count = len(self._assignment[member]) + 1
                if count >= self._small:
                    self._below.remove(member)
                    if count < self._large and self._with_large < self._remainder:
                        self._may_grow.append(member)
                else:
                    at += 1
                turn = at % len(self._below) if self._below else 0
            elif (at := self._next_near(partition, self._may_grow, 0)) is not None:
                member = self._may_grow[at]
                if len(self._assignment[member]) + 1 == self._large:
                    del self._may_grow[at]
                    self._count_large()
            if member is None:
                rest.append(partition)
            else:
                self._give(partition, member)
        return rest

    def _next_near(self, partition: TopicPartition, members: list[str], first: int) -> int | None:
        for step in range(len(members)):
            at = (first + step) % len(members)
            if self._racks.matches(members[at], partition):
                return at
        return None

    def _give_in_turns(self, partitions: list[TopicPartition]) -> None:
        """Fill the members that are below the smaller share in turns, then let some grow."""
        below, may_grow = deque(self._below), deque(self._may_grow)
        for partition in partitions:
            if not below:
                self._give(partition, may_grow.popleft())
                continue
            member = below.popleft()
            if self._give(partition, member) == self._small:
                may_grow.append(member)
            else:
                below.append(member)

    def _give(self, partition: TopicPartition, member: str) -> int:
        """Give one partition; returns how many the member has now."""
        self._assignment[member].append(partition)
        if self._revoked.get(partition, member) != member or partition in self._disputed:
            self.moving[partition] = member
        return len(self._assignment[member])
