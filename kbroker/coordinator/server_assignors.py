"""The coordinator's own assignors (KIP-848): who of a group reads which partitions (pure).

    uniform   as even as can be, and as few partitions change hands as that allows
    range     of each topic every subscriber gets a run of neighbouring partitions, the first ones one more: topics with
              as many partitions are split alike, so that equal keys of them meet in one member

An assignor gets what each member subscribes to, how many partitions each topic has, and what each member has now. In
the order in which the members are named they get their ranges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from kbroker.coordinator.consumer_member import Partitions

Subscriptions = Mapping[str, frozenset[bytes]]
"""member id -> topic ids"""
PartitionCounts = Mapping[bytes, int]
"""topic id -> number of partitions"""
Assignor = Callable[[Subscriptions, PartitionCounts, Mapping[str, Partitions]], dict[str, Partitions]]


def assign_range(
    subscriptions: Subscriptions, counts: PartitionCounts, current: Mapping[str, Partitions]
) -> dict[str, Partitions]:
    """Runs of neighbouring partitions, by member id."""
    assigned: dict[str, dict[bytes, frozenset[int]]] = {member: {} for member in subscriptions}
    for topic, count in counts.items():
        subscribers = [member for member, topics in subscriptions.items() if topic in topics]
        if not subscribers:
            continue
        quota, extra = divmod(count, len(subscribers))
        start = 0
        for place, member in enumerate(subscribers):
            size = quota + (place < extra)
            if size:
                assigned[member][topic] = frozenset(range(start, start + size))
            start += size
    return assigned


def assign_uniform(
    subscriptions: Subscriptions, counts: PartitionCounts, current: Mapping[str, Partitions]
) -> dict[str, Partitions]:
    """Even shares, keeping what members have."""
    topics = {topic for subscribed in subscriptions.values() for topic in subscribed if topic in counts}
    given: dict[str, dict[bytes, set[int]]] = {member: defaultdict(set) for member in subscriptions}
    unassigned = {topic: set(range(counts[topic])) for topic in topics}
    loads = dict.fromkeys(subscriptions, 0)
    for member, subscribed in subscriptions.items():
        for topic, partitions in current.get(member, {}).items():
            if topic in subscribed and topic in unassigned:
                kept = partitions & unassigned[topic]
                unassigned[topic] -= kept
                if kept:
                    given[member][topic] |= kept
                    loads[member] += len(kept)
    subscribers = {
        topic: sorted(member for member, subscribed in subscriptions.items() if topic in subscribed) for topic in topics
    }
    # Topics that fewest can take go first: what is left then fits everybody.
    for topic in sorted(topics, key=lambda each: (len(subscribers[each]), each)):
        _hand_out(topic, unassigned[topic], subscribers[topic], given, loads)
    _level(subscribers, given, loads)
    return {
        member: {topic: frozenset(partitions) for topic, partitions in shares.items() if partitions}
        for member, shares in given.items()
    }


def _hand_out(
    topic: bytes,
    partitions: set[int],
    subscribers: Sequence[str],
    given: dict[str, dict[bytes, set[int]]],
    loads: dict[str, int],
) -> None:
    """Give each partition to the subscriber that has least."""
    heap = [(loads[member], member) for member in subscribers]
    heapify(heap)
    for partition in sorted(partitions):
        load, member = heappop(heap)
        given[member][topic].add(partition)
        loads[member] = load + 1
        heappush(heap, (load + 1, member))


def _level(
    subscribers: Mapping[bytes, Sequence[str]], given: dict[str, dict[bytes, set[int]]], loads: dict[str, int]
) -> None:
    """Move partitions from who has most to who has least, until no move makes two members more equal."""
    moved = True
    while moved:
        moved = False
        for topic, members in subscribers.items():
            # The heaps hold loads as they were when pushed: one that has changed since is pushed anew.
            poorest = [(loads[member], member) for member in members]
            richest = [(-loads[member], member) for member in members if given[member][topic]]
            heapify(poorest)
            heapify(richest)
            while richest:
                least, taker = poorest[0]
                most, giver = richest[0]
                if least != loads[taker]:
                    heapreplace(poorest, (loads[taker], taker))
                elif -most != loads[giver]:
                    heapreplace(richest, (-loads[giver], giver))
                elif loads[giver] - least < 2:
                    break
                else:
                    partition = max(given[giver][topic])
                    given[giver][topic].remove(partition)
                    given[taker][topic].add(partition)
                    loads[giver] -= 1
                    loads[taker] += 1
                    moved = True
                    if not given[giver][topic]:
                        heappop(richest)


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""By the name a member asks for; the first is used when none does."""
