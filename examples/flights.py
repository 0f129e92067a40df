"""The main job on real data: a year of flights through ZooKeeper, brokers and clients into a Spark DataFrame.

    python -m examples.flights         (or `make run`)

1. starts an embedded ZooKeeper and three brokers, on free ports, with their data in a temporary folder;
2. sends the 336,776 flights out of New York in 2013 as JSON, keyed by carrier, in order of departure, to a topic with
   three replicas; after a third of them one broker is killed (kill -9), and soon comes back;
3. meanwhile a Spark streaming query keeps each carrier's delays per week, in a second topic and in Parquet;
4. reads the flights back with our Consumer and with confluent-kafka, and accounts for every record;
5. reads the topic as a Spark DataFrame: the same delays per week as the streaming query's; prints and draws them.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from examples import flights_data, flights_spark
from examples.flights_failure import Failure
from examples.flights_live import LiveDelays
from kbroker import Admin, Consumer, Producer
from kbroker.dev.cluster import DevCluster
from kbroker.dev.java import provide_java

TOPIC = "flights"
PARTITIONS = 6
BROKERS = 3
PORTION = 2_000
AHEAD = 100_000
OUTPUT = Path("demo-output")
SPARK_LOG = OUTPUT / "spark.log"
READ_LIMIT_S = 120

console = Console()


@contextmanager
def running_cluster() -> Iterator[DevCluster]:
    """Three brokers and a ZooKeeper, each a process of its own, in a temporary folder; all ends with the block."""
    with tempfile.TemporaryDirectory(prefix="kbroker-flights-") as folder:
        cluster = DevCluster(folder, brokers=BROKERS, properties={"zookeeper.session.timeout.ms": "3000"})
        try:
            with cluster:
                yield cluster
        finally:
            cluster.kill()


@dataclass
class Step:
    """A progress bar on standard error."""

    progress: Progress
    task: TaskID
    text: str

    def advance(self, count: int) -> None:
        """So many more are done."""
        self.progress.advance(self.task, count)

    def reach(self, count: int) -> None:
        """So many are done in all."""
        self.progress.update(self.task, completed=count)

    def beside(self, text: str, total: int) -> Step:
        """Return a second bar below this one."""
        return Step(self.progress, self.progress.add_task(text, total=total), text)

    def note(self, text: str) -> None:
        """Say something beside the bar; an empty text takes it away."""
        self.progress.update(self.task, description=f"{self.text} ({text})" if text else self.text)


@contextmanager
def step(text: str, total: int | None = None) -> Iterator[Step]:
    """Show a progress bar while the step runs."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield Step(progress, progress.add_task(text, total=total), text)


def send(cluster: DevCluster, flights: pa.Table, live: LiveDelays) -> list[str]:
    """Produce each flight as one JSON record; its key is the carrier, its timestamp the departure.

    After a third of them a broker is killed; returns what became of that. Shows how far the streaming query is.
    """
    departures = flights["departure"].cast(pa.int64()).to_pylist()
    carriers = flights["carrier"].to_pylist()
    rows = flights.drop_columns(["departure"]).to_pylist()
    with (
        step("sending flights as JSON, keyed by carrier", len(rows)) as bar,
        Producer(cluster.bootstrap, acks="all", linger_ms=5, compression="zstd") as producer,
    ):
        counted = bar.beside("counted by the streaming query meanwhile", len(rows))
        failure = Failure(cluster, TOPIC, bar.note)
        futures = []
        for number, (row, carrier, departure) in enumerate(zip(rows, carriers, departures, strict=True), 1):
            value = json.dumps(row, separators=(",", ":")).encode()
            futures.append(producer.send(TOPIC, value=value, key=carrier.encode(), timestamp_ms=departure))
            if number % PORTION == 0:
                bar.advance(PORTION)
                # Live data is never a year ahead of its query: the first portion starts it, the others keep near it.
                live.wait_until(max(1, number - AHEAD))
                counted.reach(live.counted())
            if number == len(rows) // 3:
                failure.begin(number)
        producer.flush()
        live.production_has_ended()
        bar.advance(len(rows) % PORTION)
        for future in futures:
            future.result(timeout=READ_LIMIT_S)
        failure.finish()
        return failure.story


def read_ours(bootstrap: str, expected: int) -> Counter[tuple[bytes, bytes]]:
    """Read the topic with our Consumer, a column batch at a time; returns how often each (key, value) came."""
    seen: Counter[tuple[bytes, bytes]] = Counter()
    count = 0
    with (
        step("reading back with kbroker's Consumer", expected) as bar,
        Consumer(bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        consumer.subscribe([TOPIC])
        for batch in consumer.batches(max_rows=50_000, timeout=READ_LIMIT_S):
            seen.update(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True))
            bar.advance(batch.num_rows)
            count += batch.num_rows
            if count >= expected:
                break
    return seen


def read_theirs(bootstrap: str, expected: int) -> Counter[tuple[bytes, bytes]]:
    """Read the topic with confluent-kafka (librdkafka); returns how often each (key, value) came."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "flights-check", "enable.auto.commit": False}
    )
    seen: Counter[tuple[bytes, bytes]] = Counter()
    try:
        beginning = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, p, beginning) for p in range(PARTITIONS)])
        deadline = time.monotonic() + READ_LIMIT_S
        with step("reading back with confluent-kafka", expected) as bar:
            while seen.total() < expected and time.monotonic() < deadline:
                messages = consumer.consume(10_000, timeout=1.0)
                for message in messages:
                    if message.error():
                        raise SystemExit(f"confluent-kafka: {message.error()}")
                seen.update((message.key() or b"", message.value() or b"") for message in messages)
                bar.advance(len(messages))
    finally:
        consumer.close()
    return seen


def account(sent: pa.Table, ours: Counter[tuple[bytes, bytes]], theirs: Counter[tuple[bytes, bytes]]) -> None:
    """Compare what was sent with what both clients read; ends the run when a single record differs."""
    rows = sent.drop_columns(["departure"]).to_pylist()
    expected = Counter((row["carrier"].encode(), json.dumps(row, separators=(",", ":")).encode()) for row in rows)
    for reader, seen in (("kbroker", ours), ("confluent-kafka", theirs)):
        missing, surplus = (expected - seen).total(), (seen - expected).total()
        if missing or surplus:
            raise SystemExit(f"{reader} read {seen.total():,} records: {missing} missing, {surplus} too many")
        console.print(f"  {reader:<16} {seen.total():,} records, each one accounted for")


def main() -> int:
    """Run the whole job; returns the exit status."""
    started = time.monotonic()
    console.print("[bold]A year of flights out of New York[/bold]: ZooKeeper, three brokers, clients, Spark")
    flights = flights_data.flights()
    provide_java()
    with (
        running_cluster() as cluster,
        flights_spark.session(SPARK_LOG) as spark,
        tempfile.TemporaryDirectory() as checkpoint,
    ):
        console.print(f"  ZooKeeper and {BROKERS} brokers serve on {cluster.bootstrap}", soft_wrap=True)
        with Admin(cluster.bootstrap) as admin:
            # The records carry their departures of 2013: without this, retention would drop them as too old.
            configs = {"retention.ms": "-1", "min.insync.replicas": "2"}
            admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=BROKERS, configs=configs)
        live = LiveDelays(spark, cluster.bootstrap, TOPIC, OUTPUT)
        live.start(Path(checkpoint))
        for line in send(cluster, flights, live):
            console.print(f"  {line}", highlight=False, soft_wrap=True)
        live.finish(flights.num_rows, console)
        ours = read_ours(cluster.bootstrap, flights.num_rows)
        theirs = read_theirs(cluster.bootstrap, flights.num_rows)
        account(flights, ours, theirs)
        rows = flights_spark.read(spark, cluster.bootstrap, TOPIC, flights.num_rows, console)
        live.compare(rows, console)
        pictures = [flights_spark.report(spark, rows, OUTPUT, console), live.draw()]
    console.print(f"\nThe pictures, drawn in {time.monotonic() - started:.0f} s from the start:")
    for picture in pictures:
        console.print(f"  [bold]{picture}[/bold]", soft_wrap=True)
    console.print(
        "\nTry next:\n"
        "  .venv/bin/kbroker dev --brokers 3        (from 127.0.0.1:9092 on)\n"
        "  .venv/bin/kbroker topic create hello -p 3\n"
        "  echo 'some text' | .venv/bin/kbroker topic produce hello\n"
        "  .venv/bin/kbroker topic consume hello -o start -e",
        highlight=False,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
