"""Compaction in a broker that serves: topics of its users, and the groups' own."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker import Admin, Consumer, Producer
from kbroker.client.types import TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import KafkaError
from tests.fixtures.brokers import MakeBroker, kill_and_expire

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BUSY = {"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.01", "log.cleaner.threads": "2"}
GROUPS = 20


def until(condition: Callable[[], bool], broker: BrokerProcess, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, broker.log_tail(40)
        time.sleep(0.05)


def read(bootstrap: str, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of all records of partition 0."""
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([partition])[partition]
        found: list[tuple[int, bytes | None, bytes | None]] = []
        while consumer.position(partition) < end:
            found += [(record.offset, record.key, record.value) for record in consumer.poll(1.0)]
        return found


def checkpoint(log_dir: Path, topic: str) -> int:
    """First dirty offset of partition 0, 0 when there is none."""
    file = log_dir / "cleaner-offset-checkpoint"
    lines = file.read_text().splitlines()[2:] if file.exists() else []
    return next((int(line.split()[2]) for line in lines if line.split()[:2] == [topic, "0"]), 0)


def test_a_compacted_topic_keeps_the_last_value_of_each_key_while_it_is_written(make_broker: MakeBroker) -> None:
    broker = make_broker(properties=BUSY)
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("table", 1, 1, {"cleanup.policy": "compact", "segment.bytes": "20000"})
    last: dict[bytes, tuple[int, bytes]] = {}
    with Producer(broker.bootstrap, batch_size=2_000) as producer:
        for start in range(0, 6_000, 500):
            futures = []
            for number in range(start, start + 500):
                key = b"key-%d" % (number % 37)
                futures.append(producer.send("table", b"value-%d" % number, key=key))
                last[key] = (number, b"value-%d" % number)
            producer.flush(30)
            assert [future.result(30).offset for future in futures] == list(range(start, start + 500))
        until(lambda: checkpoint(broker.log_dir, "table") > 5_000, broker)
        with pytest.raises(KafkaError, match="INVALID_RECORD"):
            producer.send_and_wait("table", b"a value without a key")
    found = read(broker.bootstrap, "table")
    assert len(found) < 1_500
    assert {key: (offset, value) for offset, key, value in found} == last
    broker.stop(30)
    broker.start().wait_until_ready()
    assert read(broker.bootstrap, "table")[-1] == found[-1]
    assert "cannot be compacted" not in broker.log_tail(10_000)


def stored_bytes(folder: Path) -> int:
    """How large the segments are together; 0 when the cleaner took one away in the middle."""
    try:
        return sum(file.stat().st_size for file in folder.glob("*.log"))
    except FileNotFoundError:
        return 0


def test_committed_offsets_survive_compaction_and_are_loaded_while_it_runs(make_broker: MakeBroker) -> None:
    small = {**BUSY, "offsets.topic.segment.bytes": "5000", "offsets.topic.num.partitions": "1"}
    broker = make_broker(properties=small)
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("t", 1, 1)
    partition = TopicPartition("t", 0)

    def commit(group: str, offset: int) -> None:
        with Consumer(broker.bootstrap, group_id=group, enable_auto_commit=False) as consumer:
            consumer.assign([partition])
            consumer.commit({partition: offset})

    def committed(group: str) -> int | None:
        with Consumer(broker.bootstrap, group_id=group, enable_auto_commit=False) as consumer:
            found = consumer.committed([partition])[partition]
            return None if found is None else found.offset

    with Consumer(broker.bootstrap, group_id="busy", enable_auto_commit=False) as busy:
        busy.assign([partition])
        for offset in range(1_500):
            busy.commit({partition: offset})
        for number in range(GROUPS):
            commit(f"g{number}", number)
        until(lambda: checkpoint(broker.log_dir, "__consumer_offsets") > 1_000, broker)
        busy.commit({partition: 1_500})
    until(lambda: 0 < stored_bytes(broker.log_dir / "__consumer_offsets-0") < 40_000, broker)
    kill_and_expire(broker)
    broker.start().wait_until_ready()
    assert committed("busy") == 1_500
    assert [committed(f"g{number}") for number in range(GROUPS)] == list(range(GROUPS))


def test_a_running_broker_takes_new_settings_of_its_cleaner(make_broker: MakeBroker) -> None:
    slow = {"log.cleaner.backoff.ms": "100", "log.cleaner.io.max.bytes.per.second": "1"}
    broker = make_broker(properties=slow)
    with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        admin.create_topic("table", 1, 1, {"cleanup.policy": "compact", "segment.bytes": "5000"})
        for number in range(300):
            producer.send("table", b"%0100d" % number, key=b"k")
            producer.flush(30)
        time.sleep(0.5)
        assert checkpoint(broker.log_dir, "table") == 0
        admin.alter_configs("broker", "1", {"log.cleaner.io.max.bytes.per.second": "1000000000"})
        admin.alter_configs("broker", "", {"log.cleaner.io.max.bytes.per.second": "1000000000"})
        until(lambda: checkpoint(broker.log_dir, "table") > 100, broker)
