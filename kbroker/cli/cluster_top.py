"""`kbroker cluster top`: what goes on, look by look: brokers, and the topics with most records.

Everything is asked by Kafka's protocol, so it works on any cluster: rates are what offsets and log directories have
grown by since the look before, and how busy a broker's event loop is shows in how long it leaves a question unanswered
that needs no work.
"""

import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format, Looks

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
    "answer_ms",
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
    answers: dict[int, float]
    """Seconds that each broker took to answer."""
    problems: tuple[str, ...] = ()
    """What could not be asked for, and why: it is None in the rows."""


def top(
    every: Annotated[float, typer.Option("--every", "-w", min=0.1, help="Look again after so many seconds.")] = 2.0,
    count: Looks = None,
    topics: Annotated[int, typer.Option("--topics", min=0, help="Most topics to show.")] = 20,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """Show what the brokers and the busiest topics do, until Ctrl-C: rates, lag, replicas, disks, how fast
    each broker answers (its loop).

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
                show(broker_rows(now, before), topic_rows(now, before)[:topics], now.problems)
                before = now
                looks += 1
                if looks == count:
                    return
                await asyncio.sleep(every)

    with_admin(bootstrap, work)


async def look(admin: "Admin") -> Look:
    """Ask the cluster how it is; a part of it that does not answer keeps nothing else from being shown."""
    from kbroker.cli.errors import attempt
    from kbroker.cli.group_lag import known_lag_rows

    problems: list[str] = []
    topics = await admin.describe_topics()  # any broker knows them: without an answer there is nothing to show
    described = await attempt("cluster", admin.describe_cluster(), problems)
    brokers = () if described is None else tuple(described.brokers)
    led: dict[int, list[TopicPartition]] = defaultdict(list)
    for key, leader in _leaders(topics).items():
        led[leader].append(key)
    ends: dict[TopicPartition, int] = {}
    answers: dict[int, float] = {}

    async def ask_leader(leader: int) -> None:
        found = await attempt(f"offsets of broker {leader}", admin.list_offsets(led[leader]), problems)
        ends.update({key: each.offset for key, each in (found or {}).items()})

    async def ask_disks(broker: int) -> "list[LogDirDescription]":
        return await attempt(f"disks of broker {broker}", admin.describe_log_dirs([broker]), problems) or []

    async def ask_answer(broker: int) -> None:
        took = await attempt(f"answers of broker {broker}", admin.answer_seconds(broker), problems)
        if took is not None:
            answers[broker] = took

    await asyncio.gather(*(ask_answer(each.id) for each in brokers))  # first: what is large would hold up our own loop
    disks = asyncio.gather(*(ask_disks(each.id) for each in brokers))
    await asyncio.gather(*map(ask_leader, led))
    at = time.monotonic()
    directories = [each for found in await disks for each in found]
    lags = await known_lag_rows(admin, ends, problems)
    controller = None if described is None else described.controller_id
    return Look(at, controller, brokers, topics, ends, directories, lags, answers, tuple(problems))


def _leaders(topics: "dict[str, TopicDescription]") -> "dict[TopicPartition, int]":
    """Return who leads what is led."""
    from kbroker.client.types import TopicPartition

    return {
        TopicPartition(name, each.partition): each.leader
        for name, topic in topics.items()
        for each in topic.partitions
        if each.leader is not None
    }


def broker_rows(now: Look, before: Look | None) -> list[dict[str, Any]]:
    """One row for each broker; rates are None in the first look."""
    partitions = [each for topic in now.topics.values() for each in topic.partitions]
    by_broker: dict[int, list[int | None]] = defaultdict(list)
    leaders = _leaders(now.topics)
    for key, count in _written(now, before).items():
        by_broker[leaders[key]].append(count)
    rows = []
    for broker in now.brokers:
        sizes, sizes_then = _sizes(now, broker.id), None if before is None else _sizes(before, broker.id)
        row = {
            "broker": broker.id,
            "controller": broker.id == now.controller,
            "leads": sum(each.leader == broker.id for each in partitions),
            "under_replicated": sum(
                each.leader == broker.id and len(each.isr) < len(each.replicas) for each in partitions
            ),
            "records_per_s": _rate(by_broker[broker.id], now, before),
            "log_bytes": sizes,
            "log_bytes_per_s": _rate([_grown(sizes, sizes_then)], now, before),
            "disk_used_percent": _disk_used_percent(now, broker.id),
            "answer_ms": round(now.answers[broker.id] * 1000, 1) if broker.id in now.answers else None,
        }
        rows.append(row)
    return rows


def topic_rows(now: Look, before: Look | None) -> list[dict[str, Any]]:
    """One row for each topic, the busiest first, with the group that has most of it to go."""
    written = _written(now, before)
    per_topic: dict[str, list[int | None]] = defaultdict(list)
    for (name, _), count in written.items():
        per_topic[name].append(count)
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
                "records_per_s": _rate(per_topic[name], now, before),
                "group": None if slowest is None else slowest["group"],
                "lag": None if slowest is None else slowest["lag"],
                "reads_per_s": _rate(
                    [_grown(None if slowest is None else slowest["committed"], committed)], now, before
                ),
            }
        )
    return sorted(rows, key=lambda row: (-(row["records_per_s"] or 0), -(row["lag"] or 0), row["topic"]))


def _written(now: Look, before: Look | None) -> "dict[TopicPartition, int | None]":
    """By partition that is led: how many records more than before; None where one of the two is not known."""
    then = {} if before is None else before.ends
    grown = {key: _grown(now.ends.get(key), then.get(key)) for key in _leaders(now.topics)}
    return {key: None if count is None else max(count, 0) for key, count in grown.items()}


def _grown(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else now - before


def _rate(grown: list[int | None], now: Look, before: Look | None) -> float | None:
    """Of all together per second; None where a part of them is not known."""
    known = [each for each in grown if each is not None]
    if before is None or len(known) < len(grown):
        return None
    return round(sum(known) / max(now.at - before.at, 0.001), 1)


def _sizes(seen: Look, broker: int) -> int | None:
    mine = [each for each in seen.directories if each.broker_id == broker]
    return sum(log.size for each in mine for log in each.replicas) if mine else None


def _disk_used_percent(seen: Look, broker: int) -> int | None:
    """Of the fullest of its disks; None where the broker does not know."""
    known = [each for each in seen.directories if each.broker_id == broker and each.total_bytes > 0]
    return max((100 - 100 * each.usable_bytes // each.total_bytes for each in known), default=None)


Show = Callable[[list[dict[str, Any]], list[dict[str, Any]], Sequence[str]], None]


@contextmanager
def _screen(output_format: Any) -> Iterator[Show]:
    """Yield what shows a look: in a terminal in the place of the one before, elsewhere below it."""
    from kbroker.cli.output import is_table, print_object, print_rows

    if output_format == "table" and sys.stdout.isatty():
        from rich.console import Group
        from rich.live import Live
        from rich.text import Text

        from kbroker.cli.output import printable, rich_table

        with Live(auto_refresh=False, screen=True) as live:

            def table(rows: list[dict[str, Any]], columns: Sequence[str]) -> Any:
                return rich_table(rows, columns, live.console.width) or rich_table(rows, columns)

            yield lambda brokers, topics, problems: live.update(
                Group(
                    table(brokers, BROKER_COLUMNS),
                    "",
                    table(topics, TOPIC_COLUMNS),
                    *(Text(printable(f"not known: {each}")) for each in problems),
                ),
                refresh=True,
            )
        return

    def show(brokers: list[dict[str, Any]], topics: list[dict[str, Any]], problems: Sequence[str]) -> None:
        if not is_table(output_format):
            told = {"brokers": brokers, "topics": topics, "problems": list(problems)}
            print_object(told, output_format, one_of_many=True)
            return
        print_rows(brokers, BROKER_COLUMNS, output_format)
        typer.echo("")
        print_rows(topics, TOPIC_COLUMNS, output_format, empty="no topics")
        for each in problems:
            typer.echo(f"not known: {each}", err=True)
        typer.echo("")

    yield show
