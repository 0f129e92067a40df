"""A group of our consumers whose members come, go and are killed while its partitions grow: nothing is skipped."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker import Admin, Producer
from kbroker.dev.broker_process import BrokerProcess

pytestmark = pytest.mark.slow

PARTITIONS = 12
CHURN_S = 15.0
SETTLE_S = 80.0
MEMBER = """
import signal, sys
from kbroker import Consumer

bootstrap, topic, protocol, path = sys.argv[1:]
ends = []
signal.signal(signal.SIGTERM, lambda *_: ends.append(1))
with open(path, "w") as seen, Consumer(
    bootstrap, group_id=topic, group_protocol=protocol, partition_assignment_strategy="range",
    auto_offset_reset="earliest", heartbeat_interval_ms=100, session_timeout_ms=6000, auto_commit_interval_ms=100,
    fetch_max_wait_ms=100, max_partition_fetch_bytes=2000,
) as consumer:
    consumer.subscribe([topic])
    while not ends:
        for record in consumer.poll(0.2, 200):
            seen.write(f"{record.partition} {record.offset}\\n")
        seen.flush()
"""


class Group:
    """Its members: processes that write down what they are given before they ask for more."""

    def __init__(self, broker: BrokerProcess, topic: str, protocol: str, folder: Path) -> None:
        self.members: list[subprocess.Popen[bytes]] = []
        self.files: list[Path] = []
        self._arguments = [broker.bootstrap, topic, protocol]
        self._folder = folder

    def start(self) -> None:
        self.files.append(self._folder / str(len(self.files)))
        errors = self.files[-1].with_suffix(".log").open("wb")
        with errors:
            command = [sys.executable, "-c", MEMBER, *self._arguments, str(self.files[-1])]
            self.members.append(subprocess.Popen(command, stderr=errors))

    def end(self, member: "subprocess.Popen[bytes]", *, kill: bool) -> None:
        self.members.remove(member)
        member.kill() if kill else member.terminate()
        member.wait(30)
        assert kill or member.returncode in (0, -signal.SIGTERM), self.logs()  # it may not have begun

    def seen(self) -> list[set[int]]:
        found: list[set[int]] = [set() for _ in range(PARTITIONS)]
        for path in self.files:
            for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
                if line.endswith("\n"):  # the last one of a member that was killed may be cut off
                    partition, offset = map(int, line.split())
                    found[partition].add(offset)
        return found

    def logs(self) -> str:
        return "\n".join(path.with_suffix(".log").read_text()[-2000:] for path in self.files)


def churn(group: Group, rng: random.Random, killed: float) -> None:
    """Keep one to three members; this share of those that go is killed."""
    ends = time.monotonic() + CHURN_S
    while time.monotonic() < ends:
        if len(group.members) < 2 or (len(group.members) < 3 and rng.random() < 0.6):
            group.start()
        else:
            group.end(rng.choice(group.members), kill=rng.random() < killed)
        time.sleep(rng.uniform(0.3, 1.2))


def write_until(done: threading.Event, bootstrap: str, topic: str, counts: list[int]) -> None:
    with Producer(bootstrap, linger_ms=1) as producer:
        while not done.is_set():
            for partition in range(PARTITIONS):
                for _ in range(10):
                    producer.send(topic, b"x" * 50, partition=partition)
                counts[partition] += 10
            time.sleep(0.02)
        producer.flush(30)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SETTLE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.5)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_every_record_is_delivered_to_somebody_whoever_comes_and_goes(
    broker: BrokerProcess, topic_name: str, tmp_path: Path, protocol: str
) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name, partitions=PARTITIONS)
    group = Group(broker, topic_name, protocol, tmp_path)
    counts, done = [0] * PARTITIONS, threading.Event()
    writer = threading.Thread(target=write_until, args=(done, broker.bootstrap, topic_name, counts))
    writer.start()
    try:
        # With the newer protocol the broker waits 45 s for one that was killed.
        churn(group, random.Random(protocol), 0.25 if protocol == "classic" else 0.0)
        done.set()
        writer.join(60)
        if not group.members:
            group.start()
        wait_until(lambda: [len(offsets) for offsets in group.seen()] == counts)
        missing = {
            partition: sorted(set(range(counts[partition])) - offsets)
            for partition, offsets in enumerate(group.seen())
            if len(offsets) < counts[partition]
        }
        assert not missing, (sum(counts), missing, group.logs())
        assert min(counts) > 0
    finally:
        done.set()
        for member in list(group.members):
            group.end(member, kill=True)
