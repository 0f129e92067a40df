from __future__ import annotations

import time

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


@pytest.mark.parametrize("expression", ["(", "[", "(?=x)", r"(a)\1", "((((a{100}){100}){100}){100})"])
def test_what_re2_cannot_read_is_told(expression: str) -> None:
    with pytest.raises(KafkaError, match="RE2") as refused:
        TopicPattern(expression)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_an_expression_made_to_be_slow_is_not() -> None:
    begun = time.thread_time()
    assert not TopicPattern("(a+)+b").matches(topics(*(f"{'a' * 240}-{number}" for number in range(100))))
    assert time.thread_time() - begun < 5
