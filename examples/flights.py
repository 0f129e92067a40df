"""The main job on real data: a year of flights through ZooKeeper, broker and clients into a Spark DataFrame.

    python -m examples.flights         (or `make run`)

1. starts an embedded ZooKeeper and a broker, on free ports, with their data in a temporary folder;
2. sends the 336,776 flights out of New York in 2013 as JSON, keyed by carrier, in order of departure;
3. reads them back with our Consumer and with confluent-kafka, and accounts for every record;
4. reads the topic as a Spark DataFrame, joins the airlines' names, prints and draws the delays.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples import flights_data, flights_spark

TOPIC = "flights"
PARTITIONS = 6
OUTPUT = Path("demo-output")
START_LIMIT_S = 60
READ_LIMIT_S = 120
STOP_LIMIT_S = 30

console = Console()


@contextmanager
def cluster() -> Iterator[str]:
    """Run `kbroker dev` as a child process; yields the bootstrap address and stops it at the end."""
    with tempfile.TemporaryDirectory(prefix="kbroker-flights-") as folder:
        ready = Path(folder) / "ready.json"
        command = [sys.executable, "-m", "kbroker", "dev", "--port", "0", "--data", folder]
        process = subprocess.Popen([*command, "--ready-file", str(ready)], stdout=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + START_LIMIT_S
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"kbroker dev did not start (exit status {process.poll()})")
                time.sleep(0.02)
            yield json.loads(ready.read_text())["bootstrap"]
        finally:
            process.terminate()
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def step(text: str, total: int | None = None) -> Iterator[Any]:
    """Show a progress bar on standard error while the step runs; yields `advance(count)`."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(text, total=total)
        yield lambda count: progress.advance(task, count)


def send(bootstrap: str, flights: pa.Table) -> None:
    """Produce each flight as one JSON record; its key is the carrier, its timestamp the departure."""
    from kbroker import Producer

    departures = flights["departure"].cast(pa.int64()).to_pylist()
    carriers = flights["carrier"].to_pylist()
    rows = flights.drop_columns(["departure"]).to_pylist()
    with (
        step("sending flights as JSON, keyed by carrier", len(rows)) as advance,
        Producer(bootstrap, acks="all", linger_ms=5, compression="zstd") as producer,
    ):
        futures = []
        for number, (row, carrier, departure) in enumerate(zip(rows, carriers, departures, strict=True), 1):
            value = json.dumps(row, separators=(",", ":")).encode()
            futures.append(producer.send(TOPIC, value=value, key=carrier.encode(), timestamp_ms=departure))
            if number % 2_000 == 0:
                advance(2_000)
        producer.flush()
        advance(len(rows) % 2_000)
        for future in futures:
            future.result(timeout=READ_LIMIT_S)


def read_ours(bootstrap: str, expected: int) -> Counter[tuple[bytes, bytes]]:
    """Read the topic with our Consumer, a column batch at a time; returns how often each (key, value) came."""
    from kbroker import Consumer

    seen: Counter[tuple[bytes, bytes]] = Counter()
    count = 0
    with (
        step("reading back with kbroker's Consumer", expected) as advance,
        Consumer(bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        consumer.subscribe([TOPIC])
        for batch in consumer.batches(max_rows=50_000, timeout=READ_LIMIT_S):
            seen.update(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True))
            advance(batch.num_rows)
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
        with step("reading back with confluent-kafka", expected) as advance:
            while seen.total() < expected and time.monotonic() < deadline:
                messages = consumer.consume(10_000, timeout=1.0)
                for message in messages:
                    if message.error():
                        raise SystemExit(f"confluent-kafka: {message.error()}")
                seen.update((message.key(), message.value()) for message in messages)
                advance(len(messages))
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
    console.print("[bold]A year of flights out of New York[/bold]: ZooKeeper, broker, clients, Spark")
    flights = flights_data.flights()
    with cluster() as bootstrap:
        console.print(f"  ZooKeeper and a broker serve on {bootstrap}")
        from kbroker import Admin

        with Admin(bootstrap) as admin:
            # The records carry their departures of 2013: without this, retention would drop them as too old.
            admin.create_topic(TOPIC, partitions=PARTITIONS, configs={"retention.ms": "-1"})
        send(bootstrap, flights)
        ours = read_ours(bootstrap, flights.num_rows)
        theirs = read_theirs(bootstrap, flights.num_rows)
        account(flights, ours, theirs)
        picture = flights_spark.report(bootstrap, TOPIC, flights.num_rows, OUTPUT, console)
    console.print(f"\nThe picture: [bold]{picture}[/bold]   (all of it took {time.monotonic() - started:.0f} s)")
    console.print(
        "\nTry next:\n"
        "  .venv/bin/kbroker dev                    (a broker on 127.0.0.1:9092)\n"
        "  .venv/bin/kbroker topic create hello -p 3\n"
        "  echo 'some text' | .venv/bin/kbroker topic produce hello\n"
        "  .venv/bin/kbroker topic consume hello -o start -e",
        highlight=False,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
