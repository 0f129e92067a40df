"""Kafka Connect with an exactly-once source on brokers of ours, its worker killed under way."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from kbroker import Admin
from kbroker.dev.free_ports import free_ports
from tests.faults.cluster import TIMEOUT, FaultCluster, until
from tests.fixtures.maven import maven_class_path

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]

ARTIFACTS = ("org.apache.kafka:connect-runtime:3.9.2", "org.apache.kafka:connect-file:3.9.2")
LINES = 1_500
MORE_LINES = 300
"""This source keeps the last lines of a file to itself until more come."""
KILLS = 3


class Worker:
    """One worker of a Connect cluster, with exactly-once support for sources."""

    def __init__(self, class_path: str, bootstrap: str, name: str, folder: Path) -> None:
        (self._port,) = free_ports(1)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        json_converter, text = (
            "org.apache.kafka.connect.json.JsonConverter",
            "org.apache.kafka.connect.storage.StringConverter",
        )
        properties = {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "exactly.once.source.support": "enabled",
            "key.converter": json_converter,
            "value.converter": text,
            "config.storage.topic": f"{name}-configs",
            "offset.storage.topic": f"{name}-offsets",
            "offset.storage.partitions": "2",
            "status.storage.topic": f"{name}-status",
            "listeners": f"http://127.0.0.1:{self._port}",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            "plugin.discovery": "only_scan",
        }
        file = folder / "worker.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        logging = folder / "log4j.properties"
        logging.write_text(
            "log4j.rootLogger=ERROR, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
        )
        flags = ("-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Dlog4j.configuration={logging.as_uri()}")
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        self._command = ["java", *flags, "-cp", class_path, main, str(file)]

    def start(self) -> None:
        """Start it, and return when it answers."""
        with (self._folder / "worker.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)
        until(lambda: self._ask("GET", "/connectors") is not None, self.log(), timeout=120)

    def log(self) -> str:
        """The last it said."""
        return (self._folder / "worker.log").read_text()[-3000:]

    def copy(self, source: Path, topic: str) -> None:
        """Have the lines of a file copied into a topic, each once."""
        config = {
            "connector.class": "FileStreamSource",
            "tasks.max": "1",
            "file": str(source),
            "topic": topic,
            "batch.size": "20",
            "exactly.once.support": "required",
            "transaction.boundary": "poll",
        }
        until(lambda: self._ask("PUT", "/connectors/lines/config", config), self.log(), timeout=60)

    def _ask(self, method: str, path: str, body: object = None) -> object:
        """The worker's answer; None while there is none."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.loads(answer.read())
        except (urllib.error.URLError, OSError):
            return None

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(TIMEOUT)
            self._process = None


@contextlib.contextmanager
def reader(bootstrap: str, topic: str) -> Iterator[Consumer]:
    """A reader of what is committed in partition 0, from its beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        yield consumer
    finally:
        consumer.close()


def test_each_line_is_copied_once_though_the_worker_is_killed(
    cluster: FaultCluster, topic_name: str, tmp_path: Path
) -> None:
    class_path = maven_class_path(*ARTIFACTS)
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(topic_name, partitions=1, replication_factor=3)
    lines = [f"line {number}" for number in range(LINES + MORE_LINES)]
    source = tmp_path / "lines.txt"
    source.write_text("\n".join(lines[:LINES]) + "\n")
    worker = Worker(class_path, cluster.bootstrap, topic_name, tmp_path)
    seen: list[str] = []
    with contextlib.ExitStack() as stack, reader(cluster.bootstrap, topic_name) as consumer:
        stack.callback(worker.kill)

        def read_on() -> int:
            for message in consumer.consume(500, timeout=0.2):
                assert message.error() is None, message.error()
                seen.append((message.value() or b"").decode())
            return len(seen)

        worker.start()
        worker.copy(source, topic_name)
        for kill in range(KILLS):
            goal = len(seen) + 100 * (kill + 1)
            until(lambda: read_on() >= goal, lambda: f"{len(seen)} lines; {worker.log()}", timeout=120)  # noqa: B023
            worker.kill()
            worker.start()
        with source.open("a") as file:
            file.write("\n".join(lines[LINES:]) + "\n")
        until(lambda: read_on() >= LINES, lambda: f"{len(seen)} lines; {worker.log()}", timeout=120)
    assert seen == lines[: len(seen)]
