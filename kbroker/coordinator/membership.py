"""Who belongs to a group: members, their leader, static members, ids handed out, protocols in common (pure).

The group's state machine (group.py) is built on this; here nothing is decided and nobody is answered.
"""

from __future__ import annotations

from collections import Counter

from kbroker.coordinator.member import Member, Protocols
from kbroker.coordinator.subscriptions import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from kbroker.protocol.errors import ErrorCode


class Membership:
    """The members of one group."""

    def __init__(self) -> None:
        self.protocol_type: str | None = None
        """None: it never had members, it only stores offsets."""
        self.protocol_name: str | None = None
        """Of the current generation."""
        self.leader: str | None = None
        """A member id; None only when there are no members."""
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """instance id -> member id"""
        self.pending_members: dict[str, int] = {}
        """Ids handed out by error 79 and not used yet, with the time they are forgotten."""
        self.pending_sync: set[str] = set()
        """Members of this generation that have not sent their SyncGroup."""
        self.subscribed_topics: frozenset[str] | None = None
        """Of all members; None when that is not known."""
        self._protocol_counts: Counter[str] = Counter()

    @property
    def is_consumer_group(self) -> bool:
        """Whether its members are consumers, so that their subscriptions can be read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members'."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def has_subscribed(self, topic: str) -> bool:
        """Whether a member reads the topic, as far as is known."""
        return self.subscribed_topics is None or topic in self.subscribed_topics

    def member_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return whether this is a member: 82 when its instance id is another's by now, 25 when it is unknown."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def insert(self, member: Member, protocol_type: str | None) -> None:
        """Take in a member; the first one leads, and says what type of group it is."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.pending_members.pop(member.member_id, None)
        self._count(member.protocols, 1)

    def remove(self, member: Member) -> None:
        """Let a member go; when it led, any other does."""
        del self.members[member.member_id]
        self.pending_sync.discard(member.member_id)
        self._count(member.protocols, -1)
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member's place to its new self."""
        former_id = member.member_id
        assert member.group_instance_id is not None
        del self.members[former_id]
        member.member_id = member_id
        self.members[member_id] = member
        self.static_members[member.group_instance_id] = member_id
        if self.leader == former_id:
            self.leader = member_id
        if former_id in self.pending_sync:
            self.pending_sync.discard(former_id)
            self.pending_sync.add(member_id)

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        """Note what a member can use now."""
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def clear(self) -> None:
        """Forget everybody."""
        self.members.clear()
        self.static_members.clear()
        self.pending_members.clear()
        self.pending_sync.clear()
        self._protocol_counts.clear()
        self.leader = None

    def supports(self, protocols: Protocols) -> bool:
        """Whether all members have one of these."""
        count = len(self.members)
        return any(self._protocol_counts[name] == count for name, _ in protocols)

    def select_protocol(self) -> str:
        """Return what most members want of the protocols that all have; of equals the one wanted first."""
        count = len(self.members)
        candidates = {name for name, supporters in self._protocol_counts.items() if supporters == count}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def subscriptions(self) -> frozenset[str] | None:
        """Return the topics that consumers of this generation read; None when that cannot be known."""
        if not self.is_consumer_group:
            return None
        return subscribed_topics(member.metadata(self.protocol_name) for member in self.members.values())

    def topics_of(self, protocols: Protocols) -> frozenset[str] | None:
        """Return the topics of a consumer with these; None where that cannot be known."""
        return subscribed_topics(metadata for _, metadata in protocols) if self.is_consumer_group else None

    def _count(self, protocols: Protocols, change: int) -> None:
        for name in {name for name, _ in protocols}:
            self._protocol_counts[name] += change
            if not self._protocol_counts[name]:
                del self._protocol_counts[name]

    def check(self) -> None:
        """Assert what always holds."""
        members = self.members
        assert all(key == member.member_id for key, member in members.items())
        assert (self.leader is None) == (not members), (self.leader, members)
        assert self.leader is None or self.leader in members
        assert self.static_members == {
            member.group_instance_id: key for key, member in members.items() if member.group_instance_id is not None
        }
        assert not self.pending_members.keys() & members.keys()
        assert self.pending_sync <= members.keys()
        assert self._protocol_counts == Counter(
            name for member in members.values() for name in {name for name, _ in member.protocols}
        )
