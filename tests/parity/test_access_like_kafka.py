"""The same access rules and the same requests of somebody whom they limit: the answers are those of Kafka 3.9.2.

The rules are written by our code before either broker starts. Who asks comes from an address of their own.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.free_ports import free_ports
from kbroker.handlers.refusals import blank
from kbroker.network.limits import BROKER_REQUESTS
from kbroker.protocol.apis import api_of
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.api_versions import ApiVersionsRequest
from kbroker.protocol.messages.groups import DeleteGroupsRequest, FindCoordinatorRequest
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.security import (
    CreateDelegationTokenRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from kbroker.protocol.messages.transactions import AddPartitionsToTxnRequest, InitProducerIdRequest
from kbroker.security.acls import ANONYMOUS, AclOperation, AclPattern, AclPermission, AclResource, Entry, Pattern
from kbroker.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from kbroker.security.scram import ScramClient
from tests.fixtures.brokers import START_TIMEOUT, broker_properties, forget
from tests.fixtures.kafka import running_kafka
from tests.fixtures.zookeeper import fresh_chroot, remove_chroot
from tests.kbroker.handlers.test_access import AUTHORIZER, GUEST, HOST, everything_from, write_rules
from tests.parity.access_requests import ONLY_OURS, in_version, requests_for, versions_to_ask
from tests.parity.transcript import Talk, unlike

pytestmark = pytest.mark.compat

CLIENTS = "listener.name.clients"
PASSWORD = "kept-secret"
SETTINGS = {
    "num.partitions": "1",
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    **AUTHORIZER,
    "super.users": "User:root",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    f"{CLIENTS}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    f"{CLIENTS}.plain.sasl.jaas.config": (
        f'{PLAIN_MODULE} required user_alice="{PASSWORD}" user_root="{PASSWORD}" user_nobody="{PASSWORD}";'
    ),
    f"{CLIENTS}.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    "delegation.token.secret.key": "of both",
    "kbroker.brokers.on.any.listener": "true",
}
OPEN, SHUT = "open", "shut"
ROOT = "root"
"""May do all; gives the brokers no orders, for they would obey."""
OF_BROKERS = {*BROKER_REQUESTS, api_of(AddPartitionsToTxnRequest).key}
"""Keys of APIs. AddPartitionsToTxn for no transaction is a broker's, too, and Kafka never answers it."""
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
ALL, DESCRIBE = AclOperation.ALL, AclOperation.DESCRIBE
KINDS = (AclResource.TOPIC, AclResource.GROUP, AclResource.TRANSACTIONAL_ID)
NOBODY, LOOKER, BY_PREFIX, DENIED = (f"127.0.0.{number}" for number in (3, 4, 5, 6))
"""Addresses of others without a name: with no rule, with DESCRIBE of everything, with all by a prefix, with all but
what is denied.
"""


def rules() -> list[tuple[Pattern, Entry]]:
    """The host may do everything; guests much with what is open, by name and by prefix, nothing with what is shut."""
    found = everything_from(HOST)
    for kind in KINDS:
        for pattern, name in ((AclPattern.LITERAL, OPEN), (AclPattern.PREFIXED, f"{OPEN}-")):
            found.append((Pattern(kind, pattern, name), Entry(ANONYMOUS, GUEST, ALL, ALLOW)))
        every, one = Pattern(kind, AclPattern.LITERAL, "*"), Pattern(kind, AclPattern.LITERAL, OPEN)
        found.append((every, Entry(ANONYMOUS, LOOKER, DESCRIBE, ALLOW)))
        found.append((Pattern(kind, AclPattern.PREFIXED, OPEN), Entry(ANONYMOUS, BY_PREFIX, ALL, ALLOW)))
        found.append((every, Entry(ANONYMOUS, DENIED, ALL, ALLOW)))
        found.append((one, Entry(ANONYMOUS, DENIED, ALL, DENY)))
        found.append((one, Entry("User:alice", "*", ALL, ALLOW)))
    cluster = Pattern(AclResource.CLUSTER, AclPattern.LITERAL, "kafka-cluster")
    found.append((cluster, Entry(ANONYMOUS, LOOKER, DESCRIBE, ALLOW)))
    shut = Pattern(AclResource.TOPIC, AclPattern.LITERAL, SHUT)
    found.append((shut, Entry(ANONYMOUS, GUEST, AclOperation.ALTER_CONFIGS, ALLOW)))
    denied = Pattern(AclResource.TOPIC, AclPattern.LITERAL, "denied")
    found.append((denied, Entry(ANONYMOUS, GUEST, ALL, ALLOW)))
    found.append((denied, Entry("User:*", GUEST, AclOperation.READ, DENY)))
    return found


@dataclass(frozen=True)
class Broker:
    """Where one of the two is reached, without a login and with one."""

    port: int
    clients: int

    @property
    def properties(self) -> dict[str, str]:
        addresses = f"PLAINTEXT://127.0.0.1:{self.port},CLIENTS://127.0.0.1:{self.clients}"
        return {**SETTINGS, "listeners": addresses}


@pytest.fixture(scope="module")
def ours(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    address, broker = fresh_chroot(zookeeper_server), Broker(*free_ports(2))
    asyncio.run(write_rules(address.connect_string, rules()))
    properties = broker_properties(address.connect_string, broker.properties)
    process = BrokerProcess(1, tmp_path_factory.mktemp("ours"), broker.port, properties)
    try:
        process.start().wait_until_ready(START_TIMEOUT)
        yield broker
    finally:
        forget(process)
        remove_chroot(address)


@pytest.fixture(scope="module")
def kafka(zookeeper_server: str, kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    address, broker = fresh_chroot(zookeeper_server), Broker(*free_ports(2))
    asyncio.run(write_rules(address.connect_string, rules()))
    folder: Path = tmp_path_factory.mktemp("kafka")
    with running_kafka(folder, address.connect_string, kafka_class_path, broker.properties, broker.port):
        yield broker
    remove_chroot(address)


# -- who asks ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def talking(broker: Broker, who: str) -> Iterator[Talk]:
    """Somebody who comes from an address, or has logged in by name, or by a token of alice's."""
    if who[0].isdigit():
        talk = Talk(broker.port, "x", who)
    elif who == "token":
        with talking(broker, "alice") as alice:
            request = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
            token = alice.ask("token", request, 1)
        talk = Talk(broker.clients, "x", HOST, partial(by_token, token=token))
    else:
        talk = Talk(broker.clients, "x", HOST, partial(by_password, user=who))
    with contextlib.closing(talk):
        yield talk


def by_password(talk: Talk, user: str) -> None:
    """Log in by PLAIN."""
    assert talk.exchange(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code is ErrorCode.NONE
    answer = talk.exchange(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{PASSWORD}".encode()), 1)
    assert answer.error_code is ErrorCode.NONE


def by_token(talk: Talk, token: Any) -> None:
    """Log in by SCRAM, with a token for a password: brokers hear of a new one a little later."""
    password = base64.b64encode(bytes(token.hmac)).decode()
    client = ScramClient("SCRAM-SHA-256", token.token_id, password, "nonce", {"tokenauth": "true"})
    assert talk.exchange(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code is ErrorCode.NONE
    given: bytes | None = client.first()
    while given is not None:
        answer = talk.exchange(SaslAuthenticateRequest(auth_bytes=given), 1)
        assert answer.error_code is ErrorCode.NONE, answer.error_message
        given = client.step(bytes(answer.auth_bytes))


# -- the comparison ---------------------------------------------------------------------------------------------------


NAMES = (
    "name",
    "topic",
    "topic_name",
    "group_id",
    "key",
    "transactional_id",
    "resource_type",
    "resource_name",
    "partition_index",
    "principal_name",
    "token_requester_principal_name",
)
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


def coordinated(broker: Broker) -> None:
    """Let there be coordinators that have loaded what they hold, and no group.

    A commit that Kafka refuses in the end leaves an empty group behind, for ten minutes; here it leaves none.
    """
    with contextlib.closing(Talk(broker.port, "x", HOST)) as talk:
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
        (deleted,) = talk.ask("delete", DeleteGroupsRequest(groups_names=[OPEN]), 0).results
        assert deleted.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)


def newest_versions(broker: Broker) -> dict[int, int]:
    """The newest version of each API that a broker answers: ours knows some that Kafka 3.9 does not."""
    with contextlib.closing(Talk(broker.port, "x", HOST)) as talk:
        answer = talk.ask("versions", blank(ApiVersionsRequest), 0)
        return {each.api_key: each.max_version for each in answer.api_keys}


def made(broker: Broker, *names: str) -> None:
    """Let topics be there."""
    with contextlib.closing(Talk(broker.port, "x", HOST)) as talk:
        for name in names:
            wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
            for _ in range(300):
                (topic,) = talk.ask("make", wanted, 8).topics
                if topic.error_code is ErrorCode.NONE and topic.partitions[0].error_code is ErrorCode.NONE:
                    break
                time.sleep(0.1)
            else:
                raise AssertionError(f"{name} has no leader")


def compare(ours: Broker, kafka: Broker, who: str, names: tuple[str, ...]) -> None:
    """Ask both for everything in all versions."""
    told, newest = [], newest_versions(kafka)
    for broker in (ours, kafka):
        made(broker, OPEN, SHUT, "denied")
        coordinated(broker)
        with talking(broker, who) as talk:
            for request in requests_for(names):
                key = api_of(type(request)).key
                if not isinstance(request, ONLY_OURS) and (who != ROOT or key not in OF_BROKERS):
                    last = newest.get(key, -1)
                    for version in (each for each in versions_to_ask(request) if each <= last):
                        talk.ask(who, in_version(request, version), version)
            told.append(talk.lines)
    differences = []
    for mine, theirs in zip(*told, strict=True):
        differences += [f"{mine[0]}: {each}" for each in unlike(unordered(mine[1]), unordered(theirs[1]))]
    assert not differences, "\n".join(differences[:100])


@pytest.mark.timeout(400)
@pytest.mark.parametrize("names", [(SHUT, OPEN), (OPEN, SHUT, "denied", "missing")], ids=" ".join)
def test_each_api_answers_a_limited_client_as_kafka_does(ours: Broker, kafka: Broker, names: tuple[str, ...]) -> None:
    compare(ours, kafka, GUEST, names)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "who",
    [NOBODY, LOOKER, BY_PREFIX, DENIED, "alice", "nobody", "token", ROOT],
    ids=["no rule", "describe", "prefix", "denied", "by password", "by password, no rule", "by token", "super user"],
)
def test_each_api_answers_each_kind_of_client_as_kafka_does(ours: Broker, kafka: Broker, who: str) -> None:
    compare(ours, kafka, who, (SHUT, OPEN))
