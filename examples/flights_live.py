"""The live part: while flights are still being produced, a streaming query keeps each carrier's delays per week.

    topic flights ──> windows of a week per carrier ──> topic delays-by-week (compacted, one key per window)
                                                   └──> Parquet, a folder for each micro-batch ──> the picture

A micro-batch passes on the windows that it changed, with their counts so far: the newest record of a key, and the row
of the newest micro-batch, are a window's state. There is no watermark: a broker dies on the way, so some partitions are
weeks behind the others for a while, and nothing may be left out. Both results are held against a batch read at the end.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset as pa_dataset
from rich.console import Console

from examples import flights_data
from kbroker import Admin

TOPIC = "delays-by-week"
FIELDS = "carrier string, dep_delay double, timestamp timestamp"
EVERY = "1 second"
LIMIT_S = 120
WEEKS_BEGIN = "4 days"
"""Windows count from a Thursday, 1970-01-01: so much later is a Monday."""

Window = tuple[str, str]
"""A carrier and the first day of a week, as 2013-01-07."""


@dataclass(frozen=True, slots=True)
class Delays:
    """What a window counts."""

    flights: int
    cancelled: int
    minutes: int
    """Of delay, of all flights that left."""


class LiveDelays:
    """The streaming query, from its start to the comparison with a batch read."""

    def __init__(self, spark: Any, bootstrap: str, topic: str, output: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._topic = topic
        self._parquet = output / TOPIC
        self._counted_live = 0
        self._query: Any = None

    def start(self, checkpoint: Path) -> None:
        """Make the second topic and start the query."""
        shutil.rmtree(self._parquet, ignore_errors=True)
        with Admin(self._bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=2, replication_factor=3, configs={"cleanup.policy": "compact"})
        flights = (
            self._spark.readStream.format("kbroker")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", self._topic)
            .option("startingOffsets", "earliest")
            .option("valueFormat", "json")
            .schema(FIELDS)
            .load()
        )
        writer = _by_week(flights).writeStream.outputMode("update").foreachBatch(self._write)
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime=EVERY)
        self._query = writer.start()

    def _write(self, windows: Any, batch_id: int) -> None:
        """Pass on one micro-batch; when Spark repeats it, the same records and the same files come out."""
        windows = windows.coalesce(1).persist()
        keyed = windows.selectExpr("concat_ws(' ', carrier, week) AS window", "*")
        keyed = keyed.write.format("kbroker").mode("append").option("kafka.bootstrap.servers", self._bootstrap)
        keyed.option("topic", TOPIC).option("valueFormat", "json").option("keyColumn", "window").save()
        windows.write.mode("overwrite").parquet(str(self._parquet / f"batch={batch_id}"))
        windows.unpersist()

    def counted(self) -> int:
        """Return how many flights the query has counted so far; raises what ended it."""
        if self._query.exception() is not None:
            raise self._query.exception()
        progress = self._query.lastProgress
        offsets = progress["sources"][0]["endOffset"] if progress else None
        return sum(sum(partitions.values()) for partitions in json.loads(offsets or "{}").values())

    def wait_until(self, count: int) -> None:
        """Wait until the query has counted so many flights."""
        deadline = time.monotonic() + LIMIT_S
        while self.counted() < count:
            if time.monotonic() > deadline:
                raise SystemExit(f"the streaming query counted {self.counted():,} flights, and no more in {LIMIT_S} s")
            time.sleep(0.05)

    def production_has_ended(self) -> None:
        """Note how far the query is at this moment."""
        self._counted_live = self.counted()

    def finish(self, expected: int, console: Console) -> None:
        """Let the query count the rest and stop it; says how it went, ends the run when records are missing."""
        self._query.processAllAvailable()
        batches, counted = self._query.lastProgress["batchId"] + 1, self.counted()
        self._query.stop()
        if counted != expected:
            raise SystemExit(f"the streaming query counted {counted:,} flights of {expected:,}")
        share = self._counted_live / expected
        text = f"{counted:,} rows in {batches} micro-batches, {share:.0%} of them while flights were still sent"
        console.print(f"  {'Spark, live':<16} {text}", highlight=False, soft_wrap=True)

    def compare(self, flights: Any, console: Console) -> None:
        """Hold both results against the windows of a batch read; ends the run at the first difference."""
        expected = _delays(_by_week(flights).collect())
        for place, found in (
            (f"the topic {TOPIC}", self._newest_of_topic()),
            (f"Parquet in {self._parquet}", self._newest_of_parquet()),
        ):
            wrong = sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))
            if wrong:
                carrier, week = wrong[0]
                raise SystemExit(
                    f"{place} differs from the batch read in {len(wrong)} windows; {carrier} in the week of {week}:"
                    f" {found.get(wrong[0])} instead of {expected.get(wrong[0])}"
                )
        total = sum(each.flights for each in expected.values())
        text = f"{len(expected)} weeks of carriers, {total:,} flights: topic {TOPIC}, Parquet and batch agree"
        console.print(f"  {'live = batch':<16} {text}", highlight=False, soft_wrap=True)

    def _newest_of_topic(self) -> dict[Window, Delays]:
        rows = self._spark.read.format("kbroker").option("kafka.bootstrap.servers", self._bootstrap)
        rows = rows.option("subscribe", TOPIC).option("valueFormat", "json")
        rows = rows.schema(
            "carrier string, week string, flights bigint, cancelled bigint, minutes bigint, offset bigint"
        )
        return _delays(sorted(rows.load().collect(), key=lambda row: row["offset"]))

    def _newest_of_parquet(self) -> dict[Window, Delays]:
        rows = pa_dataset.dataset(self._parquet, format="parquet", partitioning="hive").to_table().to_pylist()
        return _delays(sorted(rows, key=lambda row: row["batch"]))

    def draw(self) -> Path:
        """Draw the mean delay by carrier and week from Parquet; returns where the picture is."""
        return _draw(self._newest_of_parquet(), self._parquet.with_name("delays-live.png"))


def _by_week(flights: Any) -> Any:
    """Return carrier, week, flights, cancelled, minutes; of a streaming frame and of a batch frame alike."""
    from pyspark.sql import functions as f

    week = f.window("timestamp", "7 days", startTime=WEEKS_BEGIN)
    counted = flights.groupBy("carrier", week.alias("window")).agg(
        f.count("*").alias("flights"),
        f.count_if(f.col("dep_delay").isNull()).alias("cancelled"),
        f.coalesce(f.sum("dep_delay"), f.lit(0)).cast("bigint").alias("minutes"),
    )
    week = f.date_format("window.start", "yyyy-MM-dd").alias("week")
    return counted.select("carrier", week, "flights", "cancelled", "minutes")


def _delays(rows: list[Any]) -> dict[Window, Delays]:
    """Return the last row of each window."""
    return {(row["carrier"], row["week"]): Delays(row["flights"], row["cancelled"], row["minutes"]) for row in rows}


def _draw(windows: dict[Window, Delays], path: Path) -> Path:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names = {row["carrier"]: row["name"] for row in flights_data.airlines().to_pylist()}
    weeks = sorted({week for _, week in windows})
    flown: dict[str, int] = {}
    for (carrier, _), each in windows.items():
        flown[carrier] = flown.get(carrier, 0) + each.flights
    carriers = sorted(flown, key=lambda carrier: -flown[carrier])
    means = [[_mean(windows.get((carrier, week))) for week in weeks] for carrier in carriers]
    figure, axes = plt.subplots(figsize=(13, 5.5), layout="constrained")
    colours = mpl.colormaps["YlOrRd"].with_extremes(bad="#e4e4e4")
    drawn = axes.imshow(means, aspect="auto", cmap=colours, vmin=0, vmax=40, interpolation="nearest")
    axes.set_yticks(range(len(carriers)), [f"{names[carrier]} ({flown[carrier]:,})" for carrier in carriers])
    firsts = [at for at, week in enumerate(weeks) if at and week[:7] != weeks[at - 1][:7]]
    axes.set_xticks(firsts, [weeks[at] for at in firsts], rotation=30, ha="right")
    axes.set_xlabel("week that begins on")
    bar = figure.colorbar(drawn, ax=axes, extend="both")
    bar.set_label("mean departure delay, minutes (grey: nothing left)")
    figure.suptitle(
        "Delays per carrier and week, kept by a streaming query while the flights came in (flights in brackets)"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path.resolve()


def _mean(delays: Delays | None) -> float:
    left = 0 if delays is None else delays.flights - delays.cancelled
    return delays.minutes / left if delays is not None and left else float("nan")
