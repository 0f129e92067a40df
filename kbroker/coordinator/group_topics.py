"""What the members of a group subscribe to, and which topics that are (pure).

Most members of a group subscribe alike: equal sets of names are one object here, which is looked at once, however many
members have it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kbroker.coordinator.consumer_member import ConsumerMember, Look
from kbroker.coordinator.topic_patterns import TopicPattern, Topics
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.security.acls import AclOperation, AclResource

MOST_NAMES = 100_000
"""Of topics, in subscriptions of a group that differ: all are looked at whenever one of them changes."""
NOTHING: frozenset[str] = frozenset()
DESCRIBE, TOPIC, HEARTBEAT = AclOperation.DESCRIBE, AclResource.TOPIC, "ConsumerGroupHeartbeat"


class GroupTopics:
    """The topics of one group."""

    def __init__(self, topics: Topics) -> None:
        self.known: dict[str, tuple[bytes, int]] = {}
        """Subscribed topics that exist: name -> (id, number of partitions)."""
        self.partitions = 0
        """How many they have together."""
        self.patterns: dict[str, TopicPattern] = {}
        """By expression: those of the members, and of some that have left until topics are looked at again."""
        self._topics = topics
        self._seen_updates = -1
        self._same: dict[frozenset[str], frozenset[str]] = {}

    def same(self, names: frozenset[str]) -> frozenset[str]:
        """Return the one object for these names."""
        return self._same.setdefault(names, names)

    def pattern_of(self, regex: str) -> TopicPattern:
        """Return the pattern of an expression. Raises KafkaError 128 for one that RE2 cannot read."""
        return self.patterns.get(regex) or TopicPattern(regex)

    def check_variety(
        self,
        members: Mapping[str, ConsumerMember],
        member_id: str,
        names: frozenset[str] | None,
        regex: str | None = None,
        pattern: TopicPattern | None = None,
    ) -> None:
        """Raise KafkaError 81 for a member's subscription like no other's where theirs differ too much already."""
        has_new_names = names is not None and names not in self._same
        has_new_pattern = pattern is not None and regex not in self.patterns
        if not has_new_names and not has_new_pattern:
            return
        others = [each for other_id, each in members.items() if other_id != member_id]
        known = sum(map(len, {each.topic_names for each in others}))
        expressions = {each.topic_regex for each in others if each.topic_regex is not None}
        known += sum(len(self.patterns[each].matches(self._topics)) for each in expressions)
        new = len(names or ()) if has_new_names else 0
        new += len(pattern.matches(self._topics)) if has_new_pattern and pattern is not None else 0
        if known and known + new > MOST_NAMES:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the subscriptions of the group's members that differ name {known} topics, and may {MOST_NAMES}:"
                " let members subscribe to the same topics",
            )

    def read_by(self, members: Iterable[ConsumerMember]) -> list[frozenset[str]]:
        """Return the names of the topics each member reads, of those that exist: one object for who reads the same."""
        topics = self._topics.topics
        found: dict[tuple[frozenset[str], frozenset[str]], frozenset[str]] = {}
        for_each = []
        for member in members:
            matched = NOTHING if member.topic_regex is None else self._matches(member, member.topic_regex)
            subscription = (member.topic_names, matched)
            if subscription not in found:
                found[subscription] = matched.union(name for name in member.topic_names if name in topics)
            for_each.append(found[subscription])
        return for_each

    def _matches(self, member: ConsumerMember, regex: str) -> frozenset[str]:
        """Return the topics that a member's pattern matches and that it may describe.

        By the rules of when it was heard of last, new topics by those of now: no heartbeat decides for all members.
        Who was not heard of since the group was read from the log keeps to the topics that the group had.
        """
        found = self.patterns[regex].matches(self._topics)
        authority = member.authority
        if authority is None:
            return found.intersection(self.known)
        if not authority.is_limited:
            return found
        look = member.look
        if look is None or look.regex != regex:
            look = Look(regex, NOTHING, NOTHING)
        if look.found is not found:
            kept = look.may & found
            new = (name for name in found - look.found if authority.could(DESCRIBE, TOPIC, name, HEARTBEAT))
            look = member.look = Look(regex, found, self.same(kept.union(new)))
        return look.may

    def partitions_of(self, names: frozenset[str] | None, pattern: TopicPattern | None) -> int:
        """Return how many partitions there are of these topics, those that the pattern matches counted as well."""
        topics = self._topics.topics
        found = (names or NOTHING).union(NOTHING if pattern is None else pattern.matches(self._topics))
        return sum(len(topics[name].partitions) for name in found if name in topics)

    @property
    def may_have_changed(self) -> bool:
        """Whether `refresh` would look."""
        return self._topics.updates != self._seen_updates

    def look_again(self) -> None:
        """Make the next `refresh` look, whether topics have changed or not."""
        self._seen_updates = -1

    def refresh(self, members: Collection[ConsumerMember]) -> bool:
        """Look at the topics again when they may have changed; True when those of the group have."""
        if not self.may_have_changed:
            return False
        self._seen_updates = self._topics.updates
        expressions = {member.topic_regex for member in members}
        self.patterns = {regex: pattern for regex, pattern in self.patterns.items() if regex in expressions}
        read_by = self.read_by(members)
        in_use = [member.topic_names for member in members]
        in_use += [member.look.may for member in members if member.look is not None]
        self._same = {names: names for names in in_use}
        topics = self._topics.topics
        names = NOTHING.union(*dict.fromkeys(read_by))
        known = {name: (topics[name].topic_id, len(topics[name].partitions)) for name in sorted(names)}
        if known == self.known:
            return False
        self.take(known)
        return True

    def take(self, known: dict[str, tuple[bytes, int]]) -> None:
        """Have these for the topics that exist."""
        self.known = known
        self.partitions = sum(count for _, count in known.values())
