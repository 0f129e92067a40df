"""Damaged segments of leaders and followers are mended from each other, in a cluster of real brokers."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker import Admin, Consumer, Producer, TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.cluster import DevCluster
from kbroker.dev.free_ports import free_ports
from kbroker.protocol.records.batch import split_batches
from kbroker.replica.segment_mender import SegmentMender
from kbroker.security.acls import CLUSTER_NAME, AclOperation, AclPattern, AclPermission, AclResource, Entry, Pattern
from kbroker.segment.segment_mending import NotMendable
from tests.fixtures.brokers import MakeBroker, MakeCluster
from tests.fixtures.zookeeper import ZooKeeperAddress
from tests.kbroker.handlers.test_access import write_rules

RECORDS = 60
SEGMENT_BYTES = "2000"
PROPERTIES = {"log.scrub.interval.ms": "300", "min.insync.replicas": "1", "log.index.interval.bytes": "500"}


LOGIN = 'required username="mate" password="of-mate" user_mate="of-mate";'
GUARDED = {
    **PROPERTIES,
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f"org.apache.kafka.common.security.plain.PlainLoginModule {LOGIN}"
    ),
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Clients may do everything; brokers are known to each other as `mate`, who may do what a rule says."""


def until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def fill(bootstrap: str, topic: str, replicas: int) -> None:
    """Make a topic of one partition with many closed segments."""
    with Admin(bootstrap) as admin:
        configs = {"segment.bytes": SEGMENT_BYTES, "retention.ms": "-1"}
        admin.create_topic(topic, partitions=1, replication_factor=replicas, configs=configs)
    with Producer(bootstrap, acks="all") as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%0200d" % number, partition=0).result(30)


def files(broker: BrokerProcess, topic: str) -> list[Path]:
    return sorted((broker.log_dir / f"{topic}-0").glob("*.log"))


def contents(broker: BrokerProcess, topic: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in files(broker, topic)}


def flip(file: Path, batch: int) -> int:
    """Flip a bit of a record as a disk does it; returns the batch's position."""
    before = file.stat()
    position = split_batches(file.read_bytes())[batch][0]
    with file.open("r+b", buffering=0) as changed:
        byte = os.pread(changed.fileno(), 1, position + 80)[0]
        os.pwrite(changed.fileno(), bytes([byte ^ 0x10]), position + 80)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    return position


def values(bootstrap: str, topic: str) -> list[bytes]:
    """All that a consumer reads."""
    with Consumer(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        found: list[bytes] = []
        deadline = time.monotonic() + 20
        while len(found) < RECORDS and time.monotonic() < deadline:
            found += [record.value or b"" for record in consumer.poll(timeout=1)]
    return found


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> DevCluster:
    return make_cluster(2, properties=PROPERTIES)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_damaged_segment_is_mended_from_the_other_replica_and_nobody_leaves_the_isr(
    cluster: DevCluster, topic_name: str, role: str
) -> None:
    fill(cluster.bootstrap, topic_name, 2)
    until(
        lambda: contents(cluster.brokers[0], topic_name) == contents(cluster.brokers[1], topic_name), lambda: "copied"
    )
    with Admin(cluster.bootstrap) as admin:
        before = admin.describe_topics([topic_name])[topic_name].partitions[0]
    damaged = next(each for each in cluster.brokers if (each.broker_id == before.leader) == (role == "leader"))
    good = contents(damaged, topic_name)
    file = files(damaged, topic_name)[1]
    position = flip(file, 2)
    until(lambda: contents(damaged, topic_name) == good, lambda: damaged.log_tail(40))
    lines = damaged.log_tail(1000)
    assert f"damaged: {topic_name}-0/{file.name}, position {position}: " in lines
    until(lambda: f"mended {topic_name}-0/{file.name} from broker" in damaged.log_tail(1000), lambda: "it says so")
    with Admin(cluster.bootstrap) as admin:
        after = admin.describe_topics([topic_name])[topic_name].partitions[0]
    assert (after.leader, after.isr) == (before.leader, before.isr)
    assert values(cluster.bootstrap, topic_name) == [b"%0200d" % number for number in range(RECORDS)]
    assert "Traceback" not in lines


def test_a_segment_that_was_removed_while_its_broker_was_stopped_comes_back(
    cluster: DevCluster, topic_name: str
) -> None:
    fill(cluster.bootstrap, topic_name, 2)
    damaged, other = cluster.brokers
    until(lambda: contents(damaged, topic_name) == contents(other, topic_name), lambda: "copied")
    good = b"".join(contents(damaged, topic_name).values())
    assert damaged.stop() == 0
    gone = files(damaged, topic_name)[2]
    for file in gone.parent.glob(f"{gone.stem}.*"):
        file.unlink()
    damaged.start().wait_until_ready()
    until(lambda: b"".join(contents(damaged, topic_name).values()) == good, lambda: damaged.log_tail(40))
    assert values(damaged.bootstrap, topic_name) == [b"%0200d" % number for number in range(RECORDS)]
    assert f"offsets from {int(gone.stem)} on" in damaged.log_tail(1000)
    assert "Traceback" not in damaged.log_tail(1000)


def test_damage_is_mended_though_the_number_of_threads_has_changed(cluster: DevCluster, topic_name: str) -> None:
    fill(cluster.bootstrap, topic_name, 2)
    damaged, other = cluster.brokers
    until(lambda: contents(damaged, topic_name) == contents(other, topic_name), lambda: "copied")
    with Admin(cluster.bootstrap) as admin:
        admin.alter_configs("broker", "", {"background.threads": "11"})
    until(lambda: "dynamic configuration changed" in damaged.log_tail(100), lambda: "it hears of it")
    good = contents(damaged, topic_name)
    flip(files(damaged, topic_name)[1], 2)
    until(lambda: contents(damaged, topic_name) == good, lambda: damaged.log_tail(40))
    assert "Traceback" not in damaged.log_tail(1000)


def test_where_there_are_acls_a_broker_mends_with_no_more_than_cluster_action(
    make_broker: MakeBroker, zookeeper: ZooKeeperAddress, topic_name: str
) -> None:
    operation = Entry("User:mate", "*", AclOperation.CLUSTER_ACTION, AclPermission.ALLOW)
    pattern = Pattern(AclResource.CLUSTER, AclPattern.LITERAL, CLUSTER_NAME)
    asyncio.run(write_rules(zookeeper.connect_string, [(pattern, operation)]))
    brokers = []
    for broker_id in (1, 2):
        plain, guarded = free_ports(2)
        listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{guarded}"}
        brokers.append(make_broker(broker_id, port=plain, properties={**GUARDED, **listeners}))
    fill(brokers[0].bootstrap, topic_name, 2)
    until(lambda: contents(brokers[0], topic_name) == contents(brokers[1], topic_name), lambda: "copied")
    good = contents(brokers[1], topic_name)
    file = files(brokers[1], topic_name)[1]
    flip(file, 2)
    until(
        lambda: f"mended {topic_name}-0/{file.name} from broker 1" in brokers[1].log_tail(1000),
        lambda: brokers[1].log_tail(40),
    )
    assert contents(brokers[1], topic_name) == good


def test_the_only_copy_stays_as_it_is_and_is_read_before_and_behind_the_damage(
    make_broker: MakeBroker, topic_name: str
) -> None:
    broker = make_broker(properties=PROPERTIES)
    fill(broker.bootstrap, topic_name, 1)
    file = files(broker, topic_name)[1]
    flip(file, 2)
    spoiled = contents(broker, topic_name)
    until(lambda: "stays damaged: no other replica is in sync" in broker.log_tail(1000), lambda: broker.log_tail(40))
    assert contents(broker, topic_name) == spoiled
    with Consumer(broker.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic_name, 0)])
        consumer.seek(TopicPartition(topic_name, 0), int(file.stem) + 3)
        assert consumer.poll(timeout=20)[0].value == b"%0200d" % (int(file.stem) + 3)


async def test_what_no_replica_can_help_with_is_asked_of_one_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nobody: Any = None
    damage: Any = SimpleNamespace(segment=SimpleNamespace(place="orders-0/0.log"))
    mender, asked = SegmentMender(1, nobody, "PLAINTEXT", 1000, nobody, nobody), list[int]()

    async def mend_from(other: int, epoch: int, damage: object) -> bool:
        asked.append(other)
        raise NotMendable("what is missing is too much for one segment")

    monkeypatch.setattr(mender, "_others", lambda damage: (0, [2, 3]))
    monkeypatch.setattr(mender, "_mend_from", mend_from)
    await mender._mend(damage)
    await mender.close()
    assert asked == [2]
    assert "orders-0/0.log stays damaged: what is missing is too much" in caplog.text
