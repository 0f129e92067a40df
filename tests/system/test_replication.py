"""Three brokers that copy from each other: what is acknowledged with acks=all survives the loss of any of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.cluster import DevCluster
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.java_hash import partition_for
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.records.batch import read_header, split_batches
from tests.faults.checker import Replica, check_replicas
from tests.faults.cluster_view import stored_replica
from tests.fixtures.brokers import MakeCluster, kill_and_expire
from tests.system.wire import PRODUCE_VERSION, Peer, fetch, one_batch, produce, produce_request, read_all

PARTITIONS = 3
WAIT_S = 60.0

pytestmark = pytest.mark.slow


def until(condition: Callable[[], bool], timeout: float = WAIT_S) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def create(cluster: DevCluster, topic: str, **config: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    (future,) = admin.create_topics([NewTopic(topic, PARTITIONS, len(cluster.brokers), config=config)]).values()
    future.result(WAIT_S)
    return admin


def isrs(admin: AdminClient, topic: str) -> list[set[int]]:
    found = admin.list_topics(topic, timeout=WAIT_S).topics[topic]
    return [set(partition.isrs) for partition in found.partitions.values()]


def leader_of(admin: AdminClient, topic: str, partition: int = 0) -> int:
    leader: int = admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions[partition].leader
    return leader


def isr_seen_by(broker: BrokerProcess, topic: str) -> set[int]:
    with Peer(broker) as peer:
        wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
        return set(peer.ask(wanted, 9).topics[0].partitions[0].isr_nodes)


def segments(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*.log"))}


def end_of(replica: Replica) -> int:
    """The offset behind the last batch; 0 when there is none."""
    batches = split_batches(replica.data)
    return read_header(replica.data, batches[-1][0]).next_offset if batches else 0


def assert_replicas_are_equal(cluster: DevCluster, topic: str) -> None:
    """Wait until the segments of all replicas are the same, byte by byte, and so are the leader epochs."""

    def are_equal() -> bool:
        for partition in range(PARTITIONS):
            folders = [broker.log_dir / f"{topic}-{partition}" for broker in cluster.brokers]
            if any(segments(folder) != segments(folders[0]) for folder in folders):
                return False
            copies = {number: stored_replica(folder) for number, folder in enumerate(folders)}
            if check_replicas(copies, end_of(copies[0])):
                return False
        return True

    until(are_equal)


class Records:
    """Numbered records, and those that were acknowledged."""

    def __init__(self, cluster: DevCluster, topic: str) -> None:
        self.topic = topic
        self.sent = 0
        self.acknowledged: list[bytes] = []
        self.errors: list[str] = []
        self.producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def send(self, count: int) -> None:
        """Send so many and wait until each is acknowledged."""
        for _ in range(count):
            value = b"%08d" % self.sent + bytes(100)
            self.producer.produce(self.topic, value, partition=self.sent % PARTITIONS, on_delivery=self._delivered)
            self.producer.poll(0)
            self.sent += 1
        assert self.producer.flush(60) == 0
        assert not self.errors

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged.append(message.value())  # type: ignore[attr-defined]
        else:
            self.errors.append(str(error))

    def check(self, cluster: DevCluster, admin: AdminClient) -> None:
        """Everything acknowledged is there, once and in order."""
        for partition in range(PARTITIONS):
            leader = cluster.broker(leader_of(admin, self.topic, partition))
            expected = [value for value in self.acknowledged if int(value[:8]) % PARTITIONS == partition]
            assert read_all(leader, self.topic, partition, 0) == sorted(expected)


def test_a_leader_is_killed_and_comes_back_and_nothing_is_lost(make_cluster: MakeCluster, topic_name: str) -> None:
    cluster = make_cluster(3, properties={"log.segment.bytes": "30000"})
    admin = create(cluster, topic_name, **{"min.insync.replicas": "2"})
    records = Records(cluster, topic_name)
    records.send(600)
    killed = cluster.broker(leader_of(admin, topic_name))
    kill_and_expire(killed)
    records.send(600)
    killed.start().wait_until_ready()
    until(lambda: isrs(admin, topic_name) == [{1, 2, 3}] * PARTITIONS)
    records.send(600)
    assert_replicas_are_equal(cluster, topic_name)
    records.check(cluster, admin)
    for broker in cluster.brokers:
        assert "Traceback" not in broker.log_tail(1000)


def test_followers_that_hang_leave_the_isr_and_too_few_refuse_producers(
    make_cluster: MakeCluster, topic_name: str
) -> None:
    cluster = make_cluster(
        3,
        properties={
            "zookeeper.session.timeout.ms": "60000",
            "replica.lag.time.max.ms": "2000",
            "auto.leader.rebalance.enable": "false",
        },
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    leader = admin.list_topics(timeout=WAIT_S).controller_id
    first, second = (broker for broker in (1, 2, 3) if broker != leader)
    new = NewTopic(topic_name, 1, replica_assignment=[[leader, first, second]], config={"min.insync.replicas": "2"})
    (future,) = admin.create_topics([new]).values()
    future.result(WAIT_S)

    def isr() -> set[int]:
        return isr_seen_by(cluster.broker(leader), topic_name)

    with Peer(cluster.broker(leader), WAIT_S) as peer:
        assert produce(peer, topic_name, one_batch(b"all")).error_code == 0
        cluster.broker(first).pause()
        answer = produce(peer, topic_name, one_batch(b"waits until the ISR is smaller"))
        assert (answer.error_code, isr()) == (0, {leader, second})
        cluster.broker(second).pause()
        answer = peer.ask(produce_request(topic_name, one_batch(b"stays"), acks=1), PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].error_code == 0
        until(lambda: isr() == {leader})
        assert produce(peer, topic_name, one_batch(b"refused")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert fetch(peer, topic_name).high_watermark == 2
        cluster.broker(first).resume()
        cluster.broker(second).resume()
        until(lambda: isr() == {1, 2, 3})
        assert produce(peer, topic_name, one_batch(b"again")).error_code == 0
    assert read_all(cluster.broker(leader), topic_name, 0)[2:] == [b"stays", b"again"]


def test_a_leader_that_shuts_down_fails_no_producer(make_cluster: MakeCluster, topic_name: str) -> None:
    # Without elections of its own: an epoch without records is known to the leader alone.
    cluster = make_cluster(3, properties={"auto.leader.rebalance.enable": "false"})
    admin = create(cluster, topic_name, **{"min.insync.replicas": "2"})
    records = Records(cluster, topic_name)
    stopping = threading.Thread(target=lambda: [cluster.broker(broker).restart() for broker in (1, 2, 3)])
    records.send(30)
    stopping.start()
    while stopping.is_alive():
        records.send(3)
    stopping.join()
    records.send(30)
    until(lambda: isrs(admin, topic_name) == [{1, 2, 3}] * PARTITIONS)
    assert_replicas_are_equal(cluster, topic_name)
    records.check(cluster, admin)


def test_groups_go_on_with_another_coordinator(make_cluster: MakeCluster, topic_name: str) -> None:
    cluster = make_cluster(3)
    admin = create(cluster, topic_name)
    group = f"group-of-{topic_name}"

    def consumer() -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    before = consumer()
    before.commit(offsets=[TopicPartition(topic_name, 0, 42)], asynchronous=False)
    offsets = admin.list_topics("__consumer_offsets", timeout=WAIT_S).topics["__consumer_offsets"].partitions
    coordinator = offsets[partition_for(group, len(offsets))].leader
    assert {len(partition.replicas) for partition in offsets.values()} == {3}
    kill_and_expire(cluster.broker(coordinator))
    after = consumer()
    (found,) = after.committed([TopicPartition(topic_name, 0)], timeout=WAIT_S)
    assert found.offset == 42
    before.commit(offsets=[TopicPartition(topic_name, 0, 43)], asynchronous=False)
    (found,) = after.committed([TopicPartition(topic_name, 0)], timeout=WAIT_S)
    assert found.offset == 43
    before.close()
    after.close()
