"""The two kinds of groups: classic ones, and those of the newer protocol (KIP-848)."""

from __future__ import annotations

from dataclasses import dataclass

from kbroker.coordinator.consumer_group import ConsumerSettings
from kbroker.coordinator.group import Group
from kbroker.coordinator.group_events import GroupSettings
from kbroker.coordinator.group_story import GroupStories
from kbroker.coordinator.mixed_group import MixedGroup
from kbroker.coordinator.topic_patterns import Topics

AnyGroup = Group | MixedGroup


@dataclass(frozen=True, slots=True)
class GroupMaker:
    """Makes the groups of a broker's coordinator, without members."""

    settings: GroupSettings
    consumer_settings: ConsumerSettings
    topics: Topics
    stories: GroupStories

    def classic(self, group_id: str, now: int, partition: int) -> Group:
        """Return a classic group."""
        return Group(group_id, self.settings, now, partition, self.stories.of(group_id))

    def consumer(self, group_id: str, partition: int) -> MixedGroup:
        """Return a group of the newer protocol."""
        return MixedGroup(group_id, self.consumer_settings, self.topics, partition, self.stories.of(group_id))
