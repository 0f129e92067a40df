"""One Spark source under measurement: run by bench/spark.py in the Python that has it, prints its figures as JSON.

python spark_job.py kafka|kbroker BOOTSTRAP ROWS FOLDER [JAR,…]
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

TOPICS = {"plain": "bench-none", "lz4": "bench-lz4", "zstd": "bench-zstd"}
START_MS = 1_700_000_000_000
REPEATS = 3


class Job:
    """Measurements of one source."""

    def __init__(self, source: str, bootstrap: str, rows: int, folder: str, jars: str) -> None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        self.source, self.bootstrap, self.rows, self.folder = source, bootstrap, rows, folder
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.memory", "2g")
        builder = builder.config("spark.sql.python.filterPushdown.enabled", "true")
        builder = builder.config("spark.sql.session.timeZone", "UTC")
        self.spark = (builder.config("spark.jars", jars) if jars else builder).getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")
        self.figures: dict[str, float] = {}

    def read(self, topic: str, **options: str) -> Any:
        """Return a batch frame of a topic."""
        reader = self.spark.read.format(self.source).option("kafka.bootstrap.servers", self.bootstrap)
        return reader.option("subscribe", topic).options(**options).load()

    def seconds(self, work: Callable[[], object], repeats: int = REPEATS) -> float:
        """Return the best time of some runs, the first of which warms up."""
        times = []
        for _ in range(repeats):
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
        return min(times)

    def scans(self) -> None:
        """Aggregate over all rows, and to Parquet."""
        for name, topic in TOPICS.items():
            took = self.seconds(lambda topic=topic: self.aggregate(self.read(topic)))  # type: ignore[misc]
            self.figures[f"scan {name}: M rows/s"] = self.rows / took / 1e6
            if name == "plain":
                self.figures["scan plain: s"] = took
        output = f"{self.folder}/{self.source}.parquet"
        frame = self.read(TOPICS["plain"])
        took = self.seconds(lambda: frame.write.mode("overwrite").parquet(output), 2)
        self.figures["to Parquet: M rows/s"] = self.rows / took / 1e6

    def aggregate(self, frame: Any) -> None:
        """Touch every value."""
        count, _ = frame.selectExpr("count(*)", "sum(length(value))").collect()[0]
        assert count

    def filters(self) -> None:
        """Read 1,000 offsets of a partition, and 1 % of the time."""
        frame = self.read(TOPICS["plain"], **({"maxTimestampDisorderMs": "0"} if self.source == "kbroker" else {}))
        offsets = frame.where("partition = 1 AND offset >= 5000 AND offset < 6000")
        self.figures["1,000 offsets: s"] = self.seconds(lambda: self.aggregate(offsets))
        begin = datetime.datetime.fromtimestamp((START_MS + self.rows // 2) / 1000, datetime.UTC)
        end = begin + datetime.timedelta(milliseconds=self.rows // 100)
        texts = [moment.strftime("TIMESTAMP '%Y-%m-%d %H:%M:%S.%f'") for moment in (begin, end)]
        times = frame.where(f"timestamp >= {texts[0]} AND timestamp < {texts[1]}")
        self.figures["1 % of the time: s"] = self.seconds(lambda: self.aggregate(times))

    def stream(self) -> None:
        """Read all in one micro-batch; then trigger without data."""
        reader = self.spark.readStream.format(self.source).option("kafka.bootstrap.servers", self.bootstrap)
        frame = reader.option("subscribe", TOPICS["plain"]).option("startingOffsets", "earliest").load()
        writer = frame.selectExpr("sum(length(value)) AS bytes").writeStream.format("noop").outputMode("complete")
        began = time.perf_counter()
        writer.trigger(availableNow=True).start().awaitTermination()
        self.figures["AvailableNow: M rows/s"] = self.rows / (time.perf_counter() - began) / 1e6
        query = frame.writeStream.format("noop").trigger(processingTime="50 milliseconds").start()
        while not query.lastProgress or (query.lastProgress["batchId"] < 1 and query.lastProgress["numInputRows"] == 0):
            time.sleep(0.1)
        time.sleep(12)
        idle = [each["durationMs"] for each in query.recentProgress if each["numInputRows"] == 0]
        query.stop()
        if idle:
            self.figures["trigger without data: ms"] = min(float(each["triggerExecution"]) for each in idle)

    def write(self) -> None:
        """Write rows of 200 bytes."""
        frame = self.spark.range(self.rows).selectExpr("rpad(string(id), 200, 'x') AS value")
        writer = frame.write.format(self.source).mode("append").option("kafka.bootstrap.servers", self.bootstrap)
        took = self.seconds(lambda: writer.option("topic", f"bench-written-{self.source}").save(), 2)
        self.figures["write: M rows/s"] = self.rows / took / 1e6


def main() -> None:
    """Measure and print."""
    source, bootstrap, rows, folder, *jars = sys.argv[1:]
    job = Job(source, bootstrap, int(rows), folder, ",".join(jars))
    for part in (job.scans, job.filters, job.stream, job.write):
        part()
    print(json.dumps(job.figures), flush=True)
    job.spark.stop()


if __name__ == "__main__":
    main()
