"""Where a read begins and ends, as its options say it: words, offsets or times; and the offsets that follow. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kbroker.protocol.grouping import Key
from kbroker.protocol.messages.offsets import EARLIEST, LATEST
from kbroker.spark_connector.offset_ranges import Bounds

WHOLE_NUMBER = re.compile(r"[0-9]+")
LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """One side of a read: one offset or one time for every partition, or one for each of them."""

    option: str
    """Its name in errors."""
    default: int | None = None
    """For all: EARLIEST or LATEST, or a time when `by_time`; None: see by_partition."""
    by_partition: Mapping[Key, int] = field(default_factory=dict)
    """Offsets (EARLIEST and LATEST included), or times when `by_time`."""
    by_time: bool = False
    """The numbers are milliseconds since 1970; the offset is that of the first record so young."""
    latest_when_none: bool = False
    """Where no record is so young: the end (otherwise an error)."""

    def times(self, partitions: Iterable[Key]) -> dict[Key, int]:
        """Return the times that have to be looked up."""
        if not self.by_time:
            return {}
        return {place: self._number(place) for place in partitions}

    def resolve(self, bounds: Mapping[Key, Bounds], found: Mapping[Key, int]) -> dict[Key, int]:
        """Return an offset for each partition; `found` are the offsets at `times`, -1 where no record is so young."""
        offsets = {}
        for place, available in bounds.items():
            offset = found[place] if self.by_time else self._number(place)
            if self.by_time and offset < 0:
                if not self.latest_when_none:
                    raise ValueError(
                        f"{self.option}: {place[0]}-{place[1]} has no record at or after {self._number(place)} ms;"
                        f" startingOffsetsByTimestampStrategy=latest begins at the end there"
                    )
                offset = LATEST
            offsets[place] = {EARLIEST: available.earliest, LATEST: available.latest}.get(offset, offset)
        return offsets

    def is_fixed(self, place: Key) -> bool:
        """Whether an offset or a time says where in the partition, and not what there is (earliest, latest)."""
        return self.by_time or self._number(place) >= 0

    def _number(self, place: Key) -> int:
        return self.by_partition[place] if self.default is None else self.default

    def check_covers(self, partitions: Iterable[Key], assigned: Iterable[Key] = ()) -> None:
        """Refuse one that misses a partition of the read or names one outside it, as Spark does.

        It may name any that was `assigned`: one of those that is gone was to be named as long as it was there.
        """
        if self.default is not None:
            return
        wanted, given = set(partitions), set(self.by_partition)
        given -= set(assigned) - wanted
        if wanted != given:
            missing = ", ".join(f"{t}-{p}" for t, p in sorted(wanted - given)) or "none"
            surplus = ", ".join(f"{t}-{p}" for t, p in sorted(given - wanted)) or "none"
            raise ValueError(
                f"{self.option} must name every partition that is read, and no other:"
                f" missing {missing}; not read: {surplus}"
            )


def parse_offsets(option: str, text: str) -> OffsetSpec:
    """Read `earliest`, `latest` or Spark's JSON `{"topic":{"0":23,"1":-2}}`.

    Raises ValueError with the option's name when the text is none of these.
    """
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return OffsetSpec(option, EARLIEST if word == "earliest" else LATEST)
    try:
        return OffsetSpec(option, by_partition=parse_partition_numbers(text, EARLIEST))
    except ValueError as error:
        raise ValueError(
            f'{option} is {text!r}: it must be "earliest", "latest" or JSON such as {{"topic":{{"0":23,"1":-2}}}}'
            f" ({error})"
        ) from error


def parse_timestamps(option: str, text: str, *, latest_when_none: bool) -> OffsetSpec:
    """Read a time in ms for all partitions, or JSON `{"topic":{"0":1700000000000}}`; raises ValueError."""
    text = text.strip()
    try:
        if WHOLE_NUMBER.fullmatch(text):
            return OffsetSpec(option, _number(int(text), 0), by_time=True, latest_when_none=latest_when_none)
        times = parse_partition_numbers(text, 0)
    except ValueError as error:
        wanted = (
            'JSON such as {"topic":{"0":1700000000000}}'
            if option.endswith("ByTimestamp")
            else "milliseconds since 1970"
        )
        raise ValueError(f"{option} is {text!r}: it must be {wanted} ({error})") from error
    return OffsetSpec(option, by_partition=times, by_time=True, latest_when_none=latest_when_none)


def parse_partition_numbers(text: str, minimum: int) -> dict[Key, int]:
    """Read `{"topic":{"0":number}}`; raises ValueError."""
    try:
        parsed = json.loads(text)
        return {
            (str(topic), int(partition)): _number(number, minimum)
            for topic, partitions in parsed.items()
            for partition, number in partitions.items()
        }
    except (AttributeError, TypeError) as error:
        raise ValueError(str(error)) from error


def _number(value: object, minimum: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= LARGEST:
        special = "; -1 means latest, -2 earliest" if minimum == EARLIEST else ""
        raise ValueError(f"{value!r} is not {'an offset' if special else 'a time'}{special}")
    return value
