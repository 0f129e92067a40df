"""How callers name partitions: as TopicPartition, or as a plain pair of topic and number."""

from collections.abc import Iterable
from typing import SupportsIndex, TypeVar

from kbroker.client.types import TopicPartition

Partition = TopicPartition | tuple[str, int]
Key = TypeVar("Key", bound=tuple[str, int])
"""The keys of a mapping by partition; a dict with keys of a union of both would take neither kind of dict."""


def partition_of(given: object) -> TopicPartition:
    """Check what a caller names a partition by; raises TypeError."""
    if isinstance(given, (tuple, list)) and len(given) == 2:
        topic, number = given
        is_number = isinstance(number, SupportsIndex) and not isinstance(number, bool)
        if isinstance(topic, str) and is_number and 0 <= number.__index__() < 1 << 31:
            return TopicPartition(topic, number.__index__())
    raise TypeError(f"a partition is named by its topic and number, as ('orders', 0), not by {given!r}")


def partitions_of(given: object) -> list[TopicPartition]:
    """Check a list of partitions; raises TypeError."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"a list of partitions is wanted, as [('orders', 0)], not {given!r}")
    return [partition_of(each) for each in given]
