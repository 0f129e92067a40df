"""Our clients beside others in one process: 200-byte messages, one broker.

python -m bench.client BOOTSTRAP [MESSAGES]
"""

import asyncio
import sys
import time
from collections.abc import Callable

VALUE = b"x" * 200
CHECK_S = 60.0


def produce_ours(bootstrap: str, topic: str, count: int) -> None:
    from kbroker import Producer

    with Producer(bootstrap, linger_ms=5) as producer:
        for _ in range(count):
            producer.send(topic, VALUE)
        producer.flush(CHECK_S)
        assert producer.statistics()["records"] == count


def produce_confluent(bootstrap: str, topic: str, count: int) -> None:
    import confluent_kafka

    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "queue.buffering.max.messages": 2_000_000}
    producer = confluent_kafka.Producer(settings)
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


def consume_confluent(bootstrap: str, topic: str, count: int) -> None:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    )
    try:
        partitions = consumer.list_topics(topic, CHECK_S).topics[topic].partitions
        beginning = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition(topic, index, beginning) for index in partitions])
        while count > 0:
            count -= len(consumer.consume(10_000, CHECK_S))
    finally:
        consumer.close()


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


def rate(run: Callable[[str, str, int], None], bootstrap: str, topic: str, count: int) -> float:
    """Return messages per second of the better of two runs: the first also warms up."""
    best = 0.0
    for _ in range(2):
        started = time.perf_counter()
        run(bootstrap, topic, count)
        best = max(best, count / (time.perf_counter() - started))
    return best


def main() -> int:
    from kbroker import Admin
    from kbroker.testing import unique_topic_name

    bootstrap = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 300_000
    groups = {
        "produce": {
            "confluent-kafka": produce_confluent,
            "kbroker": produce_ours,
            "aiokafka": produce_aiokafka,
            "kafka-python": produce_kafka_python,
        },
        "consume": {
            "confluent-kafka": consume_confluent,
            "kbroker records": consume_ours,
            "kbroker Arrow": consume_arrow,
            "aiokafka": consume_aiokafka,
            "kafka-python": consume_kafka_python,
        },
    }
    topic = unique_topic_name("bench")
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, partitions=4, replication_factor=1)
        for group, clients in groups.items():
            base = 0.0
            for name, run in clients.items():
                per_second = rate(run, bootstrap, topic, count)
                base = base or per_second
                print(f"{group:8} {name:16} {per_second / 1e6:6.2f} M/s   {per_second / base:5.2f} x confluent-kafka")
        admin.delete_topic(topic)
    return 0


if __name__ == "__main__":
    sys.exit(main())
