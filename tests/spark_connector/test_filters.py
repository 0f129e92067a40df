"""Which filters are taken, what they spare, and which are left to Spark."""

import datetime
from typing import Any

import pytest

from kbroker.spark_connector.filters import Interval, Pushed, push

spark_filters = pytest.importorskip("pyspark.sql.datasource")
NOON = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)
NOON_MS = 1_704_110_400_000


def make(name: str, column: str, *value: Any) -> Any:
    return getattr(spark_filters, name)((column,), *value)


def taken(*filters: Any, keys_are_text: bool = False) -> Pushed:
    pushed, left = push(filters, keys_are_text=keys_are_text)
    assert left == []
    return pushed


def test_topic_and_partition_choose_partitions() -> None:
    places = [(topic, number) for topic in ("a", "b") for number in range(4)]

    def left(*filters: Any) -> list[tuple[str, int]]:
        pushed = taken(*filters)
        return [place for place in places if pushed.allows(place)]

    assert left(make("EqualTo", "topic", "a"), make("LessThan", "partition", 2)) == [("a", 0), ("a", 1)]
    assert left(make("In", "partition", (1, 3)), make("GreaterThanOrEqual", "partition", 2)) == [("a", 3), ("b", 3)]
    assert left(spark_filters.Not(make("EqualTo", "topic", "a")), make("EqualNullSafe", "partition", 0)) == [("b", 0)]
    assert left(spark_filters.Not(make("In", "partition", (0, 1, 2))), make("IsNotNull", "topic")) == [
        ("a", 3),
        ("b", 3),
    ]


def test_offsets_bound_the_ranges() -> None:
    assert taken(make("GreaterThan", "offset", 5), make("LessThanOrEqual", "offset", 9)).offsets == Interval(6, 9)
    assert taken(make("GreaterThanOrEqual", "offset", 5), make("LessThan", "offset", 9)).offsets == Interval(5, 8)
    assert taken(make("EqualTo", "offset", 7)).offsets == Interval(7, 7)


def test_times_become_bounds_in_whole_milliseconds_that_lose_no_row() -> None:
    moment = NOON + datetime.timedelta(microseconds=1_500)
    after, before = taken(make("GreaterThan", "timestamp", moment)), taken(make("LessThan", "timestamp", moment))
    assert (after.start_ms, after.end_ms) == (NOON_MS + 1, None)
    assert (before.start_ms, before.end_ms) == (None, NOON_MS + 2)
    assert taken(make("LessThan", "timestamp", NOON)).end_ms == NOON_MS
    assert taken(make("LessThanOrEqual", "timestamp", NOON)).end_ms == NOON_MS + 1


def test_a_time_before_1970_is_no_place_to_seek_as_records_without_a_time_stand_anywhere() -> None:
    the_sixties = datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC)
    assert taken(make("GreaterThanOrEqual", "timestamp", the_sixties)).start_ms is None
    just_before = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=datetime.UTC)
    assert taken(make("GreaterThanOrEqual", "timestamp", just_before)).start_ms is None
    assert taken(make("GreaterThan", "timestamp", just_before)).start_ms is None
    assert taken(make("GreaterThanOrEqual", "timestamp", NOON)).start_ms == NOON_MS


def test_keys_name_their_partitions_as_kafkas_producers_do() -> None:
    pushed = taken(make("In", "key", (b"a", b"b", b"c")), make("EqualTo", "key", b"b"))
    assert pushed.keys == frozenset({b"b"})
    assert pushed.key_places({"t": 1}) == {("t", 0)}
    assert taken().key_places({"t": 1}) is None
    assert push([make("EqualTo", "key", b"b")], columns=["topic"])[0] == Pushed(), "that key is a field of the value"
    assert taken(make("EqualTo", "key", "b"), keys_are_text=True).keys == frozenset({b"b"})
    [(_, number)] = taken(make("EqualTo", "key", b"21")).key_places({"t": 1000}) or {}
    assert number == 340, "murmur2(21) is -973932308, as in Kafka's UtilsTest"


@pytest.mark.parametrize(
    "left",
    [
        make("EqualTo", "value", b"x"),
        make("StringStartsWith", "topic", "a"),
        make("EqualTo", "topic", None),
        make("In", "partition", (1, None)),
        make("EqualTo", "partition", 1.5),
        make("IsNull", "topic"),
        make("IsNotNull", "key"),
        make("GreaterThan", "key", b"a"),
        make("EqualTo", "key", "text"),
        make("EqualTo", "timestamp", datetime.datetime(2024, 1, 1)),
        spark_filters.Not(make("LessThan", "offset", 5)),
        spark_filters.EqualTo(("value", "carrier"), "UA"),
    ],
)
def test_what_is_not_understood_is_left_to_spark_as_the_same_object(left: Any) -> None:
    pushed, rest = push([left])
    assert pushed == Pushed()
    assert len(rest) == 1
    assert rest[0] is left
