from __future__ import annotations

from kbroker.protocol.grouping import TopicPartition, by_topic


def test_partitions_are_grouped_by_topic() -> None:
    assert by_topic([("a", 0), ("b", 1), ("a", 2)]) == {"a": [0, 2], "b": [1]}


def test_a_named_pair_is_found_where_any_pair_is() -> None:
    assert {("a", 1): "here"}[TopicPartition("a", 1)] == "here"
    assert str(TopicPartition("a", 1)) == "a-1"
