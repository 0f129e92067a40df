from __future__ import annotations

from kbroker.cluster.metadata_cache import MetadataCache
from kbroker.coordinator.any_group import GroupMaker
from kbroker.coordinator.consumer_group import ConsumerSettings
from kbroker.coordinator.group_events import GroupSettings
from kbroker.coordinator.group_story import GroupStories


def test_both_kinds_begin_empty_and_with_nothing_to_remove_but_their_own() -> None:
    maker = GroupMaker(GroupSettings(max_size=3), ConsumerSettings(max_size=4), MetadataCache(), GroupStories(5))
    classic, consumer = maker.classic("g", 0, 7), maker.consumer("g", 7)
    for group in (classic, consumer):
        assert (group.group_id, group.partition, group.state_name) == ("g", 7, "Empty")
        assert group.is_empty
        assert not group.is_dead
        assert not group.is_expected
    assert (classic.kind, consumer.kind) == ("classic", "consumer")
    assert (classic.settings.max_size, consumer.settings.max_size) == (3, 4)
    assert classic.tombstones() == []
    assert len(consumer.tombstones()) == 3
