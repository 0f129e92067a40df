"""Apache Flink's exactly-once source and sink on brokers of ours, the job and the brokers killed under way."""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.faults.cluster import TIMEOUT, FaultCluster, until
from tests.faults.results import Results
from tests.fixtures.java import compiled
from tests.fixtures.maven import maven_class_path

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]

FLINK = "1.20.1"
JARS = (
    f"org.apache.flink:flink-streaming-java:{FLINK}",
    f"org.apache.flink:flink-clients:{FLINK}",
    f"org.apache.flink:flink-connector-base:{FLINK}",
    "org.apache.flink:flink-connector-kafka:3.4.0-1.20",
)
PARTITIONS = 3
LINES = 4_000
LETTERS = "abcdef"
KILLS = 6
FLAGS = (
    "-Xmx512m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)


class Job:
    """A whole Flink in one process, which goes on from the last checkpoint of the one before it."""

    def __init__(self, class_path: str, cluster: FaultCluster, topic: str, folder: Path) -> None:
        program = compiled(Path(__file__).with_name("FlinkTotals.java"), class_path)
        logging = folder / "log4j.properties"
        logging.write_text(
            "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
        )
        self._checkpoints = folder / "checkpoints"
        given = (cluster.bootstrap, topic, self._checkpoints.as_uri(), topic, f"{topic}-out")
        self._command = ["java", *FLAGS, f"-Dlog4j.configuration={logging.as_uri()}", *program, *given]
        self._log = folder / "flink.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it for the first time, or from its last checkpoint."""
        whole = sorted(self._checkpoints.glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime)
        last = [whole[-1].parent.as_uri()] if whole else []
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*self._command, *last], stdout=log, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(TIMEOUT)
            self._process = None

    def said(self) -> str:
        """The end of what it said."""
        return self._log.read_text(errors="replace")[-3000:]


def write_lines(bootstrap: str, topic: str, rng: random.Random) -> list[str]:
    """Produce lines, each another one; returns them."""
    lines = [f"{rng.choice(LETTERS)}-{number}" for number in range(LINES)]
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number, line in enumerate(lines):
        producer.produce(topic, line.encode(), partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT) == 0
    return lines


@contextlib.contextmanager
def running(job: Job, output: Results) -> Iterator[None]:
    """The job and a reader."""
    try:
        job.start()
        yield
    finally:
        job.kill()
        output.close()


def test_each_line_is_counted_once_though_flink_and_brokers_are_killed(
    cluster: FaultCluster, topic_name: str, tmp_path: Path
) -> None:
    """Flink keeps offsets and totals in its checkpoints, and commits the transactions of one when it is complete."""
    class_path = maven_class_path(*JARS)
    for name in (topic_name, f"{topic_name}-out"):
        cluster.create_topic(name)
    rng = random.Random(7)
    lines = write_lines(cluster.bootstrap, topic_name, rng)
    job = Job(class_path, cluster, topic_name, tmp_path)
    output = Results(cluster.bootstrap, f"{topic_name}-out", PARTITIONS)
    with running(job, output):
        for kill in range(KILLS):
            goal = min(output.read_on() + rng.randrange(200, 700), LINES)
            until(lambda: output.read_on() >= goal, job.said(), timeout=120)  # noqa: B023
            if kill % 3 == 2:
                cluster.kill(rng.choice(sorted(cluster.brokers)))
                time.sleep(rng.random())
                cluster.mend()
            else:
                job.kill()
                job.start()
        until(lambda: output.read_on() >= LINES, lambda: f"{len(output.found)} of {LINES}: {job.said()}", timeout=150)
        time.sleep(1)
        output.read_on()
    results = [value for _, value in output.found]
    assert sorted(result.split()[0] for result in results) == sorted(lines)
    for letter in LETTERS:
        totals = sorted(int(result.split()[1]) for result in results if result.startswith(letter))
        assert totals == list(range(1, sum(line.startswith(letter) for line in lines) + 1))
