"""Partitions as requests and records hold them: topic by topic (pure)."""

from __future__ import annotations

from collections.abc import Iterable


def by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Group (topic, partition) by topic; both keep the order in which they come."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped
