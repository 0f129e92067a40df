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
    "transactions",
    "tls",
    "quotas",
    "logins",
    "client",
    "compaction",
    "spark",
    "verify",
    "commands",
    "scrape",
    "counting",
    "page",
)
COMPARED = {
    "broker": "One broker, one machine, one run",
    "flush": "A flush before each acknowledgement",
    "replication": "Three brokers on one machine, replication factor 3",
    "groups": "The group coordinator",
    "transactions": "Transactions",
    "stalls": "Waits of an honest client beside others",
    "tls": "TLS beside clear text, the same stores and clients",
    "quotas": "Ten modest clients beside a greedy one",
    "logins": "Ten modest clients beside wrong passwords",
}
"""Sections whose `measure(kind, scale)` is run for each system, and the titles of their tables."""
SCALED = ("client", "compaction", "spark", "verify")
"""Sections whose `main` takes a scale."""
RESULTS = Path("build")


def compare(section: str, scale: float, console: Console) -> bool:
    """Measure kbroker beside Kafka and print one table; returns whether all was measured.

    What stops the measuring of one system is told, and the other's figures are shown all the same.
    """
    from bench.broker import Figures
    from bench.systems import Unfinished, kafka_is_there, remove_data, systems

    measure = importlib.import_module(f"bench.{section}").measure

    if not kafka_is_there():
        console.print(
            "Kafka cannot be started (its jars need mvn and java, or $KAFKA_ANCHOR): only kbroker is measured"
        )
    results: dict[str, dict[str, Figures]] = {}
    is_complete = True
    for kind in systems():
        console.print(f"measuring {kind.name} …")
        try:
            results[kind.name] = measure(kind, scale)
        except Exception as error:
            console.print(f"{kind.name} could not be measured to the end:")
            console.print_exception(max_frames=6)
            results[kind.name] = error.rows if isinstance(error, Unfinished) else {}
            is_complete = False
    remove_data()
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"bench-{section}.json").write_text(json.dumps(results, indent=2))
    table = Table(title=COMPARED[section], title_justify="left")
    for heading in ("what", "figure", "Kafka 3.9.2", "kbroker", "kbroker / Kafka"):
        table.add_column(heading, justify="left" if heading in ("what", "figure") else "right")
    ours, theirs = (results.get(name, {}) for name in ("kbroker", "kafka"))
    for what, figures in (ours or theirs).items():
        for figure in figures:
            own, other = (found.get(what, {}).get(figure) for found in (ours, theirs))
            ratio = f"{own / other:.2f}" if own is not None and other else ""
            table.add_row(what, figure, *("" if each is None else f"{each:,.2f}" for each in (other, own)), ratio)
    console.print(table)
    return is_complete


def main() -> int:
    """Run the sections asked for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="shrink the loads of what is compared")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(f"Python {platform.python_version()} on {platform.machine()}")
    is_complete = True
    for section in arguments.sections or SECTIONS:
        console.rule(section)
        if section in COMPARED:
            is_complete &= compare(section, arguments.scale, console)
        elif section in SCALED:
            importlib.import_module(f"bench.{section}").main(["--scale", str(arguments.scale)])
        else:
            importlib.import_module(f"bench.{section}").main()
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
