"""Partitions by the names of their topics, and as requests and records hold them: topic by topic (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

Key = tuple[str, int]
"""A partition: its topic and its number; a TopicPartition is such a pair with names."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Kafka's own short form, also the name of the partition's folder."""
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Group (topic, partition) by topic; both keep the order in which they come."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped
