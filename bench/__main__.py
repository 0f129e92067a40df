"""Run the measurements: python -m bench [broker|replication|groups|codec|client|compaction|spark …] [--scale 0.1]."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

SECTIONS = (
    "codec",
    "records",
    "controller",
    "broker",
    "flush",
    "stalls",
    "replication",
    "groups",
    "client",
    "compaction",
    "spark",
)
COMPARED = {
    "broker": "One broker, one machine, one run",
    "flush": "A flush before each acknowledgement",
    "replication": "Three brokers on one machine, replication factor 3",
    "groups": "The group coordinator",
    "stalls": "Waits of an honest client beside others",
}
"""Sections whose `measure(kind, scale)` is run for each system, and the titles of their tables."""
SCALED = ("client", "compaction", "spark")
"""Sections whose `main` takes a scale."""
RESULTS = Path("build")


def compare(section: str, scale: float, console: Console) -> None:
    """Measure kbroker beside Kafka and print one table."""
    from bench.broker import Figures
    from bench.systems import kafka_is_there, remove_data, systems

    measure = importlib.import_module(f"bench.{section}").measure

    if not kafka_is_there():
        console.print("Kafka cannot be started here (mvn or $KAFKA_ANCHOR is missing): only kbroker is measured")
    results: dict[str, dict[str, Figures]] = {}
    for kind in systems():
        console.print(f"measuring {kind.name} …")
        results[kind.name] = measure(kind, scale)
    remove_data()
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"bench-{section}.json").write_text(json.dumps(results, indent=2))
    table = Table(title=COMPARED[section], title_justify="left")
    for heading in ("what", "figure", "Kafka 3.9.2", "kbroker", "kbroker / Kafka"):
        table.add_column(heading, justify="left" if heading in ("what", "figure") else "right")
    for what, figures in results["kbroker"].items():
        for figure, ours in figures.items():
            theirs = results.get("kafka", {}).get(what, {}).get(figure)
            ratio = "" if not theirs else f"{ours / theirs:.2f}"
            table.add_row(what, figure, "" if theirs is None else f"{theirs:,.2f}", f"{ours:,.2f}", ratio)
    console.print(table)


def main() -> int:
    """Run the sections asked for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="shrink the loads of what is compared")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(f"Python {platform.python_version()} on {platform.machine()}")
    for section in arguments.sections or SECTIONS:
        console.rule(section)
        if section in COMPARED:
            compare(section, arguments.scale, console)
        elif section in SCALED:
            importlib.import_module(f"bench.{section}").main(["--scale", str(arguments.scale)])
        else:
            importlib.import_module(f"bench.{section}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
