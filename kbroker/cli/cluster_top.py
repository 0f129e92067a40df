"""`kbroker cluster top`: what goes on, look by look: brokers, and the topics with most records.

Everything is asked by Kafka's protocol, so it works on any cluster: rates are what offsets and log directories have
grown by since the look before.
"""

import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format

if TYPE_CHECKING:
    from kbroker.client.admin import Admin
    from kbroker.client.types import BrokerDescription, LogDirDescription, TopicDescription, TopicPartition

BROKER_COLUMNS = (
    "broker",
    "controller",
    "leads",
    "under_replicated",
    "records_per_s",
    "log_bytes",
    "log_bytes_per_s",
    "disk_used_percent",
)
TOPIC_COLUMNS = ("topic", "partitions", "records_per_s", "group", "lag", "reads_per_s")


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at a moment."""

    at: float
    controller: int | None
    brokers: "tuple[BrokerDescription, ...]"
    topics: "dict[str, TopicDescription]"
    ends: "dict[TopicPartition, int]"
    directories: "list[LogDirDescription]"
    lags: list[dict[str, Any]]
    """The rows of `group lag`."""


def top(
    every: Annotated[float, typer.Option("--every", "-w", min=0.1, help="Look again after so many seconds.")] = 2.0,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after so many looks.")] = None,
    topics: Annotated[int, typer.Option("--topics", min=0, help="Most topics to show.")] = 20,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """Show what the brokers and the busiest topics do, until Ctrl-C: rates, lag, replicas, disks.

    \b
    kbroker cluster top
    kbroker cluster top --every 5 -n 12 --format json
    """
    from kbroker.cli.admin import with_admin

    async def work(admin: "Admin") -> None:
        before: Look | None = None
        looks = 0
        with _screen(output_format) as show:
            while True:
                now = await look(admin)
                show(broker_rows(now, before), topic_rows(now, before)[:topics])
                before = now
                looks += 1
                if looks == count:
                    return
                await asyncio.sleep(every)

    with_admin(bootstrap, work)


async def look(admin: "Admin") -> Look:
    """Ask the cluster how it is."""
    from kbroker.cli.group_lag import lag_rows
    from kbroker.client.types import TopicPartition

    described, topics = await admin.describe_cluster(), await admin.describe_topics()
    led = [
        TopicPartition(name, each.partition)
        for name, topic in topics.items()
        for each in topic.partitions
        if each.leader is not None
    ]
    ends = await admin.list_offsets(led) if led else {}
    at = time.monotonic()
    directories = await admin.describe_log_dirs()
    lags = await lag_rows(admin, None)
    offsets = {key: each.offset for key, each in ends.items()}
    return Look(at, described.controller_id, tuple(described.brokers), topics, offsets, directories, lags)


def broker_rows(now: Look, before: Look | None) -> list[dict[str, Any]]:
    """One row for each broker; rates are None in the first look."""
    from kbroker.client.types import TopicPartition

    partitions = [
        (TopicPartition(name, each.partition), each) for name, topic in now.topics.items() for each in topic.partitions
    ]
    written = _written(now, before)
    by_broker: dict[int | None, int] = defaultdict(int)
    for key, each in partitions:
        by_broker[each.leader] += written.get(key, 0)
    rows = []
    for broker in now.brokers:
        sizes = _sizes(now, broker.id)
        row = {
            "broker": broker.id,
            "controller": broker.id == now.controller,
            "leads": sum(each.leader == broker.id for _, each in partitions),
            "under_replicated": sum(
                each.leader == broker.id and len(each.isr) < len(each.replicas) for _, each in partitions
            ),
            "records_per_s": None if before is None else _rate(by_broker[broker.id], now, before),
            "log_bytes": sizes,
            "log_bytes_per_s": None if before is None else _rate(sizes - _sizes(before, broker.id), now, before),
            "disk_used_percent": _disk_used_percent(now, broker.id),
        }
        rows.append(row)
    return rows


def topic_rows(now: Look, before: Look | None) -> list[dict[str, Any]]:
    """One row for each topic, the busiest first, with the group that has most of it to go."""
    written = _written(now, before)
    per_topic: dict[str, int] = defaultdict(int)
    for (name, _), count in written.items():
        per_topic[name] += count
    worst: dict[str, dict[str, Any]] = {}
    for row in now.lags:  # the largest lag comes first
        worst.setdefault(row["topic"], row)
    then = {} if before is None else {(row["group"], row["topic"]): row["committed"] for row in before.lags}
    rows = []
    for name, topic in now.topics.items():
        slowest = worst.get(name)
        committed = None if slowest is None else then.get((slowest["group"], name))
        rows.append(
            {
                "topic": name,
                "partitions": len(topic.partitions),
                "records_per_s": None if before is None else _rate(per_topic[name], now, before),
                "group": None if slowest is None else slowest["group"],
                "lag": None if slowest is None else slowest["lag"],
                "reads_per_s": None
                if slowest is None or before is None or committed is None
                else _rate(slowest["committed"] - committed, now, before),
            }
        )
    return sorted(rows, key=lambda row: (-(row["records_per_s"] or 0), -(row["lag"] or 0), row["topic"]))


def _written(now: Look, before: Look | None) -> "dict[TopicPartition, int]":
    if before is None:
        return {}
    return {key: max(end - before.ends.get(key, end), 0) for key, end in now.ends.items()}


def _rate(grown: int, now: Look, before: Look) -> float:
    return round(grown / max(now.at - before.at, 0.001), 1)


def _sizes(seen: Look, broker: int) -> int:
    return sum(log.size for each in seen.directories if each.broker_id == broker for log in each.replicas)


def _disk_used_percent(seen: Look, broker: int) -> int | None:
    """Of the fullest of its disks; None where the broker does not know."""
    known = [each for each in seen.directories if each.broker_id == broker and each.total_bytes > 0]
    return max((100 - 100 * each.usable_bytes // each.total_bytes for each in known), default=None)


Show = Callable[[list[dict[str, Any]], list[dict[str, Any]]], None]


@contextmanager
def _screen(output_format: Any) -> Iterator[Show]:
    """Yield what shows a look: in a terminal in the place of the one before, elsewhere below it."""
    from kbroker.cli.output import print_object, print_rows

    if output_format == "table" and sys.stdout.isatty():
        from rich.console import Group
        from rich.live import Live

        from kbroker.cli.output import rich_table

        with Live(auto_refresh=False, screen=True) as live:
            yield lambda brokers, topics: live.update(
                Group(rich_table(brokers, BROKER_COLUMNS), "", rich_table(topics, TOPIC_COLUMNS)), refresh=True
            )
        return

    def show(brokers: list[dict[str, Any]], topics: list[dict[str, Any]]) -> None:
        if output_format != "table":
            print_object({"brokers": brokers, "topics": topics}, output_format, one_of_many=True)
            return
        print_rows(brokers, BROKER_COLUMNS, "table")
        typer.echo("")
        print_rows(topics, TOPIC_COLUMNS, "table", empty="no topics")
        typer.echo("")

    yield show
