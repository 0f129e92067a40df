from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from kbroker.coordinator.topic_patterns import TopicPattern
from kbroker.protocol.errors import ErrorCode, KafkaError
from tests.kbroker.coordinator.test_consumer_group import FakeTopics


def topics(*names: str) -> FakeTopics:
    known = FakeTopics()
    for name in names:
        known.set(name, 1)
    return known


def test_whole_names_match_and_changes_are_seen() -> None:
    known = topics("orders", "orders-eu", "my-orders", "__consumer_offsets")
    pattern = TopicPattern("orders.*|__.*")
    assert pattern.matches(known) == {"orders", "orders-eu", "__consumer_offsets"}
    known.set("orders-us", 1)
    known.delete("orders")
    assert pattern.matches(known) == {"orders-eu", "orders-us", "__consumer_offsets"}


def test_each_name_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known = topics("a1", "a2", "b")
    pattern = TopicPattern("a.*", ["a1", "b", "gone"])
    asked: list[str] = []
    fullmatch = pattern._pattern.fullmatch
    monkeypatch.setattr(
        pattern, "_pattern", SimpleNamespace(fullmatch=lambda name: asked.append(name) or fullmatch(name))
    )
    assert pattern.matches(known) == {"a1", "a2"}
    known.set("a3", 1)
    assert pattern.matches(known) == {"a1", "a2", "a3"}
    assert asked == ["a2", "a3"]
    known.set("gone", 1)
    assert pattern.matches(known) == {"a1", "a2", "a3"}
    assert asked == ["a2", "a3", "gone"], "what went is forgotten"


@pytest.mark.parametrize("expression", ["(", "[", "(?=x)", r"(a)\1", "((((a{100}){100}){100}){100})"])
def test_what_re2_cannot_read_is_told(expression: str) -> None:
    with pytest.raises(KafkaError, match="RE2") as refused:
        TopicPattern(expression)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_an_expression_made_to_be_slow_is_not() -> None:
    begun = time.thread_time()
    assert not TopicPattern("(a+)+b").matches(topics(*(f"{'a' * 240}-{number}" for number in range(100))))
    assert time.thread_time() - begun < 5


def test_groups_of_an_expression_cost_nothing_as_nobody_asks_what_they_caught() -> None:
    """In RE2 the states of a search hold two places for each group: 15,000 of them took gigabytes."""
    begun = time.thread_time()
    assert TopicPattern("(" * 5_000 + "a" + ")" * 5_000).matches(topics("a", *map(str, range(50)))) == {"a"}
    assert time.thread_time() - begun < 1


def test_patterns_share_what_they_have_looked_at() -> None:
    """A set of all topics in each of thousands of groups would be gigabytes."""
    known = topics("a1", "b")
    patterns = [TopicPattern(expression, known.topics) for expression in ("a.*", "b")]
    assert [pattern.matches(known) for pattern in patterns] == [{"a1"}, {"b"}]
    assert all(pattern._names is known.names and not pattern._found for pattern in patterns)
    before = patterns[0].matches(known)
    known.set("c", 1)
    assert patterns[0].matches(known) is before
