"""One step of the measurement of one Spark source: run by bench/spark.py in the Python that has it.

python spark_job.py kafka|kbroker STEP BOOTSTRAP ROWS FOLDER [JAR,…]

Each figure is printed when it is known, as one line of JSON, so that a step that is cut short has shown some.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

TOPICS = {"none": "bench-none", "lz4": "bench-lz4", "zstd": "bench-zstd"}
LIVE, WIDE, LARGE, TINY = "bench-live", "bench-wide", "bench-large", "bench-tiny"
START_MS = 1_700_000_000_000
REPEATS, FILTER_REPEATS = 4, 14
WARM_S, LATENCY_S = 8.0, 15.0
IDLE_S = 6.0
TICK = os.sysconf("SC_CLK_TCK")
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.noDataProgressEventInterval": "100",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class Job:
    """Measurements of one source."""

    def __init__(self, source: str, bootstrap: str, rows: int, folder: str, jars: str) -> None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        self.source, self.bootstrap, self.rows, self.folder, self.jars = source, bootstrap, rows, folder, jars
        self.spark = self.start_spark()

    def start_spark(self) -> Any:
        """Return a new session on two cores."""
        builder = SparkSession.builder.master("local[2]")
        for key, value in SETTINGS.items():
            builder = builder.config(key, value)
        spark = (builder.config("spark.jars", self.jars) if self.jars else builder).getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        if self.source == "kbroker":
            from bench.spark_floors import Nothing, Ready
            from kbroker import spark_connector

            spark_connector.enable(spark)
            spark.dataSource.register(Ready)
            spark.dataSource.register(Nothing)
        return spark

    def tell(self, figure: str, value: float) -> None:
        """Print a figure."""
        print(json.dumps({figure: value}), flush=True)

    def read(self, topic: str, **options: str) -> Any:
        """Return a batch frame of a topic."""
        reader = self.spark.read.format(self.source).option("kafka.bootstrap.servers", self.bootstrap)
        return reader.option("subscribe", topic).options(**options).load()

    def read_stream(self, topic: str, start: str) -> Any:
        """Return a streaming frame of a topic."""
        reader = self.spark.readStream.format(self.source).option("kafka.bootstrap.servers", self.bootstrap)
        return reader.option("subscribe", topic).option("startingOffsets", start).load()

    def best(self, work: Callable[[], object], repeats: int = REPEATS) -> tuple[float, float]:
        """Return the least wall-clock and CPU seconds of some runs, of which the first warms up."""
        times, cpu_times = [], []
        for _ in range(repeats):
            cpu, began = cpu_seconds(), time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
            cpu_times.append(cpu_seconds() - cpu)
        return min(times[1:]), min(cpu_times[1:])

    def ready(self, rows: int) -> Any:
        """Return a frame of rows that are there already: what reading them costs is Spark's own."""
        return self.spark.read.format("ready").option("rows", str(rows)).load()

    def scan(self) -> None:
        """Aggregate over all rows; and over as many that no broker sends."""
        if self.source == "kbroker":
            took, cpu = self.best(lambda: self.aggregate(self.ready(self.rows)))
            self.tell("Spark's own share of a scan: M rows/s", self.rows / took / 1e6)
            self.tell("Spark's own share of a scan: CPU-s per M rows", cpu / self.rows * 1e6)
        for name, topic in TOPICS.items():
            took, cpu = self.best(lambda topic=topic: self.aggregate(self.read(topic)))  # type: ignore[misc]
            self.tell(f"scan {name}: M rows/s", self.rows / took / 1e6)
            self.tell(f"scan {name}: CPU-s per M rows", cpu / self.rows * 1e6)

    def parquet(self) -> None:
        """Copy a topic to Parquet."""
        output, frame = f"{self.folder}/{self.source}.parquet", self.read(TOPICS["none"])
        took, cpu = self.best(lambda: frame.write.mode("overwrite").parquet(output), 3)
        self.tell("to Parquet: M rows/s", self.rows / took / 1e6)
        self.tell("to Parquet: CPU-s per M rows", cpu / self.rows * 1e6)

    def aggregate(self, frame: Any) -> None:
        """Touch every value."""
        count, _ = total(frame)
        assert count, "no row was read"

    def filter(self) -> None:
        """Read 1,000 offsets and 1 % of the time, beside the scan of all and a source that reads nothing.

        Each query is planned anew each time, and what is compared takes turns.
        """
        begin = datetime.datetime.fromtimestamp((START_MS + self.rows // 2) / 1000, datetime.UTC)
        end = begin + datetime.timedelta(milliseconds=self.rows // 100)
        texts = [moment.strftime("TIMESTAMP '%Y-%m-%d %H:%M:%S.%f'") for moment in (begin, end)]
        conditions = {
            "1,000 offsets": "partition = 1 AND offset >= 5000 AND offset < 6000",
            "1 % of the time": f"timestamp >= {texts[0]} AND timestamp < {texts[1]}",
        }
        ours = self.source == "kbroker"
        frame = self.read(TOPICS["none"], **({"maxTimestampDisorderMs": "0"} if ours else {}))
        queries: dict[str, Callable[[], object]] = {}
        if ours:
            queries["full scan"] = partial(self.aggregate, frame)
        for name, condition in conditions.items():
            rows = frame.where(condition)
            queries[name] = partial(self.aggregate, rows)
            if ours:
                tasks = rows._jdf.queryExecution().toRdd().getNumPartitions()
                none = self.spark.read.format("nothing").option("tasks", str(tasks)).load().where(condition)
                queries[f"{name}, of a source that reads nothing"] = partial(total, none)
        took: dict[str, list[float]] = {name: [] for name in queries}
        for _ in range(FILTER_REPEATS if ours else REPEATS):
            for name, query in queries.items():
                began = time.perf_counter()
                query()
                took[name].append(time.perf_counter() - began)
        for name, times in took.items():
            self.tell(f"{name}: s", min(times[2:]))

    def stream(self) -> None:
        """Read all in one micro-batch, of one topic and of three; then trigger without data."""
        if self.source == "kbroker":
            ready = self.spark.readStream.format("ready").option("rows", str(self.rows)).load()
            writer = ready.selectExpr("sum(length(value)) AS bytes").writeStream.format("noop").outputMode("complete")
            took, cpu = self.best(lambda: writer.trigger(availableNow=True).start().awaitTermination(), 4)
            self.tell("Spark's own share of AvailableNow: M rows/s", self.rows / took / 1e6)
            self.tell("Spark's own share of AvailableNow: CPU-s per M rows", cpu / self.rows * 1e6)
        for name, topics in (("AvailableNow", [TOPICS["none"]]), ("AvailableNow, three topics", [*TOPICS.values()])):
            frame = self.read_stream(",".join(topics), "earliest").selectExpr("sum(length(value)) AS bytes")
            writer = frame.writeStream.format("noop").outputMode("complete").trigger(availableNow=True)
            took, cpu = self.best(lambda writer=writer: writer.start().awaitTermination(), 4)  # type: ignore[misc]
            rows = self.rows * len(topics)
            self.tell(f"{name}: M rows/s", rows / took / 1e6)
            self.tell(f"{name}: CPU-s per M rows", cpu / rows * 1e6)
        idle = self.read_stream(TOPICS["none"], "latest")
        query = idle.writeStream.format("noop").trigger(processingTime="50 milliseconds").start()
        time.sleep(WARM_S + IDLE_S)
        durations = [each["durationMs"]["triggerExecution"] for each in query.recentProgress]
        query.stop()
        self.tell("trigger without data: ms", median(durations[len(durations) // 2 :]))

    def latency(self) -> None:
        """Follow a topic of 1,000 records a second: how old they are once an aggregate has seen them."""
        seen: list[tuple[int, float, float]] = []

        def note(batch: Any, number: int) -> None:
            count, total, oldest = batch.selectExpr(
                "count(*)", "sum(CAST(timestamp AS double))", "min(CAST(timestamp AS double))"
            ).collect()[0]
            if count:
                now = time.time()
                seen.append((count, now - total / count, now - oldest))

        query = self.read_stream(LIVE, "latest").writeStream.foreachBatch(note).start()
        while not seen and query.isActive:
            time.sleep(0.1)
        time.sleep(WARM_S)
        seen.clear()
        cpu = cpu_seconds()
        time.sleep(LATENCY_S)
        measured = list(seen)
        cpu = cpu_seconds() - cpu
        if not query.isActive:
            raise RuntimeError(f"the query ended: {query.exception()}")
        rows = sum(count for count, _, _ in measured)
        durations = [each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]]
        query.stop()
        self.tell("latency at 1,000 msg/s, mean: ms", 1e3 * sum(count * age for count, age, _ in measured) / rows)
        self.tell("latency at 1,000 msg/s, oldest row, median: ms", 1e3 * median([age for _, _, age in measured]))
        self.tell("micro-batch with data: ms", median(durations[len(durations) // 3 :]))
        self.tell("following 1,000 msg/s: CPU-s per s", cpu / LATENCY_S)

    def write(self) -> None:
        """Write rows of 200 bytes, which cost little to make."""
        frame = self.spark.range(self.rows).selectExpr(f"concat('{'x' * 188}', id + 100000000000) AS value")
        writer = frame.write.format(self.source).mode("append").option("kafka.bootstrap.servers", self.bootstrap)
        took, cpu = self.best(lambda: writer.option("topic", f"bench-written-{self.source}").save(), 4)
        self.tell("write: M rows/s", self.rows / took / 1e6)
        self.tell("write: CPU-s per M rows", cpu / self.rows * 1e6)

    def sink(self) -> None:
        """Write micro-batches, large and small, at least once and exactly once: how long each takes."""
        for name, rows, batches in (("1M rows", 1_000_000, 5), ("1,000 rows", 1_000, 20)):
            for promise, options in (("at least once", {}), ("exactly once", {"exactlyOnce": "true"})):
                frame = (
                    self.spark.readStream.format("rate-micro-batch")
                    .option("rowsPerBatch", str(rows))
                    .option("numPartitions", "4")
                    .load()
                    .selectExpr(f"concat('{'x' * 188}', value + 100000000000) AS value")
                )
                writer = frame.writeStream.format(self.source).option("kafka.bootstrap.servers", self.bootstrap)
                writer = writer.option("topic", f"bench-written-{self.source}").options(**options)
                checkpoint = f"{self.folder}/sink-{rows}-{len(options)}"
                query = writer.option("checkpointLocation", checkpoint).trigger(processingTime="0 seconds").start()
                while query.isActive and len(query.recentProgress) <= batches:
                    time.sleep(0.05)
                took = [each["durationMs"]["triggerExecution"] for each in query.recentProgress[1:]]
                query.stop()
                if len(took) < batches:
                    raise RuntimeError(f"the query ended: {query.exception()}")
                self.tell(f"micro-batch of {name} written {promise}: ms", median(took))

    def plan(self) -> None:
        """Plan the read of a topic of 1,000 partitions."""

        def tasks() -> None:
            found = self.read(WIDE)._jdf.queryExecution().toRdd().getNumPartitions()
            assert found == 1_000, f"{found} tasks"

        self.tell("plan 1,000 partitions: s", self.best(tasks)[0])

    def memory(self) -> None:
        """Read the largest and the smallest messages; the most that a Python worker held."""
        for name, topic in (("10 MB messages", LARGE), ("tiny messages", TINY)):
            for _ in range(2):
                self.aggregate(self.read(topic))
            self.tell(f"Python worker, {name}: MB", max(worker_peaks_mb()))
            self.spark.stop()
            self.spark = self.start_spark()  # with workers of its own


def total(frame: Any) -> Any:
    """Return how many values there are and how long they are, all together."""
    return frame.selectExpr("count(*)", "sum(length(value))").collect()[0]


def median(values: list[float]) -> float:
    """Return the middle value."""
    return float(sorted(values)[len(values) // 2])


def process_tree() -> list[int]:
    """Return this process and all that come from it: Spark's JVM, its Python daemon and workers."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int(after_name(folder / "stat")[1])
        except OSError:
            continue  # it ended just now
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def after_name(stat: Path) -> list[str]:
    """Return the fields of a stat file behind the process's name: state, parent, …"""
    return stat.read_text().rpartition(")")[2].split()


def cpu_seconds() -> float:
    """Return user and system time of this process and all that come from it (those that run)."""
    total = 0
    for pid in process_tree():
        try:
            fields = after_name(Path(f"/proc/{pid}/stat"))
            total += int(fields[11]) + int(fields[12])
        except OSError:
            continue
    return total / TICK


def worker_peaks_mb() -> list[float]:
    """Return the most memory that each Python worker (and the daemon it comes from) has held."""
    peaks = []
    for pid in process_tree()[1:]:
        try:
            if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                status = Path(f"/proc/{pid}/status").read_text()
                peaks.append(int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6)
        except OSError:
            continue
    return peaks


STEPS = ("scan", "parquet", "filter", "stream", "latency", "write", "sink", "plan", "memory")


def main() -> None:
    """Run one step."""
    source, step, bootstrap, rows, folder, *jars = sys.argv[1:]
    job = Job(source, bootstrap, int(rows), folder, ",".join(jars))
    getattr(job, step)()
    job.spark.stop()


if __name__ == "__main__":
    main()
