"""A bit flips in a file beside the log, under a running broker: what is served then, and after a crash, is right."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from kbroker import Admin, Consumer, Producer, TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from tests.faults.cluster_view import until
from tests.fixtures.brokers import START_TIMEOUT, MakeBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RECORDS = 150
PROPERTIES = {
    "log.segment.bytes": "5000",
    "log.index.interval.bytes": "300",
    "log.retention.ms": "-1",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "log.flush.offset.checkpoint.interval.ms": "300",
    "min.insync.replicas": "1",
}
FIRST_TIMESTAMP = 1_700_000_000_000


def flip_bits(log_dir: Path, suffix: str) -> int:
    """Flip one bit of each file of a kind, as a disk does it: times say nothing. Returns of how many."""
    rng = random.Random(suffix)
    flipped = 0
    for file in sorted(log_dir.rglob(f"*{suffix}")):
        before, data = file.stat(), bytearray(file.read_bytes())
        if not data.strip(b"\0"):
            continue
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        with file.open("r+b") as changed:
            os.pwrite(changed.fileno(), data, 0)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        flipped += 1
    return flipped


def check(broker: BrokerProcess, topic: str) -> None:
    """Everything is read, from the beginning, from any offset, and from any time on."""
    place = TopicPartition(topic, 0)
    with Consumer(broker.bootstrap) as consumer, Admin(broker.bootstrap) as admin:
        consumer.assign([place])
        for start in (0, 1, RECORDS // 3, RECORDS - 1):
            consumer.seek(place, start)
            found: list[bytes | None] = []

            def is_read(found: list[bytes | None] = found, start: int = start) -> bool:
                found.extend(record.value for record in consumer.poll(timeout=0.5))
                return len(found) >= RECORDS - start

            until(is_read, "all is read")
            assert found == [b"%0100d" % number for number in range(start, RECORDS)]
        for number in (0, 7, RECORDS // 2, RECORDS - 1):
            assert admin.list_offsets({place: FIRST_TIMESTAMP + number})[place].offset == number


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", "-checkpoint"])
def test_bits_that_flip_beside_the_log_cost_nothing_after_a_crash(
    make_broker: MakeBroker, topic_name: str, suffix: str
) -> None:
    broker = make_broker(properties=PROPERTIES)
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name, partitions=1, replication_factor=1)
    with Producer(broker.bootstrap, acks="all") as producer:
        for number in range(RECORDS):
            timestamp = FIRST_TIMESTAMP + number
            producer.send(topic_name, b"%0100d" % number, partition=0, timestamp_ms=timestamp).result(60)
    check(broker, topic_name)
    assert flip_bits(broker.log_dir, suffix) > 0
    if suffix in (".snapshot", "-checkpoint"):  # read at a start only; damaged indexes mislead until then
        check(broker, topic_name)
    broker.kill()
    broker.start()
    broker.wait_until_ready(START_TIMEOUT)
    check(broker, topic_name)
    with Producer(broker.bootstrap, acks="all") as producer:
        assert producer.send(topic_name, b"more", partition=0).result(60).offset == RECORDS
    assert "Traceback" not in broker.log_tail(5000)
