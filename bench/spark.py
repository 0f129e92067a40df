"""Spark's own Kafka source (4.0.0, on the JVM) beside ours, on the same topics in one run.

The JVM source runs in an environment of its own, build/spark-4.0.0, with jars from Maven Central.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from bench.spark_job import START_MS, TOPICS
from bench.systems import Kbroker
from kbroker import Admin, Producer

ROWS = 4_000_000
CHUNK = 250_000
LIMIT_S = 1_800
THEIRS = Path("build/spark-4.0.0")
MAVEN = "https://repo1.maven.org/maven2"
JARS = (
    "org/apache/spark/spark-sql-kafka-0-10_2.13/4.0.0/spark-sql-kafka-0-10_2.13-4.0.0.jar",
    "org/apache/spark/spark-token-provider-kafka-0-10_2.13/4.0.0/spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    "org/apache/kafka/kafka-clients/3.9.0/kafka-clients-3.9.0.jar",
    "org/apache/commons/commons-pool2/2.12.0/commons-pool2-2.12.0.jar",
)


def install_theirs() -> list[str]:
    """Make the environment of Spark's own source, once; returns its jars."""
    if not (THEIRS / "bin" / "spark-submit").exists():
        subprocess.run([sys.executable, "-m", "venv", str(THEIRS)], check=True)
        subprocess.run([str(THEIRS / "bin" / "pip"), "install", "--quiet", "pyspark==4.0.0"], check=True)
    found = []
    for jar in JARS:
        path = (THEIRS / Path(jar).name).absolute()
        if not path.exists():
            with urllib.request.urlopen(f"{MAVEN}/{jar}") as answer, path.with_suffix(".part").open("wb") as file:
                shutil.copyfileobj(answer, file)
            path.with_suffix(".part").rename(path)
        found.append(str(path))
    return found


def fill(bootstrap: str, rows: int) -> None:
    """Send the same rows of 200 bytes, one millisecond apart, to one topic for each compression."""
    with Admin(bootstrap) as admin:
        for topic in (*TOPICS.values(), "bench-written-kafka", "bench-written-kbroker"):
            admin.create_topic(topic, partitions=4, configs={"retention.ms": "-1"})
    for topic in TOPICS.values():
        compression = topic.removeprefix("bench-")
        with Producer(bootstrap, compression=compression, buffer_memory=256 << 20) as producer:
            for first in range(0, rows, CHUNK):
                numbers = range(first, min(first + CHUNK, rows))
                values = [
                    b"%012d some text that compresses a little %020d" % (n, n * 7919 % 1_000_003) for n in numbers
                ]
                table = pa.table(
                    {
                        "value": pa.array([value.ljust(200, b".") for value in values], pa.binary()),
                        "partition": pa.array([n % 4 for n in numbers], pa.int32()),
                        "at": pa.array([START_MS + n for n in numbers], pa.int64()),
                    }
                )
                producer.send_arrow(topic, table, value="value", partition="partition", timestamp="at").result(120)


def run_job(python: str, *arguments: str) -> dict[str, float]:
    """Run bench/spark_job.py in a Python; returns its figures."""
    command = [python, str(Path(__file__).with_name("spark_job.py")), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def main(rows: int = ROWS) -> None:
    """Measure both and print one table."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    jars = install_theirs()
    with Kbroker() as system:
        console.print(f"filling {len(TOPICS)} topics with {rows:,} rows …")
        fill(system.bootstrap, rows)
        folder = str(system.folder)
        theirs = run_job(str(THEIRS / "bin" / "python"), "kafka", system.bootstrap, str(rows), folder, *jars)
        ours = run_job(sys.executable, "kbroker", system.bootstrap, str(rows), folder)
    Path("build/bench-spark.json").write_text(json.dumps({"kafka": theirs, "kbroker": ours}, indent=2))
    table = Table(title=f"Spark, {rows:,} rows of 200 bytes, two cores", title_justify="left")
    for heading in ("what", "Spark's JVM source", "kbroker", "kbroker / JVM"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for what, figure in ours.items():
        known = theirs.get(what)
        ratio = f"{figure / known:.2f}" if known else ""
        table.add_row(what, "" if known is None else f"{known:,.2f}", f"{figure:,.2f}", ratio)
    console.print(table)
