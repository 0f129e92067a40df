"""What members subscribe to: members that subscribe alike cost what one costs, and there is an end to what differs."""

from __future__ import annotations

import pytest

from kbroker.coordinator import group_topics
from kbroker.coordinator.consumer_group import ConsumerHeartbeat
from kbroker.coordinator.topic_patterns import TopicPattern
from kbroker.protocol.errors import ErrorCode, KafkaError
from tests.kbroker.coordinator.test_consumer_group import Client, FakeTopic, make, settle, sizes


class CountedTopics(dict[str, FakeTopic]):
    """Counts how often it is asked for a topic."""

    asked = 0

    def __contains__(self, name: object) -> bool:
        self.asked += 1
        return super().__contains__(name)


def test_members_that_subscribe_alike_cost_no_more_looks_at_topics_than_one() -> None:
    group, topics = make({f"t{number}": 1 for number in range(100)})
    counted = topics.topics = CountedTopics(topics.topics)
    clients = [Client(group, f"m{number}", set(topics.topics)) for number in range(40)]
    settle(clients)
    assert sorted(sizes(clients)) == [2] * 20 + [3] * 20
    counted.asked = 0
    late = Client(group, "late", set(topics.topics))
    late.heartbeat(0)
    assert counted.asked <= 4 * len(topics.topics)
    settle([*clients, late])
    assert sum(sizes([*clients, late])) == 100


def test_members_that_all_subscribe_to_other_topics_are_refused_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_topics, "MOST_NAMES", 1_000)
    names = [f"t{number}" for number in range(100)]
    group, _ = make(dict.fromkeys(names, 1))
    crowd = [Client(group, f"m{number}", {*names, f"own-{number}"}) for number in range(9)]
    for client in crowd:
        client.heartbeat(0)
    with pytest.raises(KafkaError, match="subscribe to the same topics") as refused:
        Client(group, "one too many", {*names, "its own"}).heartbeat(0)
    assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(group.members) == len(crowd)
    Client(group, "like another", set(crowd[0].topics)).heartbeat(0)
    group.check()
    with pytest.raises(KafkaError, match="subscribe to the same topics"):
        group.heartbeat(ConsumerHeartbeat("p", 0, topic_regex=".*"), 0)


def test_what_a_member_subscribed_to_before_does_not_count_against_what_it_wants_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_topics, "MOST_NAMES", 100)
    names = [f"t{number}" for number in range(61)]
    group, _ = make(dict.fromkeys(names, 1))
    client = Client(group, "m", set(names))
    client.heartbeat(0)
    client.topics, client.tells_all = frozenset(names[1:]), True
    client.heartbeat(0)
    assert group.members["m"].topic_names == client.topics


def test_an_expression_that_two_bring_at_once_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_topics, "MOST_NAMES", 100)
    group, _ = make({f"t{number}": 1 for number in range(61)})
    for name in "ab":
        join = ConsumerHeartbeat(
            name, 0, rebalance_timeout_ms=1, topic_regex="t.*", pattern=TopicPattern("t.*"), owned={}
        )
        group.heartbeat(join, 0)
    assert group.members.keys() == {"a", "b"}
