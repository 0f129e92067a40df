"""The Spark session, and the flights' topic as a DataFrame: delays by carrier and hour, as tables and as a picture."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from examples import flights_data

FIELDS = "carrier string, hour int, dep_delay double, timestamp timestamp"


@contextmanager
def session(log: Path) -> Iterator[Any]:
    """A Spark session of two cores in this process's JVM; it ends with the block. What Spark says goes to `log`."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("flights")
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.python.unix.domain.socket.enabled", "true")  # tasks begin 40 ms sooner
    with _standard_error_to(log):
        spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _standard_error_to(log: Path) -> Iterator[None]:
    """Let what is started in the block write its errors to a file: the JVM, and its Python workers after it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def read(spark: Any, bootstrap: str, topic: str, expected: int, console: Console) -> Any:
    """Read the topic in a batch and return the flights, cached; ends the run when they are not exactly `expected`."""
    rows = spark.read.format("kbroker").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    flights = rows.option("valueFormat", "json").schema(FIELDS).load()
    tasks, flights = flights.rdd.getNumPartitions(), flights.cache()
    count = flights.count()
    if count != expected:
        raise SystemExit(f"Spark read {count:,} rows of {expected:,}")
    console.print(f"  {'Spark, batch':<16} {count:,} rows in a DataFrame, {tasks} partitions")
    return flights


def report(spark: Any, flights: Any, output: Path, console: Console) -> Path:
    """Print two tables of delays and draw the picture; returns where it is."""
    by_carrier, by_hour = _by_carrier(spark, flights), _by_hour(flights)
    console.print(_table("Delays by carrier", by_carrier, ("carrier", "name")))
    console.print(_table("Delays by hour of departure", by_hour, ("hour",)))
    return _draw(by_carrier, by_hour, output)


def _by_carrier(spark: Any, flights: Any) -> list[dict[str, Any]]:
    from pyspark.sql import functions as f

    names = spark.createDataFrame(flights_data.airlines())
    delays = flights.groupBy("carrier").agg(*_measures())
    joined = delays.join(f.broadcast(names), "carrier").orderBy(f.desc("mean_delay"))
    return [row.asDict() for row in joined.select("carrier", "name", *_MEASURES).collect()]


def _by_hour(flights: Any) -> list[dict[str, Any]]:
    return [row.asDict() for row in flights.groupBy("hour").agg(*_measures()).orderBy("hour").collect()]


_MEASURES = ("flights", "cancelled", "mean_delay", "late_share")


def _measures() -> list[Any]:
    from pyspark.sql import functions as f

    return [
        f.count("*").alias("flights"),
        f.count_if(f.col("dep_delay").isNull()).alias("cancelled"),
        f.avg("dep_delay").alias("mean_delay"),
        f.avg((f.col("dep_delay") > 15).cast("double")).alias("late_share"),
    ]


def _table(title: str, rows: list[dict[str, Any]], names: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in names:
        table.add_column(name)
    for heading in ("flights", "cancelled", "mean delay, min", "over 15 min late"):
        table.add_column(heading, justify="right")
    for row in rows:
        mean = "" if row["mean_delay"] is None else f"{row['mean_delay']:.1f}"
        late = "" if row["late_share"] is None else f"{row['late_share']:.0%}"
        cells = [f"{row['flights']:,}", f"{row['cancelled']:,}", mean, late]
        table.add_row(*(str(row[name]) for name in names), *cells)
    return table


def _draw(by_carrier: list[dict[str, Any]], by_hour: list[dict[str, Any]], output: Path) -> Path:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    carriers = sorted(by_carrier, key=lambda row: row["mean_delay"] or 0)
    left.barh([row["name"] for row in carriers], [row["mean_delay"] for row in carriers], color="#3b6ea5")
    left.set_xlabel("mean departure delay, minutes")
    left.set_title("by carrier")
    hours = [row for row in by_hour if row["mean_delay"] is not None]
    right.bar([row["hour"] for row in hours], [row["mean_delay"] for row in hours], color="#c8553d")
    right.set_xticks(range(5, 24, 3))
    right.set_xlabel("planned hour of departure")
    right.set_ylabel("mean departure delay, minutes")
    right.set_title("by hour")
    figure.suptitle("Delays of the 336,776 flights out of New York in 2013, read from a topic with Spark")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    output.mkdir(parents=True, exist_ok=True)
    path = output / "delays.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path.resolve()
