"""A query's filters and what they spare: partitions not read, offsets to begin and end at, rows to drop. Pure.

    topic, partition   =  <=>  IN  < <= > >=  and their negations choose partitions
    offset             =  <  <=  >  >=  cut the ranges
    timestamp          =  <  <=  >  >=  seek, and drop rows
    key                =  <=>  IN  choose partitions where asked to, and drop rows

Each filter that is taken is kept in full, so that Spark does not evaluate it again; all others are Spark's.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kbroker.protocol.grouping import Key

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "In": lambda value, values: value in values,
}
NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
COLUMNS = ("key", *NEVER_NULL)
FARTHEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class PlaceFilter:
    """A comparison of topic or partition with a value."""

    column: str
    comparison: str
    value: Any
    negated: bool = False

    def allows(self, place: Key) -> bool:
        """Whether rows of the partition can pass."""
        found = place[0] if self.column == "topic" else place[1]
        return COMPARISONS[self.comparison](found, self.value) != self.negated


@dataclass(frozen=True, slots=True)
class Interval:
    """low <= value <= high."""

    low: int = -FARTHEST
    high: int = FARTHEST

    def cut(self, comparison: str, value: int) -> Interval:
        """Return what of it passes a comparison."""
        if comparison in ("EqualTo", "EqualNullSafe"):
            return Interval(max(self.low, value), min(self.high, value))
        if comparison in ("LessThan", "LessThanOrEqual"):
            return Interval(self.low, min(self.high, value - (comparison == "LessThan")))
        return Interval(max(self.low, value + (comparison == "GreaterThan")), self.high)


@dataclass(frozen=True, slots=True)
class Pushed:
    """The filters that were taken."""

    places: tuple[PlaceFilter, ...] = ()
    offsets: Interval = Interval()
    timestamps_us: Interval = Interval()
    """Microseconds since 1970."""
    keys: frozenset[bytes] | None = None
    """The keys that pass; None: all, null too."""
    said: tuple[str, ...] = field(default=(), compare=False)
    """Each filter in words, for the log."""

    @property
    def start_ms(self) -> int | None:
        """Return a time such that no row before the first record so young can pass; None: there is none.

        Records without a time have -1: a seek to a time before 1970 would pass them over.
        """
        return None if self.timestamps_us.low < 0 else self.timestamps_us.low // 1000

    @property
    def end_ms(self) -> int | None:
        """Return the first millisecond that cannot pass; None: there is none."""
        return None if self.timestamps_us.high == FARTHEST else max(0, self.timestamps_us.high // 1000 + 1)

    def allows(self, place: Key) -> bool:
        """Whether a partition has to be read."""
        return all(each.allows(place) for each in self.places)

    def key_places(self, counts: Mapping[str, int]) -> set[Key] | None:
        """Return the partitions that the keys belong to by Kafka's default partitioner; None: any."""
        from kbroker.protocol.records.partitioner import partition_for_key

        if self.keys is None:
            return None
        return {(topic, partition_for_key(key, count)) for topic, count in counts.items() for key in self.keys}


def push(
    filters: Sequence[Any], columns: Collection[str] = COLUMNS, keys_are_text: bool = False
) -> tuple[Pushed, list[Any]]:
    """Take what can be taken of Spark's filters; return it and the filters that are left to Spark, the same objects.

    `columns`: those of the frame that are not fields of the value, `key` only where it is bytes or text as stored.
    """
    pushed, left = Pushed(), []
    for each in filters:
        further = _take(pushed, each, columns, keys_are_text)
        if further is None:
            left.append(each)
        else:
            pushed = replace(further, said=(*pushed.said, str(each)))
    return pushed, left


def _take(pushed: Pushed, given: Any, columns: Collection[str], keys_are_text: bool) -> Pushed | None:
    name, negated = type(given).__name__, False
    if name == "Not":
        given, negated = given.child, True
        name = type(given).__name__
    if len(given.attribute) != 1 or given.attribute[0] not in columns:
        return None
    column, value = given.attribute[0], getattr(given, "value", None)
    if name in ("IsNotNull", "IsNull"):
        is_true = column in NEVER_NULL and (name == "IsNotNull") != negated
        return pushed if is_true else None
    if name not in COMPARISONS or value is None or (name == "In" and None in value):
        return None
    if column in ("topic", "partition"):
        values = value if name == "In" else [value]
        if not all(isinstance(each, str if column == "topic" else int) for each in values):
            return None
        return replace(pushed, places=(*pushed.places, PlaceFilter(column, name, value, negated)))
    if negated:
        return None
    if column == "key":
        return _take_key(pushed, name, value, keys_are_text)
    if name == "In":
        return None
    if column == "offset":
        return replace(pushed, offsets=pushed.offsets.cut(name, value))
    if column == "timestamp" and isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return replace(pushed, timestamps_us=pushed.timestamps_us.cut(name, _microseconds(value)))
    return None


def _take_key(pushed: Pushed, name: str, value: Any, keys_are_text: bool) -> Pushed | None:
    if name not in ("EqualTo", "EqualNullSafe", "In"):
        return None
    values = list(value) if name == "In" else [value]
    wanted = str if keys_are_text else bytes | bytearray
    if not all(isinstance(each, wanted) for each in values):
        return None
    keys = frozenset(each.encode() if isinstance(each, str) else bytes(each) for each in values)
    return replace(pushed, keys=keys if pushed.keys is None else pushed.keys & keys)


def _microseconds(moment: datetime.datetime) -> int:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (moment - epoch) // datetime.timedelta(microseconds=1)
