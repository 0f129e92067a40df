"""Who reads which partition: Java's assignors, with Java's results to the last partition, so that groups can be mixed.

An assignor is a name on the wire, what it adds to a member's subscription, and a pure function that the group's leader
calls: (partitions of each topic, members) -> partitions of each member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kbroker.client.group.sticky import assign_cooperatively, assign_sticky
from kbroker.client.group.subscriptions import Subscription
from kbroker.client.group.topic_racks import Members, Topics, is_rack_aware, racks_of_members
from kbroker.client.group.user_data import cooperative_user_data, sticky_user_data
from kbroker.client.types import TopicPartition
from kbroker.protocol.java_hash import java_hash, java_map_order

Assignment = dict[str, list[TopicPartition]]
"""Member id -> its partitions."""


@dataclass(frozen=True, slots=True)
class Assignor:
    """One way to share partitions out."""

    name: str
    assign: Callable[[Topics, Members], Assignment]
    user_data: Callable[[Sequence[TopicPartition], int], bytes | None]
    """Of the partitions last assigned to this member, and the generation that did so (-1 none)."""
    is_cooperative: bool = False
    """Whether members may keep their partitions while the group rebalances (KIP-429)."""


def _no_user_data(owned: Sequence[TopicPartition], generation: int) -> None:
    return None


def assign_range(topics: Topics, members: Members) -> Assignment:
    """Share each topic out by itself, in runs of partitions; topics with equal subscribers and sizes side by side."""
    result: Assignment = {member: [] for member in members}
    racks = racks_of_members(members)
    order = java_map_order((name for name, partitions in topics.items() if partitions), java_hash)
    states = [_TopicState(name, topics, members, racks) for name in order]
    if any(state.is_rack_aware for state in states):
        _assign_by_rack(states, result)
    for state in states:
        state.assign_runs(result, lambda member, partition: True)
    if any(state.is_rack_aware for state in states):
        for partitions in result.values():
            partitions.sort()
    return result


class _TopicState:
    """One topic while its partitions are handed out in runs."""

    def __init__(self, name: str, topics: Topics, members: Members, racks: Mapping[str, str]) -> None:
        self.name = name
        self.racks = topics[name]
        self.members = _in_member_order({key: value for key, value in members.items() if name in value.topics})
        self.member_racks = {member: racks.get(member) for member in self.members}
        self.left = dict.fromkeys(range(len(self.racks)))
        known = {rack for rack in self.member_racks.values() if rack}
        self.is_rack_aware = is_rack_aware(known, self.racks)
        self.rack_partitions = len(self.racks) if known else 0
        self._assigned = dict.fromkeys(self.members, 0)
        self._share, self._extra = divmod(len(self.racks), len(self.members)) if self.members else (0, 0)

    def room(self, member: str) -> int:
        """How many partitions the member may still get."""
        return max(0, self._share + (self._extra > 0) - self._assigned[member])

    def match(self, member: str, partition: int) -> bool:
        """Whether a replica is in the member's rack."""
        rack = self.member_racks[member]
        return rack is None or rack in self.racks[partition]

    def give(self, member: str, partitions: Sequence[int], result: Assignment) -> None:
        """Hand partitions out."""
        result[member] += [TopicPartition(self.name, partition) for partition in partitions]
        self._assigned[member] += len(partitions)
        if self._assigned[member] > self._share:
            self._extra -= 1
        for partition in partitions:
            self.left.pop(partition, None)

    def assign_runs(self, result: Assignment, may_assign: Callable[[str, int], bool]) -> None:
        """Give each member in turn what it has room for."""
        for member in self.members:
            if not self.left:
                return
            run = [partition for partition in self.left if may_assign(member, partition)][: self.room(member)]
            if run:
                self.give(member, run, result)


def _assign_by_rack(states: Sequence[_TopicState], result: Assignment) -> None:
    """First round where racks count (KIP-881): topics alike in members and size keep their partitions together."""
    alike: dict[tuple[object, ...], list[_TopicState]] = {}
    for state in states:
        alike.setdefault((*state.member_racks.items(), state.rack_partitions), []).append(state)
    for group in alike.values():
        if len(group) > 1:
            _assign_side_by_side(group, result)
        elif group[0].is_rack_aware:
            group[0].assign_runs(result, group[0].match)


def _assign_side_by_side(states: Sequence[_TopicState], result: Assignment) -> None:
    members = dict.fromkeys(states[0].members)
    for partition in range(states[0].rack_partitions):
        for member in members:
            if all(state.match(member, partition) and state.room(member) > 0 for state in states):
                for state in states:
                    state.give(member, [partition], result)
                if not any(state.room(member) > 0 for state in states):
                    del members[member]
                break


def assign_round_robin(topics: Topics, members: Members) -> Assignment:
    """Deal the partitions of all topics out like cards."""
    result: Assignment = {member: [] for member in members}
    order = _in_member_order(members)
    turn = 0
    for topic in sorted({topic for member in members.values() for topic in member.topics}):
        for partition in range(len(topics.get(topic, ()))):
            while topic not in members[order[turn]].topics:
                turn = (turn + 1) % len(order)
            result[order[turn]].append(TopicPartition(topic, partition))
            turn = (turn + 1) % len(order)
    return result


def _in_member_order(members: Members) -> list[str]:
    """Static members first, by instance id; then the others by member id."""

    def key(member: str) -> tuple[bool, str]:
        instance = members[member].instance_id
        return instance is None, member if instance is None else instance

    return sorted(members, key=key)


ASSIGNORS = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", assign_range, _no_user_data),
        Assignor("roundrobin", assign_round_robin, _no_user_data),
        Assignor("sticky", assign_sticky, sticky_user_data),
        Assignor("cooperative-sticky", assign_cooperatively, cooperative_user_data, is_cooperative=True),
    )
}
"""By the names that members use on the wire."""


def subscription_for(
    assignor: Assignor, topics: Sequence[str], owned: Sequence[TopicPartition], generation: int, rack: str,
    last: Sequence[TopicPartition],
) -> Subscription:  # fmt: skip
    """Return what a member says when it joins; `last`: what it was assigned, kept or given up since."""
    return Subscription(tuple(topics), assignor.user_data(last, generation), tuple(owned), generation, rack or None)
