"""Spark's own Kafka source (4.0.0, on the JVM) beside ours, on the same topics in one run.

The JVM source runs in an environment of its own, build/spark-4.0.0, with jars that mvn fetches. Each step of each side
is a process with a time limit: one that hangs or fails costs its own figures only.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from bench.spark_job import LARGE, LIVE, START_MS, STEPS, TINY, TOPICS, WIDE
from bench.systems import Kbroker
from kbroker import Admin, Producer

ROWS = 4_000_000
CHUNK = 250_000
OURS_ALONE = ("memory", "sink")
"""Steps that the JVM source, which has no Python worker and no exactly-once sink, does not take."""
LARGE_BYTES, LARGE_MESSAGES = 10_000_000, 100
FEWEST_LARGE = 24
ONE_REPLICA = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
STEP_LIMIT_S = 300.0
INSTALL_LIMIT_S = 900.0
THEIRS = Path("build/spark-4.0.0")
JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.0",
    "org.apache.commons:commons-pool2:2.12.0",
)
RATE, BURSTS = 1_000, 100
"""Records a second on the live topic, and how often a second some are sent."""

AT_LEAST = {
    "scan none: M rows/s": 2.0,
    "scan lz4: M rows/s": 1.5,
    "scan zstd: M rows/s": 1.5,
    "to Parquet: M rows/s": 1.2,
    "AvailableNow: M rows/s": 2.0,
    "AvailableNow, three topics: M rows/s": 2.0,
    "write: M rows/s": 2.0,
}
"""Goals: figure -> times the JVM source's."""
AT_MOST = {"trigger without data: ms": 1.0, "latency at 1,000 msg/s, mean: ms": 1.0}
OF_SCAN = {"1,000 offsets: s": 1 / 20, "1 % of the time: s": 1 / 20}
"""Goals: figure -> part of our full scan, which each is measured beside; what Spark itself takes does not count."""
BELOW = {"plan 1,000 partitions: s": 1.0, "Python worker, 10 MB messages: MB": 300.0}
BELOW["Python worker, tiny messages: MB"] = 300.0
SCAN = "full scan: s"
LARGE_ONCE, LARGE_AT_LEAST_ONCE, SMALL_ONCE, SMALL_AT_LEAST_ONCE = (
    f"micro-batch of {size} written {promise}: ms"
    for size in ("1M rows", "1,000 rows")
    for promise in ("exactly once", "at least once")
)
"""Exactly once may cost 15 % of a large batch, and 300 ms of a small one."""

FLOORS = {
    "scan none: M rows/s": "Spark's own share of a scan: M rows/s",
    "AvailableNow: M rows/s": "Spark's own share of AvailableNow: M rows/s",
    "1,000 offsets: s": "1,000 offsets, of a source that reads nothing: s",
    "1 % of the time: s": "1 % of the time, of a source that reads nothing: s",
}
"""Figures whose most (or least) is Spark's own: that of a source whose rows are there, or that has none."""

Figures = dict[str, float]


def install_theirs() -> list[str]:
    """Make the environment of Spark's own source, once; returns its jars."""
    if not (THEIRS / "bin" / "spark-submit").exists():
        subprocess.run([sys.executable, "-m", "venv", str(THEIRS)], check=True, timeout=INSTALL_LIMIT_S)
        install = [str(THEIRS / "bin" / "pip"), "install", "--quiet", "pyspark==4.0.0"]
        subprocess.run(install, check=True, timeout=INSTALL_LIMIT_S)
    folder = (THEIRS / "kafka-jars").absolute()
    for artifact in JARS:
        _, name, version = artifact.split(":")
        if not (folder / f"{name}-{version}.jar").exists():
            wanted = [f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
            copy = ["mvn", "-q", "-B", "-Dstyle.color=never", "dependency:copy", *wanted]
            subprocess.run(copy, check=True, timeout=INSTALL_LIMIT_S)
    return sorted(map(str, folder.glob("*.jar")))


def create_topics(bootstrap: str) -> None:
    """Create all topics; records stamped long ago stay."""
    kept = {"retention.ms": "-1"}
    with Admin(bootstrap) as admin:
        for topic in (*TOPICS.values(), "bench-written-kafka", "bench-written-kbroker", LIVE, TINY):
            admin.create_topic(topic, partitions=4, configs=kept)
        admin.create_topic(WIDE, partitions=1_000, configs=kept)
        admin.create_topic(LARGE, partitions=2, configs={**kept, "max.message.bytes": str(LARGE_BYTES + 10_000)})


def rows_of(first: int, count: int) -> pa.Table:
    """Return rows of 200 bytes, one millisecond apart."""
    numbers = range(first, first + count)
    values = [b"%012d some text that compresses a little %020d" % (n, n * 7919 % 1_000_003) for n in numbers]
    return pa.table(
        {
            "value": pa.array([value.ljust(200, b".") for value in values], pa.binary()),
            "partition": pa.array([n % 4 for n in numbers], pa.int32()),
            "at": pa.array([START_MS + n for n in numbers], pa.int64()),
        }
    )


def fill(bootstrap: str, rows: int) -> None:
    """Send the same rows to one topic for each compression; tiny, large and spread ones to topics of their own."""
    with contextlib.ExitStack() as stack:
        producers = {}
        for compression, topic in TOPICS.items():
            producers[topic] = stack.enter_context(Producer(bootstrap, compression=compression))
        for first in range(0, rows, CHUNK):
            table = rows_of(first, min(CHUNK, rows - first))
            sent = [
                producer.send_arrow(topic, table, value="value", partition="partition", timestamp="at")
                for topic, producer in producers.items()
            ]
            for delivery in sent:
                delivery.result(120)
        plain = producers[TOPICS["none"]]
        digits = pa.array([b"%d" % (n % 10) for n in range(CHUNK)], pa.binary())
        for first in range(0, rows, CHUNK):
            some = pa.table({"value": digits.slice(0, min(CHUNK, rows - first))})
            plain.send_arrow(TINY, some, value="value").result(120)
        spread = [n % 1_000 for n in range(10_000)]
        table = pa.table({"value": digits.slice(0, len(spread)), "partition": pa.array(spread, pa.int32())})
        plain.send_arrow(WIDE, table, value="value", partition="partition").result(120)
    with Producer(bootstrap, max_request_size=LARGE_BYTES + 1_000) as producer:
        message = os.urandom(LARGE_BYTES)
        for number in range(max(FEWEST_LARGE, LARGE_MESSAGES * rows // ROWS)):
            producer.send(LARGE, message, partition=number % 2).result(60)


@contextlib.contextmanager
def live_topic(bootstrap: str) -> Iterator[None]:
    """Send RATE records a second meanwhile."""
    over = threading.Event()

    def send() -> None:
        with Producer(bootstrap, linger_ms=0) as producer:
            at = time.monotonic()
            for number in itertools.count():
                for _ in range(RATE // BURSTS):
                    producer.send(LIVE, b"x" * 200, partition=number % 4)
                at += 1 / BURSTS
                if over.wait(max(0.0, at - time.monotonic())):
                    return

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


def run_step(step: str, system: Kbroker, rows: int, jars: list[str] | None) -> Figures:
    """Run a step of the JVM source (with its jars) or of ours, at most STEP_LIMIT_S; returns what it told."""
    source, python, environment = "kbroker", sys.executable, {**os.environ, "PYTHONPATH": os.getcwd()}
    if jars is not None:
        source, python = "kafka", str(THEIRS / "bin" / "python")
        environment.pop("PYTHONPATH")
    environment.pop("SPARK_HOME", None)
    arguments = [source, step, system.bootstrap, str(rows), str(system.folder), *([",".join(jars)] if jars else [])]
    began = time.monotonic()
    output, errors = (system.folder / f"{source}-{step}.{kind}" for kind in ("out", "err"))
    with output.open("wb") as stdout, errors.open("wb") as stderr:
        job = subprocess.Popen(
            [python, str(Path(__file__).with_name("spark_job.py")), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            start_new_session=True,
        )
        problem = ""
        try:
            if job.wait(STEP_LIMIT_S):
                problem = f"ended with {job.returncode}"
        except subprocess.TimeoutExpired:
            problem = f"took longer than {STEP_LIMIT_S:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)  # Spark's JVM too; its Python daemon ends with it
            job.wait()
    if problem:
        print(f"{source}: the step {step} {problem}:\n{errors.read_text(errors='replace')[-2000:]}", file=sys.stderr)
    print(f"{source}, {step}: {time.monotonic() - began:.0f} s", flush=True)
    figures: Figures = {}
    for line in output.read_text().splitlines():
        if line.startswith("{"):
            figures.update(json.loads(line))
    return figures


def goal(figure: str, theirs: Figures, ours: Figures) -> tuple[str, str]:
    """Return the goal of a figure in words, with what any Python source could reach, and whether it is met."""
    value, known = ours[figure], theirs.get(figure)
    floor = ours.get(FLOORS.get(figure, ""))
    if figure in OF_SCAN:
        part = (value - (floor or 0.0)) / ours[SCAN]
        own = "" if floor is None else f" without Spark's own {floor / ours[SCAN]:.3f}"
        return f"≤ {OF_SCAN[figure]:.2f} of the scan{own}: {part:.3f}", _word(part <= OF_SCAN[figure])
    if figure in BELOW:
        return f"< {BELOW[figure]:g}", _word(value < BELOW[figure])
    if figure == LARGE_ONCE:
        ratio = value / ours[LARGE_AT_LEAST_ONCE]
        return f"≤ 1.15 x at least once: {ratio:.2f}", _word(ratio <= 1.15)
    if figure == SMALL_ONCE:
        return f"≤ at least once + 300: {value - ours[SMALL_AT_LEAST_ONCE]:.0f}", _word(
            value <= ours[SMALL_AT_LEAST_ONCE] + 300
        )
    if figure in AT_LEAST:
        own = "" if floor is None or not known else f", without a broker {floor / known:.2f} x"
        return f"≥ {AT_LEAST[figure]:g} x{own}", "" if not known else _word(value >= AT_LEAST[figure] * known)
    if figure in AT_MOST:
        return f"≤ {AT_MOST[figure]:g} x", "" if not known else _word(value <= AT_MOST[figure] * known)
    return "", ""


def _word(met: bool) -> str:
    return "yes" if met else "no"


def report(theirs: Figures, ours: Figures, rows: int) -> Table:
    """Return the table of all figures with their goals."""
    table = Table(title=f"Spark, {rows:,} rows of 200 bytes, two cores", title_justify="left")
    for heading in ("what", "JVM source", "kbroker", "kbroker / JVM", "goal", "met"):
        table.add_column(heading, justify="left" if heading in ("what", "goal") else "right")
    for what, figure in ours.items():
        known = theirs.get(what)
        ratio = f"{figure / known:.2f}" if known else ""
        row = ("" if known is None else f"{known:,.2f}", f"{figure:,.2f}", ratio)
        table.add_row(what, *row, *goal(what, theirs, ours))
    return table


def main(arguments: Sequence[str] = ()) -> int:
    """Measure both step by step, and print one table; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("steps", nargs="*", choices=[*STEPS, []], help="default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="shrink the loads")
    given = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    rows = max(CHUNK, int(ROWS * given.scale))
    jars: list[str] | None = None
    if shutil.which("mvn") is None:
        console.print("mvn is missing, which fetches Spark's JVM source: only kbroker is measured")
    else:
        jars = install_theirs()
    theirs: Figures = {}
    ours: Figures = {}
    with Kbroker(ONE_REPLICA) as system:
        console.print(f"filling {len(TOPICS)} topics with {rows:,} rows …")
        create_topics(system.bootstrap)
        fill(system.bootstrap, rows)
        for step in given.steps or STEPS:
            with live_topic(system.bootstrap) if step == "latency" else contextlib.nullcontext():
                if jars is not None and step not in OURS_ALONE:
                    theirs.update(run_step(step, system, rows, jars))
                ours.update(run_step(step, system, rows, None))
    Path("build").mkdir(exist_ok=True)
    Path("build/bench-spark.json").write_text(json.dumps({"kafka": theirs, "kbroker": ours}, indent=2))
    console.print(report(theirs, ours, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
