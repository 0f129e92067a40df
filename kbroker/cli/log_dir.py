"""`kbroker log-dir`: what lies on the brokers' disks, by directory or by topic."""

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format

if TYPE_CHECKING:
    from kbroker.client.admin import Admin
    from kbroker.client.types import LogDirDescription

DIRECTORY_COLUMNS = ("broker", "directory", "replicas", "bytes", "free_bytes", "total_bytes", "state")
TOPIC_COLUMNS = ("broker", "directory", "topic", "replicas", "bytes", "moving")

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Brokers = Annotated[list[int] | None, typer.Option("--broker", metavar="ID", help="Default: all; may be repeated.")]
Topics = Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Default: all.")]


@app.callback()
def log_dir() -> None:
    """Show what lies on the brokers' disks."""


@app.command("list")
def list_directories(
    broker: Brokers = None, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, output_format: Format = "table"
) -> None:
    """Show each log directory: how much is in it, and what its disk has left.

    \b
    kbroker log-dir list
    kbroker log-dir list --broker 2 --format json
    """
    from kbroker.cli.output import print_rows

    print_rows(directory_rows(_described(bootstrap, broker, None)), DIRECTORY_COLUMNS, output_format)


@app.command("describe")
def describe_directories(
    topics: Topics = None,
    broker: Brokers = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """Show what each topic takes in each log directory, the largest first.

    \b
    kbroker log-dir describe
    kbroker log-dir describe flights --broker 2
    """
    from kbroker.cli.output import print_rows

    rows = topic_rows(_described(bootstrap, broker, topics or None))
    print_rows(rows, TOPIC_COLUMNS, output_format, empty="no logs")


def _described(bootstrap: str, brokers: list[int] | None, topics: list[str] | None) -> "list[LogDirDescription]":
    from kbroker.cli.admin import with_admin

    async def work(admin: "Admin") -> "list[LogDirDescription]":
        found = await admin.describe_log_dirs(brokers or None, topics)
        seen = {replica.topic for each in found for replica in each.replicas}
        if unseen := [topic for topic in topics or () if topic not in seen]:
            await admin.describe_topics(unseen)  # raises for what is no topic
        return found

    return with_admin(bootstrap, work)


def directory_rows(described: "Iterable[LogDirDescription]") -> list[dict[str, Any]]:
    """One row for each directory; None for what the broker does not know."""
    return [
        {
            "broker": each.broker_id,
            "directory": each.path,
            "replicas": len(each.replicas),
            "bytes": sum(replica.size for replica in each.replicas),
            "free_bytes": None if each.usable_bytes < 0 else each.usable_bytes,
            "total_bytes": None if each.total_bytes < 0 else each.total_bytes,
            "state": "ok" if each.error is None else each.error.lower(),
        }
        for each in described
    ]


def topic_rows(described: "Iterable[LogDirDescription]") -> list[dict[str, Any]]:
    """One row for each topic in each directory; `moving`: replicas that are on their way to it."""
    rows = []
    for each in described:
        replicas = defaultdict(list)
        for replica in each.replicas:
            replicas[replica.topic].append(replica)
        for topic, logs in replicas.items():
            rows.append(
                {
                    "broker": each.broker_id,
                    "directory": each.path,
                    "topic": topic,
                    "replicas": len(logs),
                    "bytes": sum(log.size for log in logs),
                    "moving": sum(log.is_future for log in logs),
                }
            )
    return sorted(rows, key=lambda row: (-int(row["bytes"]), row["topic"], row["broker"]))
