"""Which offsets a read covers: the options' wishes and the topics' bounds in, offset ranges out. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

EARLIEST = -2
LATEST = -1

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records of one partition with start <= offset < end."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a partition holds: earliest <= offset < latest."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """One side of a read: a default for every partition, or an offset for each (EARLIEST and LATEST included)."""

    default: int | None
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)


def parse_offset_spec(option: str, text: str) -> OffsetSpec:
    """Read `earliest`, `latest` or Spark's JSON `{"topic":{"0":23,"1":-2}}`.

    Raises ValueError with the option's name when the text is none of these.
    """
    word = text.strip().lower()
    if word == "earliest":
        return OffsetSpec(EARLIEST)
    if word == "latest":
        return OffsetSpec(LATEST)
    try:
        parsed = json.loads(text)
        offsets = {
            (str(topic), int(partition)): _offset(offset)
            for topic, partitions in parsed.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(
            f'{option} is {text!r}: it must be "earliest", "latest" or JSON such as {{"topic":{{"0":23,"1":-2}}}}'
            f" ({error})"
        ) from error
    return OffsetSpec(None, offsets)


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < EARLIEST:
        raise ValueError(f"{value!r} is not an offset; -1 means latest, -2 earliest")
    return value


def check_spec_covers(option: str, spec: OffsetSpec, partitions: Iterable[TopicPartition]) -> None:
    """Refuse a per-partition spec that misses a partition of the read or names one outside it, as Spark does."""
    if spec.default is not None:
        return
    wanted, given = set(partitions), set(spec.by_partition)
    if wanted != given:
        missing = ", ".join(f"{t}-{p}" for t, p in sorted(wanted - given)) or "none"
        surplus = ", ".join(f"{t}-{p}" for t, p in sorted(given - wanted)) or "none"
        raise ValueError(
            f"{option} must name every partition that is read, and no other: missing {missing}; not read: {surplus}"
        )


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
    starting: OffsetSpec, ending: OffsetSpec, bounds: Mapping[TopicPartition, Bounds]
) -> tuple[list[OffsetRange], list[DataLoss]]:
    """Return the non-empty ranges to read, cut to what is there, and what had to be cut away."""
    ranges: list[OffsetRange] = []
    lost: list[DataLoss] = []
    for (topic, partition), available in sorted(bounds.items()):
        start = _resolve(starting, (topic, partition), available)
        end = _resolve(ending, (topic, partition), available)
        first, last = max(start, available.earliest), min(end, available.latest)
        if start < available.earliest or end > available.latest or start > available.latest:
            lost.append(DataLoss(topic, partition, (start, end), available))
        if first < last:
            ranges.append(OffsetRange(topic, partition, first, last))
    return ranges, lost


def _resolve(spec: OffsetSpec, partition: TopicPartition, available: Bounds) -> int:
    offset = spec.by_partition[partition] if spec.default is None else spec.default
    if offset == EARLIEST:
        return available.earliest
    return available.latest if offset == LATEST else offset
