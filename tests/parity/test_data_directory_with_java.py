"""Records in one data directory, kept by Apache Kafka 3.9.2 and by our broker in turn."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.client.blocking import Admin, Consumer
from kbroker.client.types import TopicPartition
from tests.fixtures.brokers import MakeBroker
from tests.kbroker.cli.commands import kbroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
confluent_kafka = pytest.importorskip("confluent_kafka")

TIMEOUT = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PER_CODEC = 400


def send(bootstrap: str, writer: str) -> list[bytes]:
    """Send records in each codec with small batches; returns their values in order."""
    values = []
    for codec in CODECS:
        settings = {"compression.type": codec, "batch.size": 2_000, "enable.idempotence": True}
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})
        for number in range(PER_CODEC):
            values.append(f"{writer} {codec} {number}".encode() * 3)
            producer.produce("t", values[-1], key=b"k%d" % (number % 9), partition=0, headers=[("by", writer)])
        assert producer.flush(TIMEOUT) == 0
    return values


def read(bootstrap: str, count: int) -> list[bytes | None]:
    with Consumer(bootstrap) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek_to_beginning()
        records: list[bytes | None] = []
        while len(records) < count:
            found = consumer.poll(TIMEOUT)
            assert found, f"{len(records)} of {count} records came"
            records += [record.value for record in found]
        return records


def test_each_serves_what_the_other_wrote(
    kafka_in_turn: Callable[[str], str], make_broker: MakeBroker, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    bootstrap = kafka_in_turn("start")
    # Small segments and index intervals: many files, many entries.
    config = {"segment.bytes": "20000", "index.interval.bytes": "500"}
    with Admin(bootstrap) as admin:
        admin.create_topic("t", 1, 1, config)
    written = send(bootstrap, "kafka")
    kafka_in_turn("stop")
    verified = kbroker("log", "verify", str(data))
    assert verified.returncode == 0, verified
    assert "0 damaged places" in verified.stderr
    broker = make_broker(properties={"log.dirs": str(data)})
    assert read(broker.bootstrap, len(written)) == written
    written += send(broker.bootstrap, "ours")
    broker.stop(TIMEOUT)
    bootstrap = kafka_in_turn("start")
    assert read(bootstrap, len(written)) == written
    written += send(bootstrap, "kafka again")
    assert read(bootstrap, len(written)) == written
