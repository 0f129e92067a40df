"""Replicas that move between the log directories of a real broker: under load, through kill -9, by Kafka's tools."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kbroker import Admin
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from tests.fixtures.brokers import MakeBroker, kill_and_expire
from tests.fixtures.java import JavaTool
from tests.kbroker.cli.commands import succeed
from tests.system.test_kills import check_acknowledged, wait_for_progress
from tests.system.wire import Peer, create_topic, fetch, one_batch, produce, read_all, read_copy
from tests.system.writers import OurWriter

pytestmark = pytest.mark.slow

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
MOVE_S = 60.0
PROPERTIES = {"log.segment.bytes": "200000"}
Place = tuple[str, int, bool]
"""Directory, partition, is it a copy."""


class TwoDirs:
    """A broker with the log directories `a` and `b`, and a topic."""

    def __init__(self, make_broker: MakeBroker, path: Path, topic: str, broker_id: int = 1) -> None:
        self.a, self.b = str(path / f"a{broker_id}"), str(path / f"b{broker_id}")
        self.broker: BrokerProcess = make_broker(broker_id, properties={**PROPERTIES, "log.dirs": f"{self.a},{self.b}"})
        self.topic = topic

    def fill(self, partition: int, batches: int, size: int = 50_000) -> None:
        with Peer(self.broker) as peer:
            for _ in range(batches):
                assert not produce(peer, self.topic, one_batch(bytes(size)), partition).error_code

    def set_rate(self, rate: int | None) -> None:
        with Admin(self.broker.bootstrap) as admin:
            admin.alter_configs("broker", str(self.broker.broker_id), {RATE: None if rate is None else str(rate)})

    def places(self) -> list[Place]:
        with Peer(self.broker) as peer:
            answer = peer.ask(DescribeLogDirsRequest(topics=None), 4)
        return sorted(
            (each.log_dir, found.partition_index, found.is_future_key)
            for each in answer.results
            for topic in each.topics
            for found in topic.partitions
            if topic.name == self.topic
        )

    def place(self, partition: int) -> list[tuple[str, bool]]:
        return [(log_dir, is_future) for log_dir, number, is_future in self.places() if number == partition]

    def move(self, partition: int, log_dir: str) -> ErrorCode:
        topics = [AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=self.topic, partitions=[partition])]
        directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=log_dir, topics=topics)
        with Peer(self.broker) as peer:
            answer = peer.ask(AlterReplicaLogDirsRequest(dirs=[directory]), 2)
        code: ErrorCode = answer.results[0].partitions[0].error_code
        return code

    def other(self, partition: int) -> str:
        ((present, is_future),) = self.place(partition)
        assert not is_future
        return self.b if present == self.a else self.a

    def wait_for(self, partition: int, log_dir: str) -> None:
        deadline = time.monotonic() + MOVE_S
        while self.place(partition) != [(log_dir, False)]:
            assert time.monotonic() < deadline, (self.places(), self.broker.log_tail(30))
            time.sleep(0.05)


@pytest.fixture
def two_dirs(make_broker: MakeBroker, tmp_path: Path, topic_name: str) -> TwoDirs:
    made = TwoDirs(make_broker, tmp_path, topic_name)
    create_topic(made.broker, topic_name, partitions=2)
    return made


@pytest.mark.timeout(180)
def test_a_replica_is_moved_to_and_fro_under_load_and_the_broker_killed_in_the_middle(two_dirs: TwoDirs) -> None:
    broker, topic = two_dirs.broker, two_dirs.topic
    two_dirs.fill(0, 40)
    with OurWriter(broker, topic, 2) as writer:
        for kill in (False, True, False):
            wait_for_progress([writer])
            destination = two_dirs.other(0)
            two_dirs.set_rate(50_000)
            assert two_dirs.move(0, destination) is ErrorCode.NONE
            wait_for_progress([writer])
            assert (destination, True) in two_dirs.place(0)
            if kill:
                kill_and_expire(broker)
                broker.start().wait_until_ready()
                wait_for_progress([writer])
                assert (destination, True) in two_dirs.place(0)
            two_dirs.set_rate(None)
            two_dirs.wait_for(0, destination)
        wait_for_progress([writer])
        writer.finish(60)
    assert not writer.errors
    check_acknowledged([writer], {partition: read_all(broker, topic, partition, 0) for partition in (0, 1)})
    assert broker.stop() == 0
    for log_dir in (two_dirs.a, two_dirs.b):
        succeed("log", "verify", log_dir)
    assert "Traceback" not in broker.log_tail(10_000)


@pytest.mark.timeout(180)
def test_kafkas_tools_move_a_replica_and_see_it_move(two_dirs: TwoDirs, java_tool: JavaTool, tmp_path: Path) -> None:
    broker, topic = two_dirs.broker, two_dirs.topic
    two_dirs.fill(0, 80)
    destination = two_dirs.other(0)
    server = ("--bootstrap-server", broker.bootstrap)
    plan = tmp_path / "plan.json"
    moved = {"topic": topic, "partition": 0, "replicas": [broker.broker_id], "log_dirs": [destination]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    chosen = (*server, "--reassignment-json-file", str(plan))
    executed = java_tool(REASSIGN, *chosen, "--execute", "--replica-alter-log-dirs-throttle", "20000")
    assert f"Successfully started moving log directory to {destination}" in executed, executed
    verified = java_tool(REASSIGN, *chosen, "--verify", "--preserve-throttles")
    assert "is still in progress" in verified, verified
    described = java_tool(LOG_DIRS, *server, "--describe", "--topic-list", topic)
    found = json.loads(described.splitlines()[-1])["brokers"][0]["logDirs"]
    copies = [each for log_dir in found for each in log_dir["partitions"] if each["isFuture"]]
    assert [(each["partition"], each["offsetLag"] > 0) for each in copies] == [(f"{topic}-0", True)]
    two_dirs.set_rate(None)
    two_dirs.wait_for(0, destination)
    verified = java_tool(REASSIGN, *chosen, "--verify")
    assert f"Reassignment of replica {topic}-0-{broker.broker_id} completed successfully" in verified, verified


@pytest.mark.timeout(180)
def test_kafkas_tool_moves_a_replica_to_another_broker_into_the_directory_of_its_choice(
    two_dirs: TwoDirs, make_broker: MakeBroker, java_tool: JavaTool, tmp_path: Path
) -> None:
    two_dirs.fill(0, 3)
    second = TwoDirs(make_broker, tmp_path, two_dirs.topic, broker_id=2)
    plan = tmp_path / "plan.json"
    moved = {"topic": two_dirs.topic, "replicas": [2], "log_dirs": [second.b]}
    partitions = [{**moved, "partition": partition} for partition in (0, 1)]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    server = ("--bootstrap-server", f"{two_dirs.broker.bootstrap},{second.broker.bootstrap}")
    java_tool(REASSIGN, *server, "--reassignment-json-file", str(plan), "--execute")
    for partition in (0, 1):
        second.wait_for(partition, second.b)
    with Admin(second.broker.bootstrap) as admin:

        def replicas() -> set[tuple[int, ...]]:
            return {each.replicas for each in admin.describe_topics([second.topic])[second.topic].partitions}

        deadline = time.monotonic() + MOVE_S
        while replicas() != {(2,)}:
            assert time.monotonic() < deadline, replicas()
            time.sleep(0.05)
    assert len(read_all(second.broker, second.topic, 0, 0)) == 3


@pytest.mark.timeout(240)
def test_replicas_move_while_leaders_are_killed_and_stay_the_same_everywhere(
    make_broker: MakeBroker, tmp_path: Path, topic_name: str
) -> None:
    members = {broker_id: TwoDirs(make_broker, tmp_path, topic_name, broker_id) for broker_id in (1, 2, 3)}
    with Admin(members[1].broker.bootstrap) as admin:
        placed = {0: [1, 2, 3], 1: [2, 3, 1]}
        admin.create_topic(topic_name, assignments=placed, configs={"min.insync.replicas": "2"})
    cluster = Several([member.broker for member in members.values()])
    with OurWriter(cluster, topic_name, 2) as writer:
        for broker_id in (1, 2):
            wait_for_progress([writer], 60)
            for member in members.values():
                member.set_rate(100_000)
                for partition in (0, 1):
                    if len(member.place(partition)) == 1:
                        assert member.move(partition, member.other(partition)) is ErrorCode.NONE
            wait_for_progress([writer], 60)
            kill_and_expire(members[broker_id].broker)
            wait_for_progress([writer], 60)
            members[broker_id].broker.start().wait_until_ready(60)
            for member in members.values():
                member.set_rate(None)
        wait_for_progress([writer], 60)
        writer.finish(60)
    assert not writer.errors
    for member in members.values():
        for partition in (0, 1):
            deadline = time.monotonic() + MOVE_S
            while len(member.place(partition)) != 1:
                assert time.monotonic() < deadline, member.places()
                time.sleep(0.05)
    stored: dict[int, list[bytes]] = {}
    for partition in (0, 1):
        until_equal(members, partition, len([0 for place, _ in writer.acknowledged.values() if place == partition]))
        stored[partition] = read_copy(members[1].broker, topic_name, partition)
        for member in members.values():
            assert read_copy(member.broker, topic_name, partition) == stored[partition]
    check_acknowledged([writer], stored)
    for member in members.values():
        assert "Traceback" not in member.broker.log_tail(10_000)
        assert member.broker.stop() == 0
        for log_dir in (member.a, member.b):
            succeed("log", "verify", log_dir)


class Several:
    """Brokers as a client sees them."""

    def __init__(self, brokers: list[BrokerProcess]) -> None:
        self.bootstrap = ",".join(broker.bootstrap for broker in brokers)


def until_equal(members: dict[int, TwoDirs], partition: int, count: int) -> None:
    """Wait until every replica hands out at least so many records, and all as many."""
    deadline = time.monotonic() + MOVE_S
    while True:
        marks = []
        for member in members.values():
            with Peer(member.broker) as peer:
                marks.append(fetch(peer, member.topic, 0, partition).high_watermark)
        if len(set(marks)) == 1 and marks[0] >= count:
            return
        assert time.monotonic() < deadline, (marks, count)
        time.sleep(0.1)
