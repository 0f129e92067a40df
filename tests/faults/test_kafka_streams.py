"""Kafka Streams with exactly_once_v2 on brokers of ours, its instances and the brokers killed under way."""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.faults.cluster import TIMEOUT, FaultCluster, until
from tests.faults.results import Results
from tests.fixtures.java import compiled
from tests.fixtures.maven import maven_class_path

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]

PARTITIONS = 3
LINES = 3_000
KILLS = 6
WORDS = [f"word-{number}" for number in range(20)]


class Application:
    """Instances of the word count, each a process with a state directory of its own."""

    def __init__(self, class_path: str, cluster: FaultCluster, topic: str, folder: Path) -> None:
        program = compiled(Path(__file__).with_name("WordCount.java"), class_path)
        logging = folder / "log4j.properties"
        logging.write_text("log4j.rootLogger=OFF\n")
        flags = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Dlog4j.configuration={logging.as_uri()}")
        self._command = ["java", *flags, *program, cluster.bootstrap, topic]
        self._topics = [topic, f"{topic}-out"]
        self._folder = folder
        self._instances: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, number: int) -> None:
        """Start an instance for the first time, or again on the state that it left."""
        state = self._folder / f"state-{number}"
        with self.log(number).open("ab") as log:
            command = [*self._command, str(state), *self._topics]
            self._instances[number] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def log(self, number: int) -> Path:
        """What the instance says."""
        return self._folder / f"instance-{number}.log"

    def kill(self, number: int) -> None:
        """End an instance at once."""
        instance = self._instances.pop(number)
        instance.kill()
        instance.wait(TIMEOUT)

    def close(self) -> None:
        """End all of them."""
        for number in list(self._instances):
            self.kill(number)


def write_lines(bootstrap: str, topic: str, rng: random.Random) -> Counter[str]:
    """Produce lines of words; returns how often each word is in them."""
    counts: Counter[str] = Counter()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(LINES):
        words = rng.choices(WORDS, k=3)
        counts.update(words)
        producer.produce(topic, " ".join(words).encode(), partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT) == 0
    return counts


@contextlib.contextmanager
def running(application: Application, output: Results) -> Iterator[None]:
    """Two instances and a reader."""
    try:
        for number in (0, 1):
            application.start(number)
        yield
    finally:
        application.close()
        output.close()


def test_each_word_is_counted_once_though_instances_and_brokers_are_killed(
    cluster: FaultCluster, topic_name: str, tmp_path: Path
) -> None:
    """Without a cache each occurrence of a word makes one update: 1, 2, 3, … and none of them twice or left out."""
    class_path = maven_class_path("org.apache.kafka:kafka-streams:3.9.2")
    for name in (topic_name, f"{topic_name}-out"):
        cluster.create_topic(name)
    rng = random.Random(7)
    counts = write_lines(cluster.bootstrap, topic_name, rng)
    application = Application(class_path, cluster, topic_name, tmp_path)
    output = Results(cluster.bootstrap, f"{topic_name}-out", PARTITIONS)
    with running(application, output):
        for kill in range(KILLS):
            goal = min(output.read_on() + rng.randrange(200, 1200), counts.total())
            until(lambda: output.read_on() >= goal, lambda: application.log(0).read_text()[-2000:], timeout=120)  # noqa: B023
            if kill % 3 == 2:
                victim = rng.choice(sorted(cluster.brokers))
                cluster.kill(victim)
                time.sleep(rng.random())
                cluster.mend()
            else:
                application.kill(kill % 2)
                application.start(kill % 2)
        total = sum(counts.values())
        until(lambda: output.read_on() >= total, lambda: f"{len(output.found)} of {total} updates", timeout=150)
        assert output.read_on() == total
        updates = defaultdict(list)
        for word, count in output.found:
            updates[word].append(int(count))
        assert updates == {word: list(range(1, count + 1)) for word, count in counts.items()}
