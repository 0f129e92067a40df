"""The times of the controller's events."""

from __future__ import annotations

from kbroker.controller import events
from kbroker.controller.event_times import EventTimes


def test_events_are_counted_under_kafkas_word_for_them() -> None:
    times = EventTimes()
    times.add(events.TopicsListed(frozenset()), 0.25)
    times.add(events.TopicsModified({}), 0.5)
    times.add(events.BrokersListed({}), 1)
    times.add(events.BrokerFellBehind(1), 1)
    counted = {kind: each.sum for kind, each in times.by_kind.items() if each.count}
    assert counted == {"TopicChange": 750, "LeaderElection": 1000}
