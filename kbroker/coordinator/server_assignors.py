"""The coordinator's own assignors (KIP-848): who of a group reads which partitions (pure).

    uniform   as even as can be, and as few partitions change hands as that allows
    range     of each topic every subscriber gets a run of neighbouring partitions, the first ones one more: topics with
              as many partitions are split alike, so that equal keys of them meet in one member

An assignor gets what each member subscribes to, how many partitions each topic has, and what each member has now. In
the order in which the members are named they get their ranges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Generic, TypeVar

from kbroker.coordinator.consumer_member import Partitions

Subscriptions = Mapping[str, frozenset[bytes]]
"""member id -> topic ids"""
PartitionCounts = Mapping[bytes, int]
"""topic id -> number of partitions"""
Key = TypeVar("Key")
Value = TypeVar("Value", bound=Any)
Assignor = Callable[[Subscriptions, PartitionCounts, Mapping[str, Partitions]], dict[str, Partitions]]


class Least(Generic[Key, Value]):
    """Which of some has least, while what each has changes: a change costs the logarithm of how many there are."""

    def __init__(self, keys: Iterable[Key], value: Callable[[Key], Value]) -> None:
        self._value = value
        self._known = {key: value(key) for key in keys}
        """What the entry of each says. An entry that says something else is one too many."""
        self._heap = [(known, key) for key, known in self._known.items()]
        heapify(self._heap)

    def first(self) -> tuple[Value, Key]:
        """Return the least, and who has it."""
        heap = self._heap
        while True:
            value, key = heap[0]
            now = self._value(key)
            if value == now:
                return value, key
            if value == self._known[key]:  # it has got more since
                self._known[key] = now
                heapreplace(heap, (now, key))
            else:
                heappop(heap)

    def lost(self, key: Key) -> None:
        """Note that one has less than before."""
        now = self._value(key)
        if now < self._known[key]:
            self._known[key] = now
            heappush(self._heap, (now, key))


Alike = Least[str, int]
"""Members that subscribe to the same topics, by how many partitions they have.

Of a group most subscribe alike: what is asked for each topic is asked of those who are alike, not of each member.
"""


def assign_range(
    subscriptions: Subscriptions, counts: PartitionCounts, current: Mapping[str, Partitions]
) -> dict[str, Partitions]:
    """Runs of neighbouring partitions, by member id."""
    assigned: dict[str, dict[bytes, frozenset[int]]] = {member: {} for member in subscriptions}
    readers: dict[tuple[frozenset[bytes], ...], list[str]] = {}
    for topic, sets in _subscribed(subscriptions, counts).items():
        if (subscribers := readers.get(sets)) is None:
            alike = set(sets)
            subscribers = readers[sets] = [member for member, topics in subscriptions.items() if topics in alike]
        count = counts[topic]
        quota, extra = divmod(count, len(subscribers))
        start = 0
        for place, member in enumerate(subscribers[:count]):
            size = quota + (place < extra)
            assigned[member][topic] = frozenset(range(start, start + size))
            start += size
    return assigned


def _subscribed(subscriptions: Subscriptions, counts: PartitionCounts) -> dict[bytes, tuple[frozenset[bytes], ...]]:
    """Return which different subscriptions there are to each topic that somebody subscribes to."""
    found: dict[bytes, list[frozenset[bytes]]] = defaultdict(list)
    for topics in dict.fromkeys(subscriptions.values()):
        for topic in topics & counts.keys():
            found[topic].append(topics)
    return {topic: tuple(sets) for topic, sets in found.items()}


def assign_uniform(
    subscriptions: Subscriptions, counts: PartitionCounts, current: Mapping[str, Partitions]
) -> dict[str, Partitions]:
    """Even shares, keeping what members have."""
    return _Uniform(subscriptions, counts, current).assigned()


class _Uniform:
    """Partitions on their way to members."""

    def __init__(
        self, subscriptions: Subscriptions, counts: PartitionCounts, current: Mapping[str, Partitions]
    ) -> None:
        subscribed = _subscribed(subscriptions, counts)
        self._given: dict[str, dict[bytes, set[int]]] = {member: {} for member in subscriptions}
        self._holders: dict[bytes, set[str]] = {topic: set() for topic in subscribed}
        """Who has partitions of a topic."""
        self._loads = dict.fromkeys(subscriptions, 0)
        self._unassigned = {topic: set(range(counts[topic])) for topic in subscribed}
        for member, topics in subscriptions.items():
            for topic, partitions in current.get(member, {}).items():
                if topic in topics and topic in subscribed:
                    kept = partitions & self._unassigned[topic]
                    self._unassigned[topic] -= kept
                    self._give(member, topic, kept)
        alike: dict[frozenset[bytes], list[str]] = defaultdict(list)
        for member, topics in subscriptions.items():
            alike[topics].append(member)
        self._alike = {topics: Alike(members, self._loads.__getitem__) for topics, members in alike.items()}
        self._of_member = {member: self._alike[topics] for member, topics in subscriptions.items()}
        takers = {sets: [self._alike[topics] for topics in sets] for sets in dict.fromkeys(subscribed.values())}
        self._takers = {topic: takers[sets] for topic, sets in subscribed.items()}
        # Topics that fewest can take go first: what is left then fits everybody.
        sizes = {sets: sum(len(alike[topics]) for topics in sets) for sets in takers}
        self._order = sorted(subscribed, key=lambda topic: (sizes[subscribed[topic]], topic))

    def assigned(self) -> dict[str, Partitions]:
        """What each member gets."""
        for topic in self._order:
            self._hand_out(topic)
        while sum(self._level(topic) for topic in self._order):
            continue  # until no move makes two members more equal
        return {
            member: {topic: frozenset(partitions) for topic, partitions in shares.items()}
            for member, shares in self._given.items()
        }

    def _give(self, member: str, topic: bytes, partitions: Set[int]) -> None:
        if partitions:
            self._given[member].setdefault(topic, set()).update(partitions)
            self._holders[topic].add(member)
            self._loads[member] += len(partitions)

    def _take(self, member: str, topic: bytes, partition: int) -> None:
        """Take a partition away."""
        share = self._given[member][topic]
        share.remove(partition)
        if not share:
            del self._given[member][topic]
            self._holders[topic].remove(member)
        self._loads[member] -= 1
        self._of_member[member].lost(member)

    def _hand_out(self, topic: bytes) -> None:
        """Give each partition to the subscriber that has least."""
        poorest = self._poorest(topic)
        for partition in sorted(self._unassigned[topic]):
            (_, member), _ = poorest.first()
            self._give(member, topic, {partition})

    def _poorest(self, topic: bytes) -> Least[int, tuple[int, str]]:
        """Of those who may get a topic's partitions: by their place in `_takers`."""
        takers = self._takers[topic]
        return Least(range(len(takers)), lambda place: takers[place].first())

    def _level(self, topic: bytes) -> int:
        """Move partitions of a topic from who has most to who has least while that makes two more equal; how many."""
        moves, loads, takers = 0, self._loads, self._takers[topic]
        enough = min(alike.first()[0] for alike in takers) + 2
        if all(loads[member] < enough for member in self._holders[topic]):
            return 0
        # Loads as they were when they were pushed: one that has changed since is pushed anew.
        richest = [(-loads[member], member) for member in self._holders[topic]]
        heapify(richest)
        poorest = self._poorest(topic)
        places = {alike: place for place, alike in enumerate(takers)}
        ordered: dict[str, list[int]] = {}  # of who gives: none of them gets any, as they had more than who does
        while richest:
            most, giver = richest[0]
            if -most != loads[giver]:
                heapreplace(richest, (-loads[giver], giver))
                continue
            (least, taker), _ = poorest.first()
            if loads[giver] - least < 2:
                break
            if giver not in ordered:
                ordered[giver] = sorted(self._given[giver][topic])
            partition = ordered[giver].pop()
            self._take(giver, topic, partition)
            self._give(taker, topic, {partition})
            poorest.lost(places[self._of_member[giver]])
            moves += 1
            if giver not in self._holders[topic]:
                heappop(richest)
        return moves


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""By the name a member asks for; the first is used when none does."""
