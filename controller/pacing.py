"""Long work in turns: how procedures let the broker's other work run in between (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from kbroker.controller.instructions import Pause, Steps

PARTITIONS_PER_PAUSE = 500
"""What is done with a partition takes some microseconds, so this many take a few milliseconds."""

T = TypeVar("T")


def portions(things: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """So many at once."""
    for first in range(0, len(things), size):
        yield things[first : first + size]


def chosen(things: Iterable[T], is_wanted: Callable[[T], bool]) -> Steps[list[T]]:
    """Those that are wanted, with a pause now and then. What is looked through must not change in a pause."""
    left = iter(things)
    found: list[T] = []
    while portion := list(islice(left, PARTITIONS_PER_PAUSE)):
        found += filter(is_wanted, portion)
        if len(portion) == PARTITIONS_PER_PAUSE:
            yield Pause()
    return found
