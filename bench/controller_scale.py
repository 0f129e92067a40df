"""The controller of a large cluster: python -m bench.controller_scale simulated|stubs [--brokers 100] [--partitions …].

`simulated` plays ZooKeeper and the brokers in this process and measures the controller alone; `stubs` runs a broker of
ours, and Apache Kafka's, as the controller of brokers that only answer, with a real ZooKeeper.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.large_cluster import Shape

REQUESTS = ("LeaderAndIsr", "UpdateMetadata", "StopReplica")


def simulated(shape: Shape, restarted: int, console: Console) -> None:
    """Measure and print one table."""
    from bench.scale_simulated import measure

    table = Table(title=str(shape))
    columns = ("what happens", "CPU s", "longest turn ms", "reads", "of nodes", "writes", "of nodes", "ZooKeeper MB")
    for column in (*columns, *REQUESTS, "most to one", "MB", "memory MB"):
        table.add_column(column, justify="left" if column == columns[0] else "right")
    for story in measure(shape, restarted):
        table.add_row(
            story.name,
            f"{story.cpu_s:.2f}",
            f"{story.longest_ms:.1f}",
            *(f"{each:,}" for each in (story.reads, story.nodes_read, story.writes, story.nodes_written)),
            f"{story.zookeeper_bytes / 1e6:.1f}",
            *(f"{story.requests[each]:,}" for each in REQUESTS),
            f"{story.most_per_broker:,}",
            f"{story.request_bytes / 1e6:,.1f}",
            f"{story.memory_mb:+.0f}",
        )
    console.print(table)


def stubs(shape: Shape, things: Sequence[str], limit_s: float, only: str | None, console: Console) -> None:
    """Measure all systems that are here, or one, and print one table."""
    from bench.scale_stubs import measure
    from bench.systems import systems

    table = Table(title=str(shape))
    columns = ("what happens", "system", "s", "CPU s", "longest wait ms")
    for column in (*columns, *REQUESTS, "most to one", "MB", "resident MB"):
        table.add_column(column, justify="left" if column in columns[:2] else "right")
    for kind in systems():
        if only not in (None, kind.name):
            continue
        for story in measure(kind, shape, things, limit_s):
            table.add_row(
                story.name,
                kind.name,
                f"{'' if story.has_ended else 'not within '}{story.seconds:.2f}",
                f"{story.cpu_s:.2f}",
                f"{story.longest_wait_ms:.0f}",
                *(f"{story.requests[each]:,}" for each in REQUESTS),
                f"{story.most_to_one:,}",
                f"{story.megabytes:,.1f}",
                f"{story.resident_mb:,.0f}",
            )
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.controller_scale", description=__doc__)
    parser.add_argument("how", choices=["simulated", "stubs"])
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--restarted", type=int, default=10, help="simulated: how many brokers restart in turn")
    parser.add_argument(
        "--things", nargs="*", default=(), choices=["take over", "broker", "stop"], help="stubs: only these"
    )
    parser.add_argument("--limit", type=float, default=300, help="stubs: seconds that each thing may take")
    parser.add_argument("--only", choices=["kbroker", "kafka"], help="stubs: not beside each other")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 200)
    shape = Shape(options.brokers, options.topics, options.partitions, options.replicas)
    if options.how == "simulated":
        simulated(shape, options.restarted, console)
    else:
        stubs(shape, options.things, options.limit, options.only, console)


if __name__ == "__main__":
    main()
