"""Where a reset moves a group: what a form asks for, and which offsets that means.

to      earliest, latest; time: the first record since `at`; offset: `at`; shift: so many records on (or, with -, back);
        group: to where another group, `from`, is
topic   only in this one; "": in all where there are commits
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from kbroker.client.admin import Admin
from kbroker.client.types import EARLIEST, LATEST, OffsetAndMetadata, TopicDescription, TopicPartition
from kbroker.page.facts import led
from kbroker.page.record_query import WrongQuery, read_time

Target = Literal["earliest", "latest", "time", "offset", "shift", "group"]
TARGETS: tuple[Target, ...] = get_args(Target)


@dataclass(frozen=True, slots=True)
class Reset:
    """What is asked for; `at` is milliseconds, an offset or a difference."""

    to: Target
    topic: str = ""
    at: int = 0
    other: str = ""


def read_reset(asked: Mapping[str, str], now_ms: int) -> Reset:
    """Read an address's values; raises WrongQuery."""
    to, topic, at = asked.get("to", ""), asked.get("topic", ""), asked.get("at", "").strip()
    for target in TARGETS:
        if to == target:
            break
    else:
        raise WrongQuery(f"a group is moved to {', '.join(TARGETS)}, not {to!r}")
    if target == "group" and not asked.get("from"):
        raise WrongQuery("which other group's offsets should it have?")
    if target in ("offset", "shift"):
        sign = "[+-]?" if target == "shift" else ""
        if not re.fullmatch(sign + "[0-9]{1,18}", at):
            example = "+100 or -100" if target == "shift" else "1234"
            raise WrongQuery(f"{at!r} does not say where to: {example} does")
        return Reset(target, topic, int(at))
    return Reset(target, topic, read_time(at, now_ms) if target == "time" else 0, asked.get("from", ""))


@dataclass(frozen=True, slots=True)
class Places:
    """Where the group would go on, and the partitions that stay where they are as nobody leads them."""

    offsets: dict[TopicPartition, int]
    left_out: list[TopicPartition]


async def places_of(
    admin: Admin,
    reset: Reset,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    topics: Mapping[str, TopicDescription],
) -> Places:
    """Return where the group would go on; without partitions that are gone."""
    aim = await admin.list_group_offsets(reset.other) if reset.to == "group" else committed
    names = {key.topic for key in aim}
    alive = keys_of(topics, names)
    there = {
        TopicPartition(name, each.partition) for name in names if name in topics for each in topics[name].partitions
    }
    asked = sorted(key for key in aim if key in there and reset.topic in ("", key.topic))
    chosen = [key for key in asked if key in alive]
    if not chosen:
        who = f"group {reset.other}" if reset.to == "group" else "the group"
        raise WrongQuery(
            f"{who} has commits of no partition that has a leader" if asked else f"{who} has no commits there"
        )
    await admin.describe_topics({key.topic for key in chosen})  # so that it knows who leads them now
    first, last = [await admin.list_offsets(dict.fromkeys(chosen, each)) for each in (EARLIEST, LATEST)]
    since = await admin.list_offsets(dict.fromkeys(chosen, reset.at)) if reset.to == "time" else {}
    found = {}
    for key in chosen:
        wanted = {
            "earliest": first[key].offset,
            "latest": last[key].offset,
            "time": since[key].offset if key in since and since[key].offset >= 0 else last[key].offset,
            "offset": reset.at,
            "shift": aim[key].offset + reset.at,
            "group": aim[key].offset,
        }[reset.to]
        found[key] = min(max(wanted, first[key].offset), last[key].offset)
    return Places(found, [key for key in asked if key not in alive])


def keys_of(topics: Mapping[str, TopicDescription], names: Iterable[str]) -> set[TopicPartition]:
    """Return the partitions of topics that somebody leads."""
    return {key for name in names if name in topics for key in led(topics[name])}


def read_places(text: str) -> dict[TopicPartition, int]:
    """Read what the form of a preview carries: topics, partitions and offsets; raises WrongQuery."""
    try:
        found = {TopicPartition(str(topic), int(number)): int(offset) for topic, number, offset in json.loads(text)}
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise WrongQuery("a group is moved to the offsets that were shown: ask again what the reset would do") from None
    if not found or not all(0 <= offset < 1 << 63 for offset in found.values()):
        raise WrongQuery("there is no such offset")
    return found
