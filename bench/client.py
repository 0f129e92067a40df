"""Our clients beside others in one process: 200-byte messages, four partitions, one broker, one table.

python -m bench client                        against a kbroker, and a Kafka where one can be started
python -m bench.client BOOTSTRAP [MESSAGES]   against a broker that runs

All producers: acks=all, idempotent (but kafka-python), linger 5 ms, batches of 128 KiB, no compression. All consumers
read all partitions from the beginning without a group. Slow clients get fewer messages: rates are compared.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

VALUE = b"x" * 200
CHECK_S = 60.0
MESSAGES = 2_000_000


def produce_ours(bootstrap: str, topic: str, count: int) -> None:
    from kbroker import Producer

    with Producer(bootstrap, linger_ms=5) as producer:
        for _ in range(count):
            producer.send(topic, VALUE)
        producer.flush(CHECK_S)
        assert producer.statistics()["records"] == count


def produce_arrow(bootstrap: str, topic: str, count: int) -> None:
    import pyarrow as pa

    from kbroker import Producer

    table = pa.table({"value": pa.repeat(VALUE, count)})
    with Producer(bootstrap, linger_ms=5) as producer:
        assert producer.send_arrow(topic, table, value="value").result(CHECK_S).rows == count


def produce_confluent(bootstrap: str, topic: str, count: int) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": 131_072,
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    for _ in range(count):
        producer.produce(topic, VALUE)
    assert producer.flush(CHECK_S) == 0


def produce_aiokafka(bootstrap: str, topic: str, count: int) -> None:
    import aiokafka

    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, linger_ms=5, max_batch_size=131072, enable_idempotence=True
        )
        await producer.start()
        try:
            for _ in range(count):
                await producer.send(topic, VALUE)
            await producer.flush()
        finally:
            await producer.stop()

    asyncio.run(run())


def produce_kafka_python(bootstrap: str, topic: str, count: int) -> None:
    import kafka

    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, batch_size=131072, acks="all")
    for _ in range(count):
        producer.send(topic, VALUE)
    producer.flush(CHECK_S)
    producer.close()


def consume_ours(bootstrap: str, topic: str, count: int) -> None:
    from kbroker import Consumer

    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        while count > 0:
            count -= len(consumer.poll(CHECK_S))


def consume_arrow(bootstrap: str, topic: str, count: int) -> None:
    from kbroker import Consumer

    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        for batch in consumer.batches(timeout=CHECK_S, headers=False):
            count -= batch.num_rows
            if count <= 0:
                return


def consume_confluent(bootstrap: str, topic: str, count: int, **settings: object) -> None:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, **settings}
    )
    try:
        partitions = consumer.list_topics(topic, CHECK_S).topics[topic].partitions
        beginning = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition(topic, index, beginning) for index in partitions])
        while count > 0:
            count -= len(consumer.consume(10_000, CHECK_S))
    finally:
        consumer.close()


def consume_confluent_tuned(bootstrap: str, topic: str, count: int) -> None:
    """By default it pauses for a second whenever it is far enough ahead."""
    consume_confluent(bootstrap, topic, count, **{"fetch.queue.backoff.ms": 5})


def consume_aiokafka(bootstrap: str, topic: str, count: int) -> None:
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


def consume_kafka_python(bootstrap: str, topic: str, count: int) -> None:
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


Run = Callable[[str, str, int], None]
GROUPS: dict[str, dict[str, tuple[Run, int]]] = {
    "produce": {
        "confluent-kafka": (produce_confluent, 2),
        "kbroker": (produce_ours, 2),
        "kbroker Arrow": (produce_arrow, 1),
        "aiokafka": (produce_aiokafka, 10),
        "kafka-python": (produce_kafka_python, 10),
    },
    "consume": {
        "confluent-kafka": (consume_confluent, 2),
        "confluent, tuned": (consume_confluent_tuned, 2),
        "kbroker": (consume_ours, 2),
        "kbroker Arrow": (consume_arrow, 1),
        "aiokafka": (consume_aiokafka, 10),
        "kafka-python": (consume_kafka_python, 10),
    },
}
"""What runs, and by what its messages are divided."""


def measure(run: Run, bootstrap: str, topic: str, count: int) -> Rate:
    """Return the better of two runs: the first also warms up."""
    best = Rate(0.0, 0.0)
    for _ in range(2):
        started, cpu = time.perf_counter(), time.process_time()
        run(bootstrap, topic, count)
        wall, cpu = time.perf_counter() - started, time.process_time() - cpu
        best = max(best, Rate(count / wall / 1e6, count / cpu / 1e6))
    return best


def compare(bootstrap: str, count: int) -> dict[str, dict[str, Rate]]:
    """Measure all clients against one broker; a topic is filled first, so that consumers never run dry."""
    from kbroker import Admin
    from kbroker.testing import unique_topic_name

    results: dict[str, dict[str, Rate]] = {}
    with Admin(bootstrap) as admin:
        for group, clients in GROUPS.items():
            results[group] = {}
            topic = unique_topic_name("bench")
            admin.create_topic(topic, partitions=4, replication_factor=1)
            if group == "consume":
                produce_arrow(bootstrap, topic, count)
            for name, (run, divisor) in clients.items():
                results[group][name] = measure(run, bootstrap, topic, count // divisor)
            admin.delete_topic(topic)
    return results


def show(broker: str, results: dict[str, dict[str, Rate]]) -> None:
    """Print one table, ratios to confluent-kafka's."""
    print(f"{'clients of ' + broker:26}{'M/s':>8}{'ratio':>9}{'M/s of CPU':>13}{'ratio':>9}")
    for group, rates in results.items():
        base = rates["confluent-kafka"]
        for name, found in rates.items():
            ratios = found.wall / base.wall, found.cpu / base.cpu
            print(f"{group:9}{name:17}{found.wall:8.3f}{ratios[0]:8.2f}x{found.cpu:13.3f}{ratios[1]:8.2f}x", flush=True)


def main(arguments: Sequence[str] = ()) -> int:
    """Measure against the given broker, else against brokers started here."""
    if arguments:
        show(arguments[0], compare(arguments[0], int(arguments[1]) if len(arguments) > 1 else MESSAGES))
        return 0
    from bench.systems import systems

    for kind in systems():
        with kind() as system:
            show(kind.name, compare(system.bootstrap, MESSAGES))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
