"""At most once, at least once, exactly once, as docs/clients.md promises them: whoever is killed at whatever moment."""

from __future__ import annotations

import contextlib
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbroker import Admin, Consumer, Delivery, Producer
from kbroker.dev.broker_process import BrokerProcess
from tests.fixtures.brokers import MakeBroker, kill_and_expire

PAGE = Path(__file__).parents[3] / "docs" / "clients.md"
PARTITIONS = 4
LIMIT_S = 60.0
RECORDS = 1_500

pytestmark = pytest.mark.slow


@pytest.fixture
def own_broker(make_broker: MakeBroker) -> BrokerProcess:
    """A broker to be killed, that soon misses a member."""
    return make_broker(properties={"group.min.session.timeout.ms": "500", "group.initial.rebalance.delay.ms": "0"})


@pytest.fixture
def bootstrap(own_broker: BrokerProcess) -> str:
    return own_broker.bootstrap


def send_through_a_kill(broker: BrokerProcess, topic: str, **settings: Any) -> list[Delivery]:
    """Send numbers to one partition while their broker is killed and started again."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, 1, 1)
    deliveries = []
    with Producer(broker.bootstrap, linger_ms=1, **settings) as producer:
        for number in range(RECORDS):
            deliveries.append(producer.send(topic, b"%d" % number))
            if number % 50 == 0:
                time.sleep(0.01)
            if number == RECORDS // 2:
                kill_and_expire(broker)
                broker.start()
        broker.wait_until_ready(LIMIT_S)
    return deliveries


def stored(bootstrap: str, topic: str) -> list[int]:
    """What lies in the topic's only partition."""
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        numbers: list[int] = []
        while any(consumer.lag().values()):
            numbers += [int(record.value or b"") for record in consumer.poll(0.5)]
        return numbers


class Crash(Exception):
    """The worker ends here."""


def work_off(bootstrap: str, topic: str, rng: random.Random, commits_first: bool) -> Counter[int]:
    """Read a topic as a group, ending and beginning again at random places, to its end; returns what was done."""
    done: Counter[int] = Counter()

    def run() -> None:
        by_hand = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}
        with Consumer(bootstrap, group_id=topic, **by_hand) as consumer:
            consumer.subscribe([topic])
            while not consumer.assignment() or any(consumer.lag().values()):
                records = consumer.poll(0.5, max_records=100)
                if commits_first:
                    consumer.commit()
                for record in records:
                    if rng.random() < 0.006:
                        raise Crash
                    done[int(record.value or b"")] += 1
                if not commits_first:
                    consumer.commit()

    while True:
        with contextlib.suppress(Crash):
            run()
            return done


def test_at_most_once_loses_and_never_repeats(own_broker: BrokerProcess, topic_name: str) -> None:
    deliveries = send_through_a_kill(own_broker, topic_name, acks=0)
    assert deliveries[0].result(LIMIT_S).offset == -1
    numbers = stored(own_broker.bootstrap, topic_name)
    assert numbers == sorted(set(numbers))
    done = work_off(own_broker.bootstrap, topic_name, random.Random(1), commits_first=True)
    assert set(done) < set(numbers), "a worker that ended in the middle has lost what it had committed"
    assert set(done.values()) == {1}


def test_at_least_once_repeats_and_never_loses(own_broker: BrokerProcess, topic_name: str) -> None:
    deliveries = send_through_a_kill(own_broker, topic_name)
    assert [delivery.result(LIMIT_S).offset for delivery in deliveries] == list(range(RECORDS))
    assert stored(own_broker.bootstrap, topic_name) == list(range(RECORDS))
    done = work_off(own_broker.bootstrap, topic_name, random.Random(1), commits_first=False)
    assert set(done) == set(range(RECORDS))
    assert max(done.values()) > 1


def program(name: str, arguments: str, folder: Path, topics: dict[str, str]) -> list[str]:
    """The page's snippet that defines a function, as a program that calls it; the command that runs it."""
    (snippet,) = re.findall(rf"```python\n((?:(?!```).)*def {name}\(.*?)```", PAGE.read_text(), re.DOTALL)
    for before, after in topics.items():
        snippet = snippet.replace(before, after)
    path = folder / f"{name}.py"
    path.write_text(f"import sys\n{snippet}\n{name}(*sys.argv[1:], {arguments})\n")
    return [sys.executable, str(path)]


class Instances:
    """Some processes of one program, which are killed and started again."""

    def __init__(self, command: list[str], bootstrap: str, count: int) -> None:
        self.command, self.bootstrap = command, bootstrap
        self.running: list[subprocess.Popen[bytes] | None] = [None] * count
        for number in range(count):
            self.start(number)

    def start(self, number: int) -> None:
        if self.running[number] is None:
            self.running[number] = subprocess.Popen([*self.command, self.bootstrap, str(number)])

    def kill(self, number: int) -> None:
        process, self.running[number] = self.running[number], None
        if process is not None:
            assert process.poll() is None, "it ended by itself"
            process.kill()
            process.wait(LIMIT_S)

    def kill_at_random(self, rng: random.Random, times: int) -> None:
        """Kill one after the other; some start at once, some when the group has gone on without them."""
        for _ in range(times):
            time.sleep(rng.uniform(0.05, 1.0))
            number = rng.randrange(len(self.running))
            self.kill(number)
            if rng.random() < 0.3:
                time.sleep(rng.uniform(0.5, 2.0))
            self.start(number)


@contextmanager
def instances(command: list[str], bootstrap: str, count: int) -> Iterator[Instances]:
    running = Instances(command, bootstrap, count)
    try:
        yield running
    finally:
        for process in running.running:
            if process is not None:
                process.kill()
                process.wait(LIMIT_S)


class Inputs(threading.Thread):
    """Sends numbers until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self.bootstrap, self.topic, self.sent = bootstrap, topic, 0
        self.is_done = threading.Event()

    def run(self) -> None:
        with Producer(self.bootstrap) as producer:
            while not self.is_done.wait(0.01):
                for _ in range(5):
                    producer.send(self.topic, b"n%d" % self.sent, partition=self.sent % PARTITIONS)
                    self.sent += 1


@pytest.mark.parametrize("seed", [1, 2])
def test_every_input_comes_out_exactly_once_whoever_is_killed(
    bootstrap: str, seed: int, topic_name: str, tmp_path: Path
) -> None:
    source, target = f"{topic_name}-in", f"{topic_name}-out"
    with Admin(bootstrap) as admin:
        admin.create_topic(source, PARTITIONS, 1)
        admin.create_topic(target, PARTITIONS, 1)
    names = {"whispered": source, "shouted": target, '"shout': f'"{topic_name}'}
    command = program("shout", "session_timeout_ms=1000, heartbeat_interval_ms=100", tmp_path, names)
    inputs = Inputs(bootstrap, source)
    settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with instances(command, bootstrap, 3) as running, Consumer(bootstrap, **settings) as reader:
        reader.subscribe([target])
        inputs.start()
        try:
            running.kill_at_random(random.Random(seed), 5)
        finally:
            inputs.is_done.set()
            inputs.join()
        seen: Counter[bytes | None] = Counter()
        deadline = time.monotonic() + LIMIT_S
        while len(seen) < inputs.sent:
            assert time.monotonic() < deadline, f"{inputs.sent - len(seen)} of {inputs.sent} are missing"
            seen.update(record.value for record in reader.poll(1.0))
        seen.update(record.value for record in reader.poll(0.5))
    assert seen == Counter(b"N%d" % number for number in range(inputs.sent))
