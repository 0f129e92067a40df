"""Random access rules and questions: our authorizer decides as Kafka's AclAuthorizer does, which reads our znodes."""

from __future__ import annotations

import asyncio
import random
import subprocess
from pathlib import Path

import pytest

from kbroker.security.acls import CLUSTER_NAME, AclOperation, AclPattern, AclPermission, AclResource, Entry, Pattern
from kbroker.security.authorizer import Authorizer
from tests.fixtures.java import JVM_FLAGS, compiled
from tests.fixtures.zookeeper import fresh_chroot, remove_chroot
from tests.kbroker.handlers.test_access import write_rules

pytestmark = pytest.mark.compat

ROUNDS, RULES, QUESTIONS = 12, 30, 600
NAMES = ("a", "ab", "abc", "b", "*", "a*", "ba")
HOSTS = ("10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1")
PRINCIPALS = ("User:ann", "User:bob", "User:root", "Role:ann", "User:ANONYMOUS")
SUPER_USERS = "User:root"
RESOURCES = tuple(kind for kind in AclResource if kind is not AclResource.ANY)
OPERATIONS = tuple(each for each in AclOperation if each is not AclOperation.ANY)
ASKED = tuple(each for each in OPERATIONS if each is not AclOperation.ALL)
Question = tuple[str, str, AclOperation, AclResource, str | None]


def some_rule(rng: random.Random) -> tuple[Pattern, Entry]:
    resource = rng.choice(RESOURCES)
    name = CLUSTER_NAME if resource is AclResource.CLUSTER else rng.choice(NAMES)
    pattern = Pattern(resource, rng.choice((AclPattern.LITERAL, AclPattern.PREFIXED)), name)
    who, host = rng.choice(("User:*", *PRINCIPALS)), rng.choice(("*", *HOSTS))
    permission = rng.choice((AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY))
    return pattern, Entry(who, host, rng.choice(OPERATIONS), permission)


def some_question(rng: random.Random) -> Question:
    resource = rng.choice(RESOURCES)
    name: str | None = CLUSTER_NAME if resource is AclResource.CLUSTER else rng.choice(NAMES)
    if rng.random() < 0.25:
        name = None
    return rng.choice(PRINCIPALS), rng.choice(HOSTS), rng.choice(ASKED), resource, name


def ours(rules: list[tuple[Pattern, Entry]], allow_everyone: bool, questions: list[Question]) -> list[str]:
    authorizer = Authorizer([SUPER_USERS], allow_everyone)
    for pattern, entry in rules:
        authorizer.replace(pattern, authorizer.entries(pattern) | {entry})
    found = []
    for who, host, operation, resource, name in questions:
        authority = authorizer.authority(who, host)
        is_allowed = (
            authority.may_with_any(operation, resource) if name is None else authority.may(operation, resource, name)
        )
        found.append("ALLOWED" if is_allowed else "DENIED")
    return found


def in_words(question: Question) -> str:
    who, host, operation, resource, name = question
    return " ".join([who, host, operation.name, resource.name, *([] if name is None else [name])])


@pytest.mark.timeout(300)
def test_random_rules_are_understood_as_kafka_does(
    zookeeper_server: str, kafka_class_path: str, tmp_path: Path
) -> None:
    rng = random.Random(1453)
    lines: list[str] = []
    expected: list[str] = []
    asked: list[str] = []
    chroots = []
    for number in range(ROUNDS):
        allow_everyone = bool(number % 2)
        rules = [some_rule(rng) for _ in range(RULES if number % 3 else 6)]
        questions = [some_question(rng) for _ in range(QUESTIONS)]
        address = fresh_chroot(zookeeper_server)
        chroots.append(address)
        asyncio.run(write_rules(address.connect_string, rules))
        texts = [in_words(each) for each in questions]
        lines += [f"open {address.connect_string} {SUPER_USERS} {str(allow_everyone).lower()}", *texts]
        asked += [f"{text} with {rules}" for text in texts]
        expected += ours(rules, allow_everyone, questions)
    logging = tmp_path / "log4j.properties"
    logging.write_text("log4j.rootLogger=OFF\n")
    program = compiled(Path(__file__).with_name("Decisions.java"), kafka_class_path)
    command = ["java", *JVM_FLAGS, f"-Dlog4j.configuration={logging.as_uri()}", *program]
    given = "\n".join(lines)
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = done.stdout.split()
    assert len(theirs) == len(expected)
    assert 0.1 < theirs.count("ALLOWED") / len(theirs) < 0.9, "the rules decide something"
    wrong = [f"Kafka: {theirs[at]}: {asked[at]}" for at in range(len(asked)) if theirs[at] != expected[at]]
    assert not wrong, f"{len(wrong)} of {len(asked)}:\n" + "\n".join(wrong[:5])
    for address in chroots:
        remove_chroot(address)
