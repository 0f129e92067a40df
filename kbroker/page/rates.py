"""How much topics get, over the last minutes, in records and in bytes: looked at every few seconds.

Records are told by where partitions end, bytes by how the leaders' copies grow on disk (compressed, as they lie there),
so that any Kafka tells both. What is deleted between two looks is not seen: bytes are at least so many.

The page looks by itself, so that there is something to see when somebody comes. What looking costs the cluster is
bounded: the pause after a look is at least PERIOD_S, and as many times longer than the look as SHARE says.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from array import array
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from kbroker.client.types import TopicDescription, TopicPartition
from kbroker.page.facts import Disks, Facts, Told, told
from kbroker.protocol.errors import KafkaError

log = logging.getLogger(__name__)

PERIOD_S = 5.0
SHARE = 20
KEPT = 120
"""Looks that are remembered."""
MOST_PARTITIONS = 50_000
"""In larger clusters there are no rates."""
WIDTH, HEIGHT = 240, 36
"""Of a drawing."""
Counts = Mapping[Hashable, int]
"""Of a topic's partitions: where each ends, or how large its leader's copy is."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The last looks. Views read it in another thread: nothing of it is ever changed."""

    times: tuple[float, ...] = ()
    each: Mapping[str, array[float]] = field(default_factory=dict)
    total: array[float] = field(default_factory=lambda: array("d"))


@dataclass(slots=True)
class Ring:
    """What was added per second from one look to the next, of each topic and of all; of the last KEPT looks."""

    kept: Kept = field(default_factory=Kept)
    last: Mapping[str, Counts | None] = field(default_factory=dict)
    last_at: float | None = None
    problem: str = ""
    """Why the last look saw nothing."""

    def add(self, at: float, counts: Mapping[str, Counts | None]) -> None:
        """Note a look; None: not all of a topic's partitions are known. Topics that are gone are forgotten."""
        self.problem = ""
        if self.last_at is not None:
            span = max(at - self.last_at, 1e-3)
            rates = {topic: growth(self.last[topic], now) / span for topic, now in counts.items() if topic in self.last}
            kept = self.kept
            self.kept = Kept(
                (*kept.times, at)[-KEPT:],
                {topic: _with(kept.each.get(topic), rate) for topic, rate in rates.items()},
                _with(kept.total, sum(rates.values())),
            )
        self.last, self.last_at = counts, at

    def of(self, topic: str) -> Rates:
        """Return a topic's rates."""
        kept = self.kept
        return self._rates(kept, kept.each.get(topic, array("d")))

    def of_all(self) -> Rates:
        """Return the rates of all topics together; where one is not known, neither is their sum."""
        kept = self.kept
        return self._rates(kept, kept.total if self.last else array("d"))

    def _rates(self, kept: Kept, line: array[float]) -> Rates:
        times = kept.times[len(kept.times) - len(line) :]
        return Rates(times, tuple(None if math.isnan(rate) else rate for rate in line), self.problem)


def _with(line: array[float] | None, rate: float) -> array[float]:
    longer = array("d") if line is None else line[-KEPT:]
    longer.append(rate)
    return longer[-KEPT:]


def growth(before: Counts | None, now: Counts | None) -> float:
    """Return what partitions have got; NaN where one is not known. One that is new, or smaller now, begins anew."""
    if before is None or now is None:
        return math.nan
    return sum(max(0, count - before.get(partition, count)) for partition, count in now.items())


@dataclass(frozen=True, slots=True)
class Rates:
    """So much per second up to each of some moments (seconds of a clock); None: not known."""

    times: tuple[float, ...] = ()
    each: tuple[float | None, ...] = ()
    problem: str = ""
    """Why there are none."""

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


class Watch:
    """Looks at a cluster, as long as the page runs; in a thread beside it (`beside.py`)."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.records = Ring()
        self.bytes = Ring()

    async def run(self) -> None:
        """Look again and again; a look that fails leaves a gap."""
        while True:
            started = time.monotonic()
            try:
                await self.look()
            except (KafkaError, OSError) as error:
                self._say(f"The ends of partitions are not known: {error}")
                log.debug("the ends of partitions are not known: %s", error)
            except Exception as error:  # a mistake of ours, which must not end the looking
                self._say(f"The ends of partitions are not known: {type(error).__name__}: {error}")
                log.exception("the ends of partitions are not known")
            took = time.monotonic() - started
            await asyncio.sleep(max(PERIOD_S, SHARE * took))

    async def look(self) -> None:
        """Ask once where partitions end, and how large they are."""
        topics = await self.facts.topics.fresh()
        if sum(len(topic.partitions) for topic in topics.values()) > MOST_PARTITIONS:
            self._say(f"Not known: the cluster has more than {MOST_PARTITIONS:,} partitions.")
            return
        ends, disks = await asyncio.gather(self.facts.ends(topics), self._disks())
        self.records.add(time.monotonic(), {name: ends_of(topic, ends) for name, topic in topics.items()})
        if disks.value is None:
            self.bytes.problem = f"Sizes are not known: {disks.problem}"
        elif self.bytes.last_at is None or disks.value.at >= self.bytes.last_at + PERIOD_S / 2:  # one looked at before
            sizes = disks.value.sizes()
            self.bytes.add(disks.value.at, {name: sizes_of(topic, sizes) for name, topic in topics.items()})

    async def _disks(self) -> Told[Disks]:
        return await told(self.facts.disks.fresh())

    def of(self, topic: str) -> tuple[Rates, Rates]:
        """Return a topic's rates in records and in bytes."""
        return self.records.of(topic), self.bytes.of(topic)

    def of_all(self) -> tuple[Rates, Rates]:
        """Return those of all topics together."""
        return self.records.of_all(), self.bytes.of_all()

    def _say(self, problem: str) -> None:
        self.records.problem = self.bytes.problem = problem


def ends_of(topic: TopicDescription, ends: Mapping[TopicPartition, int]) -> Counts | None:
    """Return where a topic's partitions end; None where that is not known of one."""
    return _whole({each.partition: ends.get(TopicPartition(topic.name, each.partition)) for each in topic.partitions})


def sizes_of(topic: TopicDescription, sizes: Mapping[tuple[str, int, int | None], int]) -> Counts | None:
    """Return how large the leaders' copies of a topic's partitions are; None where that is not known of one."""
    copies = ((each.partition, each.leader) for each in topic.partitions)
    return _whole({copy: sizes.get((topic.name, *copy)) for copy in copies})


def _whole(counts: Mapping[Hashable, int | None]) -> Counts | None:
    known = {partition: count for partition, count in counts.items() if count is not None}
    return known if len(known) == len(counts) else None
