"""`kbroker group lag`: how far groups are behind, topic by topic, once or again and again."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format, Looks, Watch

if TYPE_CHECKING:
    from kbroker.client.admin import Admin
    from kbroker.client.record_ages import Place
    from kbroker.client.types import TopicPartition

COLUMNS = ("group", "topic", "partitions", "committed", "end_offset", "lag", "worst", "behind")
WATCH_COLUMNS = (*COLUMNS, "reads_per_s", "written_per_s")
Seen = dict[tuple[str, str], tuple[float, int, int | None]]
"""Of a group and topic: when it was looked at, what was committed, and where the topic ended."""
AT_ONCE = 16
"""Groups asked for beside each other."""


def lag(
    groups: Annotated[list[str] | None, typer.Argument(metavar="[GROUP]...", help="Default: all.")] = None,
    watch: Watch = None,
    count: Looks = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """Show how far each group is behind in each topic: in records, and in time.

    `worst` is the partition that has most records to go, `behind` (in JSON and YAML `behind_ms`) the age of the oldest
    record that is to be read next, by its own timestamp. A dash, or null: not known, which is not 0.

    \b
    kbroker group lag
    kbroker group lag billing --watch 2
    """
    from kbroker.cli.admin import with_admin
    from kbroker.cli.output import is_table, print_rows

    async def work(admin: "Admin") -> None:
        before: Seen = {}
        looks = 0
        while True:
            now = time.monotonic()
            rows = await lag_rows(admin, groups, bootstrap)
            if watch is not None:
                _add_rates(rows, before, now)
            if is_table(output_format):
                _say_times(rows)
            if watch is not None and looks and is_table(output_format):
                typer.echo("")
            columns = COLUMNS if watch is None else WATCH_COLUMNS
            print_rows(rows, columns, output_format, empty="no committed offsets", one_of_many=watch is not None)
            looks += 1
            if watch is None or looks == count:
                return
            await asyncio.sleep(watch)

    with_admin(bootstrap, work)


async def lag_rows(admin: "Admin", groups: Sequence[str] | None, bootstrap: str) -> list[dict[str, Any]]:
    """One row for each group and topic, the largest lag first; None where it is not known, which is not 0."""
    from kbroker.cli.admin import admin_settings
    from kbroker.cli.profiles import chosen_bootstrap
    from kbroker.client.record_ages import record_ages

    names = list(groups) if groups else sorted(await admin.list_groups())
    slots = asyncio.Semaphore(AT_ONCE)

    async def of_group(name: str) -> "dict[TopicPartition, int]":
        async with slots:
            committed = await admin.list_group_offsets(name)
        return {key: each.offset for key, each in committed.items() if each.offset >= 0}

    committed = dict(zip(names, await asyncio.gather(*map(of_group, names)), strict=True))
    ends = await _ends(admin, {key for offsets in committed.values() for key in offsets})
    places = {place: ends[place[0]] for offsets in committed.values() for place in offsets.items() if place[0] in ends}
    ages = await record_ages(chosen_bootstrap(bootstrap), admin_settings(), places)
    return _by_lag([row for name, offsets in committed.items() for row in _rows_of(name, offsets, ends, ages)])


def _say_times(rows: list[dict[str, Any]]) -> None:
    """For people: in their units."""
    from kbroker.client.record_ages import age_text

    for row in rows:
        behind_ms = row.pop("behind_ms")
        row["behind"] = None if behind_ms is None else age_text(behind_ms) if behind_ms else "0"


async def known_lag_rows(
    admin: "Admin", ends: "Mapping[TopicPartition, int]", problems: list[str]
) -> list[dict[str, Any]]:
    """As `lag_rows`, of all groups that can be asked for, with the ends that are known; problems are added to."""
    from kbroker.cli.errors import attempt

    names = sorted(await attempt("groups", admin.list_groups(), problems) or ())
    slots = asyncio.Semaphore(AT_ONCE)

    async def of_group(name: str) -> list[dict[str, Any]]:
        async with slots:
            committed = await attempt(f"group {name}", admin.list_group_offsets(name), problems)
        return _rows_of(
            name, {key: each.offset for key, each in (committed or {}).items() if each.offset >= 0}, ends, {}
        )

    return _by_lag([row for rows in await asyncio.gather(*map(of_group, names)) for row in rows])


def _by_lag(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: -1 if row["lag"] is None else row["lag"], reverse=True)


async def _ends(admin: "Admin", partitions: "set[TopicPartition]") -> "dict[TopicPartition, int]":
    """Where they end now; without those that are gone or led by nobody."""
    from kbroker.client.types import TopicPartition

    topics = await admin.cluster.refresh({key.topic for key in partitions}) if partitions else {}
    led = {
        TopicPartition(name, each.partition)
        for name, topic in topics.items()
        for each in topic.partitions.values()
        if each.leader >= 0
    }
    asked = sorted(partitions & led)
    found = await admin.list_offsets(asked) if asked else {}
    return {key: each.offset for key, each in found.items()}


def _rows_of(
    group: str,
    offsets: "Mapping[TopicPartition, int]",
    ends: "Mapping[TopicPartition, int]",
    ages: "Mapping[Place, int]",
) -> list[dict[str, Any]]:
    """Sums, and the age of the oldest next record, are None where a part of them is not known."""
    by_topic: dict[str, list[TopicPartition]] = defaultdict(list)
    for key in sorted(offsets):
        by_topic[key.topic].append(key)
    rows = []
    for topic, keys in by_topic.items():
        lags = {key: max(ends[key] - offsets[key], 0) for key in keys if key in ends}
        is_known = len(lags) == len(keys)
        worst = max(lags, key=lambda key: lags[key], default=None)
        waited = [ages.get((key, offsets[key])) for key, lag in lags.items() if lag]
        known = [age for age in waited if age is not None]
        rows.append(
            {
                "group": group,
                "topic": topic,
                "partitions": len(keys),
                "committed": sum(offsets[key] for key in keys),
                "end_offset": sum(ends[key] for key in lags) if is_known else None,
                "lag": sum(lags.values()) if is_known else None,
                "worst": worst.partition if worst is not None and is_known else None,
                "behind_ms": max(known, default=0) if is_known and len(known) == len(waited) else None,
            }
        )
    return rows


def _add_rates(rows: list[dict[str, Any]], before: "Seen", now: float) -> None:
    """Add how much was committed and written per second since the last look."""
    for row in rows:
        key = row["group"], row["topic"]
        then = before.get(key)
        end_offset = row["end_offset"]
        row["reads_per_s"] = row["written_per_s"] = None
        if then is not None and now > then[0]:
            seconds = now - then[0]
            row["reads_per_s"] = round((row["committed"] - then[1]) / seconds, 1)
            if end_offset is not None and then[2] is not None:
                row["written_per_s"] = round((end_offset - then[2]) / seconds, 1)
        before[key] = now, row["committed"], end_offset
