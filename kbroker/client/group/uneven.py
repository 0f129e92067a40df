"""The sticky assignment where members subscribe to different topics: partitions move one by one until it is balanced.

Java's algorithm in Java's order (see sticky.py). Balanced means: nobody could take over a partition from somebody who
has at least two more.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence

from kbroker.client.group.subscriptions import NO_GENERATION, Subscription
from kbroker.client.group.topic_racks import GroupRacks, Members, Topics
from kbroker.client.types import TopicPartition
from kbroker.protocol.java_hash import java_hash, java_map_order

Assignment = dict[str, list[TopicPartition]]
Pair = tuple[str, str]
"""From one member to another."""


class UnevenAssignment:
    """One assignment under way; `owned` is what each member has now, and is taken over."""

    def __init__(
        self,
        topics: Topics,
        members: Members,
        owned: Assignment,
        racks: GroupRacks,
        previous: Callable[[Subscription], tuple[Sequence[TopicPartition], int | None]],
    ) -> None:
        self._racks = racks
        self._assignment = owned
        self._topics_of = {
            member: [topic for topic in subscription.topics if topic in topics]
            for member, subscription in members.items()
        }
        self._members_of: dict[str, list[str]] = {topic: [] for topic in topics}
        for member, some in self._topics_of.items():
            for topic in some:
                self._members_of[topic].append(member)
        self._owner = {partition: member for member, partitions in owned.items() for partition in partitions}
        self._sizes = {topic: len(partitions) for topic, partitions in topics.items()}
        by_demand = sorted(topics, key=lambda topic: (len(self._members_of[topic]), topic))
        self._partitions = [TopicPartition(topic, index) for topic in by_demand for index in range(self._sizes[topic])]
        self._must_revoke = False
        self._order: list[tuple[int, str]] = []
        """(number of partitions, member) of those that take part, the one with the fewest first."""
        self._movements = _Movements()
        self._previous = _older_owners(members, previous)

    def build(self) -> Assignment:
        """Keep what can be kept, give out the rest, then balance."""
        kept = self._keep()
        self._order = sorted((len(partitions), member) for member, partitions in self._assignment.items())
        is_first = self._order[-1][0] == 0
        rest = [partition for partition in self._partitions if partition not in kept]
        self._give(rest)
        contended = {topic for topic, members in self._members_of.items() if len(members) >= 2}
        movable = [partition for partition in self._partitions if partition.topic in contended]
        rest = [partition for partition in rest if partition.topic in contended]
        fixed = {
            member: self._assignment.pop(member) for member in self._topics_of if self._is_fixed(member, contended)
        }
        self._order = [entry for entry in self._order if entry[1] not in fixed]
        before = {member: list(partitions) for member, partitions in self._assignment.items()}
        if not self._must_revoke:
            self._balance(rest)
        moved = self._balance(movable)
        if moved and not is_first and _imbalance(self._assignment) >= _imbalance(before):
            self._assignment = before
        return self._assignment | fixed

    def _keep(self) -> set[TopicPartition]:
        """Take away what a member does not want any more or what is in other racks; returns the rest."""
        for member, partitions in self._assignment.items():
            wanted = set(self._topics_of[member])
            kept = [key for key in partitions if key.topic in wanted and not self._racks.mismatch(member, key)]
            self._must_revoke |= len(kept) < len(partitions)
            self._assignment[member] = kept
        return {partition for partitions in self._assignment.values() for partition in partitions}

    def _give(self, partitions: list[TopicPartition]) -> None:
        """Give each to the member with the fewest that wants it: first within racks, then anywhere."""
        if self._racks.members:
            partitions = [key for key in partitions if not self._give_one(key, near=True)]
        for partition in partitions:
            self._give_one(partition, near=False)

    def _give_one(self, partition: TopicPartition, near: bool) -> bool:
        wanting = set(self._members_of[partition.topic])
        for at, (count, member) in enumerate(self._order):
            if member in wanting and not (near and self._racks.mismatch(member, partition)):
                del self._order[at]
                bisect.insort(self._order, (count + 1, member))
                self._assignment[member].append(partition)
                self._owner[partition] = member
                return True
        return False

    def _is_fixed(self, member: str, contended: set[str]) -> bool:
        """Whether a member has all it can get, and nothing that others want."""
        mine = self._assignment[member]
        return len(mine) >= sum(self._sizes[topic] for topic in self._topics_of[member]) and not any(
            key.topic in contended for key in mine
        )

    def _is_balanced(self) -> bool:
        if not self._order or self._order[0][0] >= self._order[-1][0] - 1:
            return True
        largest: dict[str, int] = {}
        for partitions in self._assignment.values():
            for topic in {key.topic for key in partitions}:
                largest[topic] = max(largest.get(topic, 0), len(partitions))
        return not any(
            count + 1 < largest.get(topic, 0) for count, member in self._order for topic in self._topics_of[member]
        )

    def _balance(self, partitions: Sequence[TopicPartition]) -> bool:
        """Move partitions while that helps; returns whether one moved."""
        moved, modified = False, True
        while modified:
            modified = False
            balanced = self._is_balanced()
            for partition in partitions:
                if balanced:
                    break
                if self._improve(partition):
                    moved = modified = True
                    balanced = self._is_balanced()
        return moved

    def _improve(self, partition: TopicPartition) -> bool:
        """Move one partition to somebody who has at least two fewer, if there is one."""
        count = len(self._assignment[self._owner[partition]])
        earlier = self._previous.get(partition)
        # Java does not look whether the earlier owner still subscribes, and may give it what it does not want.
        may_return = earlier in self._assignment and partition.topic in self._topics_of[earlier]
        if earlier is not None and may_return and count > len(self._assignment[earlier]) + 1:
            self._move(partition, earlier)
            return True
        wanting = self._members_of[partition.topic]
        if not any(count > len(self._assignment[other]) + 1 for other in wanting):
            return False
        fewest = next(member for _, member in self._order if partition.topic in self._topics_of[member])
        self._move(partition, fewest)
        return True

    def _move(self, partition: TopicPartition, new: str) -> None:
        partition = self._movements.better_choice(partition, self._owner[partition], new)
        old = self._owner[partition]
        for member in (old, new):
            del self._order[bisect.bisect_left(self._order, (len(self._assignment[member]), member))]
        self._movements.record(partition, old, new)
        self._assignment[old].remove(partition)
        self._assignment[new].append(partition)
        self._owner[partition] = new
        for member in (old, new):
            bisect.insort(self._order, (len(self._assignment[member]), member))


class _Movements:
    """Which partitions went from whom to whom, so that nobody swaps two partitions of a topic for nothing."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[Pair, dict[TopicPartition, None]]] = {}
        self._pairs: dict[TopicPartition, Pair] = {}

    def record(self, partition: TopicPartition, old: str, new: str) -> None:
        """Take note of a move; one that takes another back ends both."""
        before = self._pairs.pop(partition, None)
        pairs = self._by_topic.setdefault(partition.topic, {})
        if before is not None:
            del pairs[before][partition]
            if not pairs[before]:
                del pairs[before]
            old = before[0]
        if old != new:
            self._pairs[partition] = (old, new)
            pairs.setdefault((old, new), {})[partition] = None

    def better_choice(self, partition: TopicPartition, old: str, new: str) -> TopicPartition:
        """Return a partition of the same topic that came the opposite way, if there is one, to send that back."""
        if partition in self._pairs:
            old = self._pairs[partition][0]
        back = self._by_topic.get(partition.topic, {}).get((new, old))
        return java_map_order(back, _java_partition_hash)[0] if back else partition


def _java_partition_hash(partition: TopicPartition) -> int:
    return 31 * (31 + partition.partition) + java_hash(partition.topic)


def _older_owners(
    members: Mapping[str, Subscription],
    previous: Callable[[Subscription], tuple[Sequence[TopicPartition], int | None]],
) -> dict[TopicPartition, str]:
    """Return who had a partition in a generation before the newest: the youngest of these."""
    found = {member: previous(subscription) for member, subscription in members.items()}
    newest = max((NO_GENERATION if generation is None else generation for _, generation in found.values()), default=-1)
    owners: dict[TopicPartition, tuple[str, int]] = {}
    for member, (partitions, generation) in found.items():
        known = NO_GENERATION if generation is None else generation
        if known >= newest:
            continue
        for partition in partitions:
            if partition not in owners or known > owners[partition][1]:
                owners[partition] = (member, known)
    return {partition: member for partition, (member, _) in owners.items()}


def _imbalance(assignment: Assignment) -> int:
    """Sum up the differences between each two members."""
    sizes = sorted(map(len, assignment.values()))
    return sum(size * (2 * at - len(sizes) + 1) for at, size in enumerate(sizes))
