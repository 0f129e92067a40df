"""Spark's JSON form of offsets, and how far a micro-batch goes."""

import json

import pytest

from kbroker.spark_connector.offset_specs import parse_offsets
from kbroker.spark_connector.read_options import TriggerLimits
from kbroker.spark_connector.stream_offsets import (
    are_two,
    count_new,
    end_of_batch,
    from_json,
    lost_between,
    to_json,
    topic_ids_in,
)

BEGINS = {("t", 0): 0, ("t", 1): 10, ("t", 2): 5}
LATEST = {("t", 0): 900, ("t", 1): 110, ("t", 2): 5}


def test_offsets_have_sparks_form_in_one_order_and_come_back() -> None:
    offsets = {("b", 10): 1, ("b", 9): 2, ("a", 0): 3}
    assert str(to_json(offsets)) == "{'a': {'0': 3}, 'b': {'9': 2, '10': 1}}"
    assert from_json(to_json(offsets)) == offsets
    with pytest.raises(ValueError, match="not of the form"):
        from_json({"t": 7})  # type: ignore[dict-item]


def test_ids_of_topics_stand_beside_the_offsets_where_readers_of_offsets_find_nothing() -> None:
    offsets, ids = {("b", 0): 1, ("a", 0): 3}, {"a": bytes(range(240, 256)), "b": bytes(16), "c": b"x" * 16}
    found = to_json(offsets, ids)
    assert found == {"a": {"0": 3}, "b": {"0": 1}, "a@8PHy8_T19vf4-fr7_P3-_w": {}}
    assert list(to_json({**offsets}, ids)) == list(found)
    assert from_json(found) == offsets
    assert topic_ids_in(found) == {"a": ids["a"]}
    assert topic_ids_in({"a": {"0": 3}}) == {}
    assert parse_offsets("startingOffsets", json.dumps(found)).by_partition == offsets
    with pytest.raises(ValueError, match="an id of a that is none"):
        topic_ids_in({"a@x": {}})


def test_what_is_lost_between_two_offsets_is_told_once_in_order() -> None:
    start = {("c", 0): 4, ("b", 0): 5, ("b", 1): 6, ("a", 0): 7}
    assert lost_between(start, {**start, ("d", 0): 0}, remade=()) == []
    assert lost_between(start, {("c", 0): 3, ("b", 0): 9, ("b", 1): 9}, remade={"b"}) == [
        "a-0 is gone",
        "topic b was deleted and made again",
        "c-0 ends at 3, before the offset 4 read so far",
    ]


def test_an_id_that_is_not_known_is_of_no_other_topic() -> None:
    assert are_two(b"x" * 16, b"y" * 16)
    assert not any(are_two(one, b"x" * 16) or are_two(b"x" * 16, one) for one in (b"x" * 16, bytes(16), None))


def test_without_a_limit_a_batch_takes_all_there_is() -> None:
    assert end_of_batch(BEGINS, LATEST, TriggerLimits(), {}) == LATEST
    assert count_new(BEGINS, LATEST) == 1000


def test_partitions_share_the_limit_by_what_they_hold() -> None:
    assert end_of_batch(BEGINS, LATEST, TriggerLimits(max_offsets=100), {}) == {
        ("t", 0): 90,
        ("t", 1): 20,
        ("t", 2): 5,
    }


def test_a_small_partition_is_not_starved() -> None:
    assert end_of_batch(BEGINS, LATEST, TriggerLimits(max_offsets=3), {}) == {("t", 0): 2, ("t", 1): 11, ("t", 2): 5}


def test_a_limit_of_bytes_counts_with_the_partitions_sizes() -> None:
    end = end_of_batch(BEGINS, LATEST, TriggerLimits(max_bytes=9_500), {("t", 0): 100.0, ("t", 1): 50.0})
    assert end == {("t", 0): 90, ("t", 1): 20, ("t", 2): 5}
