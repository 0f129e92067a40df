"""Run the measurements: python -m bench [broker|codec|records|client …] [--scale 0.1]."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

SECTIONS = ("codec", "records", "broker", "client")
RESULTS = Path("build/bench.json")


def compare(scale: float, console: Console) -> None:
    """Measure the broker beside Kafka and print one table."""
    from bench.broker import Figures, measure
    from bench.systems import kafka_is_there, systems

    if not kafka_is_there():
        console.print("Kafka cannot be started here (mvn or $KAFKA_ANCHOR is missing): only kbroker is measured")
    results: dict[str, dict[str, Figures]] = {}
    for kind in systems():
        console.print(f"measuring {kind.name} …")
        with kind() as system:
            results[kind.name] = measure(system, scale)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2))
    table = Table(title="One broker, one machine, one run", title_justify="left")
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
    parser.add_argument("--scale", type=float, default=1.0, help="shrink the loads of the broker section")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(f"Python {platform.python_version()} on {platform.machine()}")
    for section in arguments.sections or SECTIONS:
        console.rule(section)
        if section == "broker":
            compare(arguments.scale, console)
        else:
            importlib.import_module(f"bench.{section}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
