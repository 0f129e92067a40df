"""Which offsets a query reads: wanted starts and ends and the topics' bounds in, ranges for Spark's tasks out. Pure."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kbroker.protocol.grouping import Key

NO_ID = bytes(16)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records of one partition with start <= offset < end."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: bytes = NO_ID
    """Of the topic that was planned: one made again under its name is not read in its place."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a partition holds: earliest <= offset < latest."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class DataLoss:
    """A wanted stretch of offsets that the partition no longer (or not yet) holds."""

    topic: str
    partition: int
    wanted: tuple[int, int]
    available: Bounds

    def __str__(self) -> str:
        """Say which partition, what was wanted and what is there."""
        return (
            f"{self.topic}-{self.partition}: offsets [{self.wanted[0]}, {self.wanted[1]}) were asked for,"
            f" [{self.available.earliest}, {self.available.latest}) are there"
        )


def plan_ranges(
    starts: Mapping[Key, int],
    ends: Mapping[Key, int],
    bounds: Mapping[Key, Bounds],
    topic_ids: Mapping[str, bytes] | None = None,
) -> tuple[list[OffsetRange], list[DataLoss]]:
    """Return the non-empty ranges to read, cut to what is there, and what had to be cut away; of none nothing is."""
    ids = topic_ids or {}
    ranges: list[OffsetRange] = []
    lost: list[DataLoss] = []
    for (topic, partition), available in sorted(bounds.items()):
        start, end = starts[topic, partition], ends[topic, partition]
        first, last = max(start, available.earliest), min(end, available.latest)
        if start != end and (start < available.earliest or end > available.latest or start > available.latest):
            lost.append(DataLoss(topic, partition, (start, end), available))
        if first < last:
            ranges.append(OffsetRange(topic, partition, first, last, ids.get(topic, NO_ID)))
    return ranges, lost


def split_ranges(
    ranges: Sequence[OffsetRange],
    min_partitions: int | None,
    max_records: int | None,
    bytes_per_offset: Mapping[Key, float],
) -> list[OffsetRange]:
    """Cut ranges until none has more than max_records offsets and there are min_partitions of them (where possible).

    The range with the most bytes per piece is cut first; `bytes_per_offset` may leave out what is not known.
    """
    pieces = [1 if max_records is None else -(-(each.end - each.start) // max_records) for each in ranges]
    weights = [
        (each.end - each.start) * bytes_per_offset.get((each.topic, each.partition), 1.0) or 1.0 for each in ranges
    ]
    total = sum(pieces)
    heap = [(-weights[at] / pieces[at], at) for at in range(len(ranges))]
    heapq.heapify(heap)
    while heap and total < (min_partitions or 0):
        _, at = heapq.heappop(heap)
        if pieces[at] < ranges[at].end - ranges[at].start:
            pieces[at] += 1
            total += 1
            heapq.heappush(heap, (-weights[at] / pieces[at], at))
    return [piece for each, count in zip(ranges, pieces, strict=True) for piece in _cut(each, count)]


def gather(
    ranges: Sequence[OffsetRange], bytes_per_offset: Mapping[Key, float], most_bytes: float
) -> list[tuple[OffsetRange, ...]]:
    """Put neighbours together into shares of at most `most_bytes`; a larger range, or of unknown size, is one alone."""
    shares: list[tuple[OffsetRange, ...]] = []
    room = 0.0
    for each in ranges:
        density = bytes_per_offset.get((each.topic, each.partition))
        size = math.inf if density is None else (each.end - each.start) * density
        if shares and size <= room:
            shares[-1] = (*shares[-1], each)
            room -= size
        else:
            shares.append((each,))
            room = most_bytes - size
    return shares


def _cut(whole: OffsetRange, pieces: int) -> list[OffsetRange]:
    size = whole.end - whole.start
    edges = [whole.start + size * number // pieces for number in range(pieces + 1)]
    return [
        OffsetRange(whole.topic, whole.partition, first, last, whole.topic_id)
        for first, last in itertools.pairwise(edges)
    ]
