"""Consumer groups whose coordinator is one of Kafka's brokers or ours, and moves between them."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaException

from tests.faults.cluster_view import TIMEOUT, until
from tests.faults.load import Load
from tests.fixtures.java import JavaTool
from tests.fixtures.kafka import KAFKA, KBROKER
from tests.mixed.cluster import JavaWriter, MixedCluster

GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
OFFSETS = "__consumer_offsets"
KINDS = {1: KAFKA, 2: KAFKA, 3: KBROKER}
SOME = 200


class Group:
    """A group of one member at a time, which must read each partition without a gap from commit to commit."""

    def __init__(self, cluster: MixedCluster, group_id: str) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self.next: dict[int, int] = {}
        """Partition -> the offset it must read next."""

    def read_some(self, topic: str) -> None:
        """Join, read some records from where the group stopped, commit, leave."""
        consumer = ConfluentConsumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": self.group_id,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
                "log_level": 0,
            }
        )
        try:
            consumer.subscribe([topic])
            count, deadline = 0, time.monotonic() + TIMEOUT
            while count < SOME:
                assert time.monotonic() < deadline, f"group {self.group_id} read {count} of {SOME} records"
                message = consumer.poll(0.5)
                if message is None or message.error() is not None:
                    continue
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset == self.next.get(partition, 0), (partition, offset, self.next)
                self.next[partition] = offset + 1
                count += 1
            self._commit(consumer, deadline)
        finally:
            consumer.close()

    def _commit(self, consumer: ConfluentConsumer, deadline: float) -> None:
        """Commit; a coordinator that moves or loads is asked again."""
        while True:
            try:
                consumer.commit(asynchronous=False)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


def coordinators(cluster: MixedCluster) -> dict[int, int]:
    """Partition of the offsets topic -> its leader, the coordinator of its groups."""
    return {partition: cluster.state(OFFSETS, partition).leader for partition in cluster.partitions(OFFSETS)}


def check_described(java_tool: JavaTool, cluster: MixedCluster, group: Group) -> None:
    """Kafka's own tool shows the commits."""
    chosen = ("--bootstrap-server", cluster.bootstrap, "--group", group.group_id, "--describe", "--timeout", "60000")
    shown = java_tool(GROUP_COMMAND, *chosen)
    rows = [line.split() for line in shown.splitlines()]
    found = {int(row[2]): int(row[3]) for row in rows if row[:1] == [group.group_id] and row[3] != "-"}
    assert found == group.next, shown


@pytest.mark.compat
@pytest.mark.timeout(600)
@pytest.mark.parametrize("controller", [1, 3])
def test_groups_keep_their_offsets_when_their_coordinator_moves_between_the_kinds(
    mixed_cluster: MixedCluster, java_tool: JavaTool, controller: int
) -> None:
    cluster = mixed_cluster
    cluster.start({controller: KINDS[controller], **KINDS})
    cluster.create_topic("t")
    # Three partitions of offsets: among some groups each broker coordinates one.
    groups = [Group(cluster, f"group-{number}") for number in range(6)]
    with Load(cluster, "t", (JavaWriter,)) as load:
        for group in groups:
            group.read_some("t")
        cluster.until_whole(OFFSETS)
        assert set(coordinators(cluster).values()) == {1, 2, 3}
        for broker_id in (3, 1, 2):
            cluster.kill(broker_id)
            cluster.until_led_by_another(OFFSETS, broker_id, cluster.partitions(OFFSETS))
            for group in groups:
                group.read_some("t")
            cluster.start_broker(broker_id, KINDS[broker_id])
            cluster.until_whole("t")
            cluster.until_whole(OFFSETS)
            cluster.balance(OFFSETS)
            cluster.balance("t")
            until(lambda: set(coordinators(cluster).values()) == {1, 2, 3}, "preferred leaders lead the offsets")
            for group in groups:
                group.read_some("t")
        load.finish_and_check()
    for group in groups:
        check_described(java_tool, cluster, group)
    cluster.until_identical(OFFSETS)
