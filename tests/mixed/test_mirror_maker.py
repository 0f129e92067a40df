"""A cluster that is copied into one of ours by Kafka's MirrorMaker 2: as docs/moving-from-kafka.md says for KRaft."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from kbroker import Admin
from kbroker import TopicPartition as Place
from kbroker.dev.broker_process import BrokerProcess
from tests.faults.cluster_view import until
from tests.fixtures.kafka import JavaBroker
from tests.fixtures.maven import maven_class_path
from tests.kbroker.cli.pages import DOCS
from tests.kbroker.client.topics import produce_values

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]

MIRROR = "org.apache.kafka:connect-mirror:3.9.2"
PARTITIONS = 3
RECORDS = 2_000
"""Per partition, in each half."""
DONE = 500
"""Where the group stands, in partition 0."""


def properties_of_the_page() -> str:
    """What docs/moving-from-kafka.md says to give to MirrorMaker."""
    page = (DOCS / "moving-from-kafka.md").read_text()
    section = page[page.index("## From another cluster") :]
    lines = section[section.index("    clusters = ") :].split("\n\n")[0].splitlines()
    return "\n".join(line.strip() for line in lines)


@contextlib.contextmanager
def mirror_maker(class_path: str, folder: Path, addresses: dict[str, str], topic: str) -> Iterator[None]:
    """Copy until the block ends, then die at once."""
    properties = properties_of_the_page().replace("topics = .*", f"topics = {topic}")
    for name, address in addresses.items():
        properties = properties.replace(f"{name}:9092", address)
    (folder / "mirror.properties").write_text(properties + "\n")
    logging = folder / "log4j.properties"
    logging.write_text(
        "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
    )
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    flags = ["-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Dlog4j.configuration={logging.as_uri()}", "-cp", class_path]
    log = folder / "mirror.log"
    with log.open("ab") as out:
        process = subprocess.Popen(["java", *flags, main, "mirror.properties"], cwd=folder, stdout=out, stderr=out)
    try:
        yield
    finally:
        process.kill()
        process.wait(60)


def committed_values(bootstrap: str, topic: str) -> dict[int, list[bytes | None]]:
    """Each partition's values, as a reader of what is committed finds them now."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": "read_committed"}
    found: dict[int, list[bytes | None]] = defaultdict(list)
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            message = consumer.poll(30)
            assert message is not None
            error, partition = message.error(), message.partition()
            if partition is None:
                continue
            if error is None:
                found[partition].append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(partition)
    finally:
        consumer.close()
    return found


def test_records_settings_and_groups_come_over_and_each_record_once_though_it_is_killed(
    kafka_broker: JavaBroker, own_broker: BrokerProcess, topic_name: str, tmp_path: Path
) -> None:
    class_path = f"{maven_class_path(MIRROR)}:{kafka_broker.class_path}"
    expected = {number: [b"%d-%d" % (number, n) for n in range(2 * RECORDS)] for number in range(PARTITIONS)}
    now_ms = time.time_ns() // 1_000_000  # or retention takes them half a minute after a start
    with Admin(kafka_broker.bootstrap) as admin:
        admin.create_topic(topic_name, PARTITIONS, configs={"retention.ms": "123456789"})
        for number, values in expected.items():
            produce_values(kafka_broker.bootstrap, topic_name, number, values[:RECORDS], now_ms)
        admin.alter_group_offsets(topic_name, {(topic_name, 0): DONE})

    def has_come(count: int) -> bool:
        with Admin(own_broker.bootstrap) as admin:
            if topic_name not in admin.list_topics():
                return False
        return sum(map(len, committed_values(own_broker.bootstrap, topic_name).values())) >= count

    def group_stands() -> bool:
        with Admin(own_broker.bootstrap) as admin:
            known = admin.list_group_offsets(topic_name).get(Place(topic_name, 0))
        return known is not None and 0 < known.offset <= DONE

    addresses = {"old": kafka_broker.bootstrap, "new": own_broker.bootstrap}
    with mirror_maker(class_path, tmp_path, addresses, topic_name):
        until(lambda: has_come(PARTITIONS * RECORDS), f"the first half: {tmp_path / 'mirror.log'}", timeout=150)
    for number, values in expected.items():
        produce_values(kafka_broker.bootstrap, topic_name, number, values[RECORDS:], now_ms)
    with mirror_maker(class_path, tmp_path, addresses, topic_name):
        until(lambda: has_come(2 * PARTITIONS * RECORDS), f"all: {tmp_path / 'mirror.log'}", timeout=150)
        until(group_stands, f"the group: {tmp_path / 'mirror.log'}", timeout=100)
    assert committed_values(own_broker.bootstrap, topic_name) == expected
    with Admin(own_broker.bootstrap) as admin:
        [settings] = admin.describe_configs("topic", [topic_name]).values()
    assert settings["retention.ms"].value == "123456789"
