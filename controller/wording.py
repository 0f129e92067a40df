"""How the log names many things in few words (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from kbroker.controller.znodes import TopicPartition

NAMED = 3
"""How many are named before the rest is only counted."""


def few(things: Collection[object]) -> str:
    """The first few, and how many more there are."""
    names = ", ".join(map(str, islice(things, NAMED)))
    more = len(things) - NAMED
    return f"{names} and {more} more" if more > 0 else names


def count(number: int, thing: str) -> str:
    """`1 partition`, `2 partitions`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def spread(leaders: Iterable[tuple[TopicPartition, int]]) -> str:
    """Who leads what: `broker 1 leads 170 (t-0, t-3, t-6 and 167 more), broker 3 leads 164 (…)`."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition, leader in leaders:
        by_leader.setdefault(leader, []).append(partition)
    return ", ".join(f"broker {each} leads {len(led)} ({few(led)})" for each, led in sorted(by_leader.items()))
