"""Where replicas and members are, for assignors that mind racks (KIP-881): pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kbroker.client.group.subscriptions import Subscription
from kbroker.client.types import TopicPartition

Racks = Sequence[frozenset[str]]
"""For each partition of a topic the racks of its replicas; as many as there are partitions."""
Topics = Mapping[str, Racks]
Members = Mapping[str, Subscription]


def racks_of_members(members: Members) -> dict[str, str]:
    """Return the rack of each member that has one."""
    return {member: subscription.rack for member, subscription in members.items() if subscription.rack}


def is_rack_aware(member_racks: Collection[str], partitions: Collection[frozenset[str]]) -> bool:
    """Whether minding racks can help: some match, and not every partition is in all of them."""
    all_racks = frozenset[str]().union(*partitions)
    return not all_racks.isdisjoint(member_racks) and any(racks != all_racks for racks in partitions)


class GroupRacks:
    """A group's members and partitions by rack; without racks that matter nothing mismatches."""

    def __init__(self, topics: Topics, members: Members) -> None:
        racks = racks_of_members(members)
        self._consumers: dict[TopicPartition, int] = {}
        """How many members are in a rack of the partition: counted as soon as one member has a rack."""
        self.members: dict[str, str] = {}
        self.partitions: dict[TopicPartition, frozenset[str]] = {}
        if not racks:
            return
        found = {TopicPartition(name, index): of for name, all_of in topics.items() for index, of in enumerate(all_of)}
        per_rack = {rack: sum(other == rack for other in racks.values()) for rack in set(racks.values())}
        self._consumers = {key: sum(per_rack.get(rack, 0) for rack in of) for key, of in found.items()}
        if is_rack_aware(set(racks.values()), found.values()):
            self.members, self.partitions = racks, found

    def mismatch(self, member: str, partition: TopicPartition) -> bool:
        """Whether the member has a rack and the partition no replica there."""
        rack = self.members.get(member)
        return rack is not None and rack not in self.partitions.get(partition, ())

    def matches(self, member: str, partition: TopicPartition) -> bool:
        """Whether the member has a rack and the partition a replica there."""
        rack = self.members.get(member)
        return rack is not None and rack in self.partitions.get(partition, ())

    def fewest_consumers_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Sort so that partitions that few members have near come first."""
        return sorted(partitions, key=lambda key: self._consumers.get(key, 0)) if self._consumers else partitions
