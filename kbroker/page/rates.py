"""How many records topics get, over the last minutes: ends of partitions, looked at every few seconds.

The page looks by itself, so that there is something to see when somebody comes. What looking costs the cluster is
bounded: the pause after a look is at least PERIOD_S, and as many times longer than the look as SHARE says.
"""

from __future__ import annotations

import asyncio
import logging
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from kbroker.client.types import TopicPartition
from kbroker.page.facts import Facts, whole_sum
from kbroker.protocol.errors import KafkaError

log = logging.getLogger(__name__)

PERIOD_S = 5.0
SHARE = 20
KEPT = 120
"""Looks that are remembered."""
MOST_PARTITIONS = 50_000
"""In larger clusters there are no rates."""
NOT_KNOWN = -1
WIDTH, HEIGHT = 240, 36
"""Of a drawing."""


@dataclass(slots=True)
class Ring:
    """The last KEPT looks: when, and where each topic's partitions ended since it was there, added up; or NOT_KNOWN."""

    times: list[float] = field(default_factory=list)
    ends: dict[str, array[int]] = field(default_factory=dict)
    problem: str = ""
    """Why the last look saw nothing."""

    def add(self, at: float, ends: Mapping[str, int | None]) -> None:
        """Note a look; topics that are gone are forgotten."""
        self.problem = ""
        self.times = [*self.times, at][-KEPT:]
        kept: dict[str, array[int]] = {}
        for topic, end in ends.items():
            line = self.ends.get(topic) or array("q")
            line.append(NOT_KNOWN if end is None else end)
            kept[topic] = line[-KEPT:]
        self.ends = kept

    def of(self, topic: str) -> Rates:
        """Return a topic's rates."""
        ends = self.ends.get(topic, ())
        return rates_of(self.times[len(self.times) - len(ends) :], ends)

    def of_all(self) -> Rates:
        """Return the rates of all topics together; where one is not known, neither is their sum."""
        newest_first = [reversed(self.of(topic).each) for topic in self.ends]
        sums = [_sum(moments) for moments in zip_longest(*newest_first, fillvalue=0.0)]  # 0: it was not there
        return Rates(tuple(self.times[len(self.times) - len(sums) :]), tuple(reversed(sums)))


def _sum(moments: Sequence[float | None]) -> float | None:
    known = [each for each in moments if each is not None]
    return sum(known) if len(known) == len(moments) else None


@dataclass(frozen=True, slots=True)
class Rates:
    """Records per second up to each of some moments (seconds of a clock); None: not known."""

    times: tuple[float, ...] = ()
    each: tuple[float | None, ...] = ()

    @property
    def now(self) -> float | None:
        """The last one."""
        return self.each[-1] if self.each else None

    @property
    def most(self) -> float | None:
        """The highest."""
        return max((each for each in self.each if each is not None), default=None)

    @property
    def seconds(self) -> float:
        """The time that they are of."""
        return self.times[-1] - self.times[0] if self.times else 0.0

    def lines(self) -> list[str]:
        """Return the points of SVG polylines, one for each stretch without a gap; the newest is at the right."""
        highest = self.most or 1.0
        found: list[list[str]] = [[]]
        for at, each in zip(self.times, self.each, strict=True):
            if each is None:
                found.append([])
                continue
            x = WIDTH * (at - self.times[0]) / self.seconds if self.seconds else WIDTH
            y = 1 + (HEIGHT - 2) * (1 - each / highest)
            found[-1].append(f"{x:.1f},{y:.1f}")
        return [" ".join(points) for points in found if len(points) > 1]


def rates_of(times: Sequence[float], ends: Sequence[int]) -> Rates:
    """Return what was added per second from one look to the next; a topic that was made again begins anew."""
    each: list[float | None] = []
    for at in range(1, min(len(times), len(ends))):
        before, after = ends[at - 1], ends[at]
        is_known = NOT_KNOWN not in (before, after) and after >= before
        each.append((after - before) / max(times[at] - times[at - 1], 1e-3) if is_known else None)
    return Rates(tuple(times[1 : len(each) + 1]), tuple(each))


class Watch:
    """Looks at a cluster, as long as the page runs."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.ring = Ring()

    async def run(self) -> None:
        """Look again and again; a look that fails leaves a gap."""
        while True:
            started = time.monotonic()
            try:
                await self.look()
            except (KafkaError, OSError) as error:
                self.ring.problem = f"The ends of partitions are not known: {error}"
                log.debug("the ends of partitions are not known: %s", error)
            took = time.monotonic() - started
            await asyncio.sleep(max(PERIOD_S, SHARE * took))

    async def look(self) -> None:
        """Ask once where partitions end."""
        topics = await self._facts.admin.describe_topics()
        if sum(len(topic.partitions) for topic in topics.values()) > MOST_PARTITIONS:
            self.ring.problem = f"Not known: the cluster has more than {MOST_PARTITIONS:,} partitions."
            return
        ends = await self._facts.ends(topics)
        self.ring.add(
            time.monotonic(),
            {
                name: whole_sum(ends.get(TopicPartition(name, each.partition)) for each in topic.partitions)
                for name, topic in topics.items()
            },
        )
