"""Our assignors against Kafka's: the same groups, the same assignments, whoever leads."""

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.client.group.assignors import ASSIGNORS, subscription_for
from kbroker.client.group.subscriptions import Subscription, decode_subscription, encode_subscription
from kbroker.client.types import TopicPartition
from tests.fixtures.java import JVM_FLAGS, compiled

pytestmark = pytest.mark.slow
JAVA_NAMES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
ROUNDS = 60
RACKS = ("east", "west", "north")

Topics = dict[str, list[frozenset[str]]]


@pytest.fixture(scope="module")
def java(kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[subprocess.Popen[str]]":
    logging = tmp_path_factory.mktemp("java") / "log4j.properties"
    logging.write_text("log4j.rootLogger=OFF\n")
    program = compiled(Path(__file__).with_name("Assignors.java"), kafka_class_path)
    command = ["java", *JVM_FLAGS, f"-Dlog4j.configuration={logging.as_uri()}", *program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def ask(
    java: "subprocess.Popen[str]", name: str, topics: Topics, members: dict[str, Subscription]
) -> dict[str, list[str]]:
    assert java.stdin is not None
    assert java.stdout is not None
    lines = [f"case {JAVA_NAMES[name]}"]
    for topic, partitions in topics.items():
        lines.append(f"topic {topic} " + " ".join(",".join(sorted(racks)) or "-" for racks in partitions))
    for member, subscription in members.items():
        lines.append(f"member {member} {subscription.instance_id or '-'} {encode_subscription(subscription).hex()}")
    java.stdin.write("\n".join([*lines, "end\n"]))
    java.stdin.flush()
    answer: dict[str, list[str]] = {}
    while (line := java.stdout.readline()) != "end\n":
        assert line, f"Java gave up on {lines}"
        member, *given = line.split()
        answer[member] = given
    return answer


def some_topics(rng: random.Random, racks: bool) -> Topics:
    def replicas() -> frozenset[str]:
        return frozenset(rng.sample(RACKS, rng.randint(1, 3))) if racks else frozenset()

    return {f"topic{number}": [replicas() for _ in range(rng.randint(1, 9))] for number in range(rng.randint(1, 5))}


class Life:
    """Members over generations: some leave, some come, some change their minds."""

    def __init__(self, rng: random.Random, name: str) -> None:
        self.rng, self.assignor = rng, ASSIGNORS[name]
        self.with_racks, self.is_even = rng.random() < 0.3, rng.random() < 0.5
        self.topics = some_topics(rng, self.with_racks)
        self.members: dict[str, Subscription] = {}
        self.generation = 0
        for _ in range(rng.randint(1, rng.choice((3, 8, 30)))):
            self.join()

    def join(self) -> None:
        member = f"client-{self.rng.getrandbits(64):x}"
        instance = f"i{self.rng.getrandbits(40)}" if self.rng.random() < 0.2 else None
        rack = self.rng.choice(RACKS) if self.with_racks and self.rng.random() < 0.8 else None
        self.members[member] = Subscription(self.wish(), rack=rack, instance_id=instance)

    def wish(self) -> tuple[str, ...]:
        names = sorted(self.topics)
        return tuple(names if self.is_even else self.rng.sample(names, self.rng.randint(1, len(names))))

    def go_on(self, assignment: dict[str, list[TopicPartition]]) -> None:
        """Make the next generation of this assignment."""
        rng, self.generation = self.rng, self.generation + 1
        for member, before in list(self.members.items()):
            if rng.random() < 0.15 and len(self.members) > 1:
                del self.members[member]
                continue
            if rng.random() < 0.1:
                continue  # missed this generation
            last = sorted(assignment[member])
            owned = last if self.assignor.is_cooperative else []
            said = subscription_for(self.assignor, before.topics, owned, self.generation, before.rack or "", last)
            self.members[member] = decode_subscription(encode_subscription(said), before.instance_id)
        for _ in range(rng.randint(0, 2)):
            self.join()
        if rng.random() < 0.3:
            name = rng.choice(sorted(self.topics))
            self.topics[name] = [*self.topics[name], self.topics[name][0]]


@pytest.mark.parametrize("name", JAVA_NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_assignments_are_those_of_java(java: "subprocess.Popen[str]", name: str, seed: int) -> None:
    rng = random.Random(f"{name} {seed}")
    for _ in range(ROUNDS):
        life = Life(rng, name)
        for _ in range(5):
            ours = life.assignor.assign(life.topics, life.members)
            assert {member: [str(key) for key in keys] for member, keys in ours.items()} == ask(
                java, name, life.topics, life.members
            )
            life.go_on(ours)
