"""The same access rules and the same requests of somebody whom they limit: the answers are those of Kafka 3.9.2.

The rules are written by our code before either broker starts. Who asks comes from an address of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.free_ports import free_ports
from kbroker.handlers.refusals import blank
from kbroker.protocol.apis import api_of
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.api_versions import ApiVersionsRequest
from kbroker.protocol.messages.groups import FindCoordinatorRequest
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.transactions import InitProducerIdRequest
from kbroker.security.acls import ANONYMOUS, AclOperation, AclPattern, AclPermission, AclResource, Entry, Pattern
from tests.fixtures.brokers import START_TIMEOUT, broker_properties, forget
from tests.fixtures.kafka import running_kafka
from tests.fixtures.zookeeper import fresh_chroot, remove_chroot
from tests.kbroker.handlers.test_access import AUTHORIZER, GUEST, HOST, everything_from, write_rules
from tests.parity.access_requests import ONLY_OURS, in_version, requests_for, versions_to_ask
from tests.parity.transcript import Talk, unlike

pytestmark = pytest.mark.compat

SETTINGS = {"num.partitions": "1", "log.retention.ms": "-1", "offsets.topic.num.partitions": "5", **AUTHORIZER}
OPEN, SHUT = "open", "shut"
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY


def rules() -> list[tuple[Pattern, Entry]]:
    """The host may do everything; guests much with what is open, by name and by prefix, nothing with what is shut."""
    found = everything_from(HOST)
    for kind in (AclResource.TOPIC, AclResource.GROUP, AclResource.TRANSACTIONAL_ID):
        for pattern, name in ((AclPattern.LITERAL, OPEN), (AclPattern.PREFIXED, f"{OPEN}-")):
            found.append((Pattern(kind, pattern, name), Entry(ANONYMOUS, GUEST, AclOperation.ALL, ALLOW)))
    shut = Pattern(AclResource.TOPIC, AclPattern.LITERAL, SHUT)
    found.append((shut, Entry(ANONYMOUS, GUEST, AclOperation.ALTER_CONFIGS, ALLOW)))
    denied = Pattern(AclResource.TOPIC, AclPattern.LITERAL, "denied")
    found.append((denied, Entry(ANONYMOUS, GUEST, AclOperation.ALL, ALLOW)))
    found.append((denied, Entry("User:*", GUEST, AclOperation.READ, DENY)))
    return found


@pytest.fixture(scope="module")
def ours(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    address = fresh_chroot(zookeeper_server)
    asyncio.run(write_rules(address.connect_string, rules()))
    properties = broker_properties(address.connect_string, SETTINGS)
    process = BrokerProcess(1, tmp_path_factory.mktemp("ours"), free_ports(1)[0], properties)
    try:
        yield process.start().wait_until_ready(START_TIMEOUT).port
    finally:
        forget(process)
        remove_chroot(address)


@pytest.fixture(scope="module")
def kafka(zookeeper_server: str, kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    address = fresh_chroot(zookeeper_server)
    asyncio.run(write_rules(address.connect_string, rules()))
    folder: Path = tmp_path_factory.mktemp("kafka")
    with running_kafka(folder, address.connect_string, kafka_class_path, SETTINGS) as broker:
        yield broker.port
    remove_chroot(address)


NAMES = ("name", "topic", "topic_name", "group_id", "key", "transactional_id", "resource_type", "resource_name")
"""Of an answer's elements."""


def unordered(value: Any) -> Any:
    """The lists sorted by names: Kafka answers what it refuses before or behind the rest, as it comes."""
    if isinstance(value, dict):
        return {key: unordered(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted((unordered(each) for each in value), key=_name)
    return value


def _name(value: Any) -> str:
    return str([value.get(field) for field in NAMES]) if isinstance(value, dict) else ""


def coordinated(port: int) -> None:
    """Let there be coordinators that have loaded what they hold."""
    with contextlib.closing(Talk(port, "x", HOST)) as talk:
        questions = [
            FindCoordinatorRequest(key_type=0, key=OPEN),
            FindCoordinatorRequest(key_type=1, key=OPEN),
            InitProducerIdRequest(transactional_id=f"{OPEN}-other", transaction_timeout_ms=10_000),
        ]
        for question in questions:
            for _ in range(300):
                if talk.ask("find", question, 1).error_code is ErrorCode.NONE:
                    break
                time.sleep(0.1)
            else:
                raise AssertionError(f"no answer to {question}")


def newest_versions(port: int) -> dict[int, int]:
    """The newest version of each API that a broker answers: ours knows some that Kafka 3.9 does not."""
    with contextlib.closing(Talk(port, "x", HOST)) as talk:
        answer = talk.ask("versions", blank(ApiVersionsRequest), 0)
        return {each.api_key: each.max_version for each in answer.api_keys}


def made(port: int, *names: str) -> None:
    """Let topics be there."""
    with contextlib.closing(Talk(port, "x", HOST)) as talk:
        for name in names:
            wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
            for _ in range(300):
                (topic,) = talk.ask("make", wanted, 8).topics
                if topic.error_code is ErrorCode.NONE and topic.partitions[0].error_code is ErrorCode.NONE:
                    break
                time.sleep(0.1)
            else:
                raise AssertionError(f"{name} has no leader")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("names", [(SHUT, OPEN), (OPEN, SHUT, "denied", "missing")], ids=" ".join)
def test_each_api_answers_a_limited_client_as_kafka_does(ours: int, kafka: int, names: tuple[str, ...]) -> None:
    told, newest = [], newest_versions(kafka)
    for port in (ours, kafka):
        made(port, OPEN, SHUT, "denied")
        coordinated(port)
        with contextlib.closing(Talk(port, "x", GUEST)) as talk:
            for request in requests_for(names):
                if not isinstance(request, ONLY_OURS):
                    last = newest.get(api_of(type(request)).key, -1)
                    for version in (each for each in versions_to_ask(request) if each <= last):
                        talk.ask("guest", in_version(request, version), version)
            told.append(talk.lines)
    differences = []
    for mine, theirs in zip(*told, strict=True):
        differences += [f"{mine[0]}: {each}" for each in unlike(unordered(mine[1]), unordered(theirs[1]))]
    assert not differences, "\n".join(differences[:100])
