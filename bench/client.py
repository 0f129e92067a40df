"""Our clients beside others in one process: one broker, four partitions, 200-byte messages and others.

python -m bench client                          against a Kafka where one can be started, and a kbroker
python -m bench.client BOOTSTRAP [--scale 0.1]  against a broker that runs

All producers: acks=all, idempotent (but kafka-python), linger 5 ms, batches of 128 KiB (of tables: 512 KiB).
All consumers read all partitions from the beginning without a group. "(bytes only)" is the floor under them: a socket,
or two, that ask for all and throw it away (bare_fetches.py). Slow clients get fewer messages: rates are compared.
Tables that are sent exist before. Then messages of 1 KB and 10 KB, and compressed ones; last, how fast our clients are
where no C compiler was found: from a copy without compiled modules.
"""

import argparse
import asyncio
import functools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow

CHECK_S = 60.0
BYTES = 800_000_000
"""Of values: what the fastest client reads."""
INTERPRETED_SHARE = 0.01
DIFFERENT_VALUES = 1_000
ROOT = Path(__file__).parent.parent
ROOMS = ("protocol", "segment", "controller", "kbroker", "bench")
RESULTS = Path("build") / "bench-client.json"


class Case(NamedTuple):
    """What is sent and read."""

    value_bytes: int
    compression: str = "none"

    def __str__(self) -> str:
        """Say it in words."""
        size = f"{self.value_bytes} B" if self.value_bytes < 1000 else f"{self.value_bytes >> 10} KB"
        return size if self.compression == "none" else f"{size}, {self.compression}"


USUAL = Case(200)
CASES = (USUAL, Case(1024), Case(10_240), Case(200, "lz4"), Case(200, "zstd"))


@functools.cache
def values_of(case: Case) -> list[bytes]:
    """Return the different values: words, where compression should find something to do."""
    if case.compression == "none":
        return [b"x" * case.value_bytes]
    rng = random.Random(case.value_bytes)
    words = [rng.randbytes(rng.randint(2, 5)).hex() for _ in range(2_000)]
    texts = (" ".join(rng.choices(words, k=case.value_bytes // 4)) for _ in range(DIFFERENT_VALUES))
    return [text[: case.value_bytes].encode() for text in texts]


def values(case: Case, count: int) -> Iterator[bytes]:
    """Give so many values."""
    return islice(cycle(values_of(case)), count)


@functools.lru_cache(maxsize=1)
def table_of(case: Case, count: int) -> "pyarrow.Table":
    """Return so many values (a whole number of times the different ones) as a column."""
    import pyarrow as pa

    different = values_of(case)
    if len(different) == 1:
        return pa.table({"value": pa.repeat(different[0], count)})
    return pa.table({"value": pa.concat_arrays([pa.array(different)] * (count // len(different)))})


def produce_ours(bootstrap: str, topic: str, count: int, case: Case) -> None:
    from kbroker import Producer

    with Producer(bootstrap, linger_ms=5, compression=case.compression) as producer:
        for value in values(case, count):
            producer.send(topic, value)
        producer.flush(CHECK_S)
        assert producer.statistics()["record-acknowledged-total"] == count


def produce_arrow(bootstrap: str, topic: str, count: int, case: Case) -> None:
    from kbroker import Producer

    table = table_of(case, count)
    with Producer(bootstrap, linger_ms=5, compression=case.compression) as producer:
        assert producer.send_arrow(topic, table, value="value").result(CHECK_S).rows == table.num_rows


def produce_confluent(bootstrap: str, topic: str, count: int, case: Case) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": 131_072,
            "compression.type": case.compression,
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    for value in values(case, count):
        producer.produce(topic, value)
    assert producer.flush(CHECK_S) == 0


def produce_aiokafka(bootstrap: str, topic: str, count: int, case: Case) -> None:
    import aiokafka

    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, linger_ms=5, max_batch_size=131072, enable_idempotence=True
        )
        await producer.start()
        try:
            for value in values(case, count):
                await producer.send(topic, value)
            await producer.flush()
        finally:
            await producer.stop()

    asyncio.run(run())


def produce_kafka_python(bootstrap: str, topic: str, count: int, case: Case) -> None:
    import kafka

    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, batch_size=131072, acks="all")
    for value in values(case, count):
        producer.send(topic, value)
    producer.flush(CHECK_S)
    producer.close()


def consume_ours(bootstrap: str, topic: str, count: int, case: Case) -> None:
    from kbroker import Consumer

    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        while count > 0:
            count -= len(consumer.poll(CHECK_S))


def consume_arrow(bootstrap: str, topic: str, count: int, case: Case) -> None:
    from kbroker import Consumer

    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        for batch in consumer.batches(timeout=CHECK_S, headers=False):
            count -= batch.num_rows
            if count <= 0:
                return


def consume_confluent(bootstrap: str, topic: str, count: int, case: Case, **settings: object) -> None:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, **settings}
    )
    try:
        partitions = consumer.list_topics(topic, CHECK_S).topics[topic].partitions
        beginning = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition(topic, index, beginning) for index in partitions])
        while count > 0:
            count -= len(consumer.consume(min(count, 10_000), CHECK_S))
    finally:
        consumer.close()


def consume_confluent_tuned(bootstrap: str, topic: str, count: int, case: Case) -> None:
    """By default it pauses for a second whenever it is far enough ahead."""
    consume_confluent(bootstrap, topic, count, case, **{"fetch.queue.backoff.ms": 5})


def consume_bare(bootstrap: str, topic: str, count: int, case: Case, connections: int = 1) -> None:
    """No client: what the broker and the kernel take."""
    from bench.bare_fetches import read_all

    assert read_all(bootstrap, topic, connections) == count


def consume_bare_twice(bootstrap: str, topic: str, count: int, case: Case) -> None:
    consume_bare(bootstrap, topic, count, case, connections=2)


def consume_aiokafka(bootstrap: str, topic: str, count: int, case: Case) -> None:
    import aiokafka

    async def run(count: int) -> None:
        consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            while count > 0:
                found = await consumer.getmany(timeout_ms=int(CHECK_S * 1000), max_records=10_000)
                count -= sum(map(len, found.values()))
        finally:
            await consumer.stop()

    asyncio.run(run(count))


def consume_kafka_python(bootstrap: str, topic: str, count: int, case: Case) -> None:
    import kafka

    consumer = kafka.KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    for _ in consumer:
        count -= 1
        if count <= 0:
            break
    consumer.close()


class Rate(NamedTuple):
    """Millions of messages per second of wall time, and per second of this process's CPU time."""

    wall: float
    cpu: float


Run = Callable[[str, str, int, Case], None]
Rates = dict[str, dict[str, Rate]]
"""produce, consume -> client -> rate"""
CONFLUENT, TUNED, OURS, ARROW, AIOKAFKA = "confluent-kafka", "confluent, tuned", "kbroker", "kbroker Arrow", "aiokafka"
BARE, BARE_TWICE = "(bytes only)", "(bytes only, two sockets)"
CLIENTS: dict[str, dict[str, tuple[Run, int]]] = {
    "produce": {
        CONFLUENT: (produce_confluent, 4),
        OURS: (produce_ours, 4),
        ARROW: (produce_arrow, 2),
        AIOKAFKA: (produce_aiokafka, 20),
        "kafka-python": (produce_kafka_python, 20),
    },
    "consume": {
        CONFLUENT: (consume_confluent, 4),
        TUNED: (consume_confluent_tuned, 4),
        OURS: (consume_ours, 4),
        ARROW: (consume_arrow, 1),
        BARE: (consume_bare, 1),
        BARE_TWICE: (consume_bare_twice, 1),
        AIOKAFKA: (consume_aiokafka, 20),
        "kafka-python": (consume_kafka_python, 20),
    },
}
"""What runs, and by what its messages are divided."""
SLOW = (AIOKAFKA, "kafka-python")
"""Compared in the usual case only."""
GOALS = (
    ("consume", ARROW, CONFLUENT, 10.0),
    ("consume", OURS, CONFLUENT, 1.0),
    ("produce", ARROW, CONFLUENT, 5.0),
    ("produce", OURS, AIOKAFKA, 3.0),
)
"""Whose rate is to be how many times whose."""


def measure(run: Run, bootstrap: str, topic: str, count: int, case: Case) -> Rate:
    """Return the better of two runs: the first also warms up."""
    best = Rate(0.0, 0.0)
    for _ in range(2):
        started, cpu = time.perf_counter(), time.process_time()
        run(bootstrap, topic, count, case)
        wall, cpu = time.perf_counter() - started, time.process_time() - cpu
        best = max(best, Rate(count / wall / 1e6, count / cpu / 1e6))
    return best


def compare(bootstrap: str, case: Case, scale: float, only: Sequence[str] = ()) -> Rates:
    """Measure clients against one broker; consumers read whole topics, so that nothing is fetched in vain."""
    from kbroker import Admin
    from kbroker.testing import unique_topic_name

    whole = 20 * DIFFERENT_VALUES
    most = max(whole, int(BYTES / case.value_bytes * scale) // whole * whole)
    results: Rates = {}
    with Admin(bootstrap) as admin:
        for group, clients in CLIENTS.items():
            results[group] = {}
            topics: dict[int, str] = {}
            for name, (run, divisor) in clients.items():
                if name not in only and (only or (name in SLOW and case != USUAL)):
                    continue
                count = most // divisor
                if count not in topics:
                    topic = topics[count] = unique_topic_name("bench")
                    admin.create_topic(topic, partitions=4, replication_factor=1)
                    if group == "consume":
                        produce_arrow(bootstrap, topic, count, case)
                results[group][name] = measure(run, bootstrap, topics[count], count, case)
            admin.delete_topics(topics.values())
            table_of.cache_clear()
    return results


def interpreted(bootstrap: str, scale: float) -> Rates:
    """Measure our clients from a copy without compiled modules, with fewer messages."""
    with tempfile.TemporaryDirectory() as folder:
        for room in ROOMS:
            shutil.copytree(
                ROOT / room, Path(folder) / room, ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__")
            )
        results = Path(folder) / "results.json"
        command = [sys.executable, "-m", "bench.client", bootstrap, "--scale", str(scale * INTERPRETED_SHARE)]
        subprocess.run(
            [*command, "--only-ours", "--results", str(results)],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": folder},
            stdout=subprocess.DEVNULL,
            timeout=600,
            check=True,
        )
        found = json.loads(results.read_text())[bootstrap][str(USUAL)]
    return {group: {name: Rate(*rate) for name, rate in rates.items()} for group, rates in found.items()}


def show(broker: str, case: Case, results: Rates) -> None:
    """Print one table: ratios to the better of confluent-kafka's, and what is asked of them."""
    print(f"{f'clients of {broker}, {case}':36}{'M/s':>8}{'ratio':>9}{'M/s of CPU':>13}{'ratio':>9}  asked")
    for group, rates in results.items():
        base = max((rate for name, rate in rates.items() if name in (CONFLUENT, TUNED)), default=None)
        for name, found in rates.items():
            ratios = f"{'':9}", f"{'':9}"
            if base is not None:
                ratios = f"{found.wall / base.wall:8.2f}x", f"{found.cpu / base.cpu:8.2f}x"
            asked = [
                f"{found.wall / (base if than == CONFLUENT and base else rates[than]).wall:.2f} x {than}, of {goal:g}"
                for goal_group, who, than, goal in GOALS
                if (goal_group, who) == (group, name) and case == USUAL and than in rates
            ]
            print(f"{group:9}{name:27}{found.wall:8.3f}{ratios[0]}{found.cpu:13.3f}{ratios[1]}  {', '.join(asked)}")
    print(flush=True)


def show_interpreted(broker: str, compiled: Rates, plain: Rates) -> None:
    """Print how much slower our clients are without compiled modules."""
    print(f"{f'clients of {broker}, not compiled':36}{'M/s':>8}{'M/s of CPU':>22}{'compiled is faster by':>24}")
    for group, rates in plain.items():
        for name, found in rates.items():
            times = compiled[group][name].cpu / found.cpu
            print(f"{group:9}{name:27}{found.wall:8.3f}{found.cpu:22.3f}{times:23.0f}x")
    print(flush=True)


def run_all(broker: str, bootstrap: str, scale: float) -> dict[str, Any]:
    """Measure every case against one broker and print it."""
    results: dict[str, Any] = {}
    for case in CASES:
        results[str(case)] = compare(bootstrap, case, scale)
        show(broker, case, results[str(case)])
    results["not compiled"] = interpreted(bootstrap, scale)
    show_interpreted(broker, results[str(USUAL)], results["not compiled"])
    return results


def main(arguments: Sequence[str] = ()) -> int:
    """Measure against the given broker, else against brokers started here."""
    parser = argparse.ArgumentParser(prog="python -m bench.client", description=__doc__)
    parser.add_argument("bootstrap", nargs="?", help="a broker that runs; default: some are started")
    parser.add_argument("--scale", type=float, default=1.0, help="shrink the numbers of messages")
    parser.add_argument("--only-ours", action="store_true", help="no other clients, and only the usual messages")
    parser.add_argument("--results", type=Path, default=RESULTS, help="a JSON file to write the rates to")
    given = parser.parse_args(arguments)
    results: dict[str, Any] = {}
    if given.only_ours:
        found = compare(given.bootstrap, USUAL, given.scale, only=(OURS, ARROW))
        show(given.bootstrap, USUAL, found)
        results[given.bootstrap] = {str(USUAL): found}
    elif given.bootstrap:
        results[given.bootstrap] = run_all(given.bootstrap, given.bootstrap, given.scale)
    else:
        from bench.systems import systems

        for kind in systems():
            with kind() as system:
                results[kind.name] = run_all(kind.name, system.bootstrap, given.scale)
    given.results.parent.mkdir(exist_ok=True)
    given.results.write_text(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
