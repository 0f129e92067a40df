"""How far groups are behind: in records, and in time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kbroker.client.client_config import AdminConfig
from kbroker.client.record_ages import record_ages
from kbroker.client.types import OffsetAndMetadata, TopicPartition
from kbroker.page.facts import AT_ONCE, Facts, Told, led, told, whole_sum
from kbroker.page.options import PageOptions


@dataclass(frozen=True, slots=True)
class Lag:
    """A partition as a group has read it; `end` and `lag` None where nobody leads it."""

    partition: TopicPartition
    committed: int
    end: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group's lag in a topic, or in all; None: not known, which is not 0."""

    group: str
    partitions: int
    lag: int | None
    problem: str = ""


async def lags_of(facts: Facts, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> list[Lag]:
    """Hold commits against where the partitions end."""
    topics = await facts.topics.get()
    known = {key for name in {key.topic for key in committed} if name in topics for key in led(topics[name])}
    offsets = await facts.offsets(sorted(known & committed.keys()), topics)
    found = []
    for key in sorted(committed):
        at = committed[key].offset
        end = offsets[key][1] if key in offsets else None
        found.append(Lag(key, at, end, None if end is None else max(end - at, 0)))
    return found


async def commits_of(facts: Facts, groups: Iterable[str]) -> dict[str, Told[dict[TopicPartition, OffsetAndMetadata]]]:
    """Return the commits of groups, or why they are not told."""
    slots = asyncio.Semaphore(AT_ONCE)
    names = list(groups)

    async def of_group(name: str) -> Told[dict[TopicPartition, OffsetAndMetadata]]:
        async with slots:
            return await told(facts.admin.list_group_offsets(name))

    return dict(zip(names, await asyncio.gather(*map(of_group, names)), strict=True))


async def sums(facts: Facts, groups: Iterable[str], topic: str | None = None) -> list[GroupLag]:
    """Sum each group's lag (in one topic: groups that read it)."""
    commits = await commits_of(facts, groups)
    every = {key: value for each in commits.values() for key, value in (each.value or {}).items()}
    chosen = {key: value for key, value in every.items() if topic is None or key.topic == topic}
    ends = {each.partition: each.end for each in await lags_of(facts, chosen)}
    found = []
    for group, answer in commits.items():
        mine = {key: value.offset for key, value in (answer.value or {}).items() if key in chosen}
        behind = (None if (end := ends.get(key)) is None else max(end - at, 0) for key, at in mine.items())
        if mine or topic is None:
            found.append(
                GroupLag(group, len(mine), None if answer.value is None else whole_sum(behind), answer.problem)
            )
    return found


async def times_behind(options: PageOptions, lags: Iterable[Lag]) -> dict[TopicPartition, int]:
    """Return how old the next record to read is, in ms, of partitions with lag; of those that answer in time."""
    ends = {(lag.partition, lag.committed): lag.end for lag in lags if lag.end is not None and lag.lag}
    ages = await record_ages(options.bootstrap, options.for_client(AdminConfig), ends)
    return {key: age for (key, _), age in ages.items()}
