"""How the log names many things in few words (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from kbroker.controller.znodes import TopicPartition

NAMED = 3
"""How many are named before the rest is only counted."""


def few(things: Collection[object]) -> str:
    """The first few, and how many more there are."""
    return _few(things, len(things))


def _few(things: Iterable[object], number: int) -> str:
    names = ", ".join(map(str, islice(things, NAMED)))
    more = number - NAMED
    return f"{names} and {more} more" if more > 0 else names


def count(number: int, thing: str) -> str:
    """`1 partition`, `2 partitions`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


class Tally:
    """Who leads what: `broker 1 leads 170 (t-0, t-3, t-6 and 167 more), broker 3 leads 164 (…)`."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._named: dict[int, list[TopicPartition]] = {}

    def add(self, partition: TopicPartition, leader: int) -> None:
        """One more; only the first few are kept."""
        self._numbers[leader] = self._numbers.get(leader, 0) + 1
        named = self._named.setdefault(leader, [])
        if len(named) < NAMED:
            named.append(partition)

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def __str__(self) -> str:
        """The line."""
        return ", ".join(
            f"broker {leader} leads {number} ({_few(self._named[leader], number)})"
            for leader, number in sorted(self._numbers.items())
        )
