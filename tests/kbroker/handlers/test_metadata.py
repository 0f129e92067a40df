"""Metadata in all versions on a real broker."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.config.broker_config import read_broker_config
from kbroker.handlers.metadata import _create_and_answer
from kbroker.handlers.topic_descriptions import TOPIC_OPERATIONS
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.security.acls import AclOperation, AclPattern, AclPermission, AclResource, Entry, Pattern
from kbroker.security.authorizer import Authorizer
from tests.fixtures.others import Others
from tests.kbroker.asking import Ask
from tests.kbroker.handlers.test_topics import create, topic


def wanted(name: str | None = None, topic_id: bytes = ZERO_UUID) -> Any:
    return MetadataRequest.MetadataRequestTopic(topic_id=topic_id, name=name)


@pytest.mark.parametrize("version", range(13))
async def test_every_version_lists_broker_controller_and_topic(ask: Ask, topic_name: str, version: int) -> None:
    await create(ask, topic(topic_name, 2))
    answer = await ask(MetadataRequest(topics=[wanted(topic_name)]), version)
    assert [broker.node_id for broker in answer.brokers] == [1]
    if version >= 1:
        assert answer.controller_id == 1
    if version >= 2:
        assert len(answer.cluster_id) == 22
    assert answer.topics[0].error_code is ErrorCode.NONE
    assert [p.leader_id for p in answer.topics[0].partitions] == [1, 1]


async def test_null_lists_all_topics_and_an_empty_list_none(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name))
    everything = await ask(MetadataRequest(topics=None), 12)
    assert topic_name in [each.name for each in everything.topics]
    assert (await ask(MetadataRequest(topics=[]), 12)).topics == []
    oldest = await ask(MetadataRequest(topics=[]), 0)
    assert topic_name in [each.name for each in oldest.topics]


async def test_a_topic_named_twice_is_described_once(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name))
    answer = await ask(MetadataRequest(topics=[wanted(topic_name), wanted(topic_name)]), 12)
    assert [each.name for each in answer.topics] == [topic_name]


async def test_a_topic_is_found_by_its_id(ask: Ask, topic_name: str) -> None:
    (created,) = await create(ask, topic(topic_name))
    answer = await ask(MetadataRequest(topics=[wanted(None, created.topic_id)]), 12)
    assert answer.topics[0].name == topic_name


async def test_an_unknown_id_is_named_in_the_answer(ask: Ask) -> None:
    answer = await ask(MetadataRequest(topics=[wanted(None, bytes(15) + b"\x09")]), 12)
    assert answer.topics[0].error_code is ErrorCode.UNKNOWN_TOPIC_ID
    assert answer.topics[0].topic_id == bytes(15) + b"\x09"


async def test_ids_are_refused_before_version_12(ask: Ask) -> None:
    answer = await ask(MetadataRequest(topics=[wanted("a", bytes(15) + b"\x09")]), 10)
    assert answer.topics[0].error_code is ErrorCode.INVALID_REQUEST


async def test_a_missing_topic_is_created_when_that_is_wanted(ask: Ask, topic_name: str) -> None:
    request = MetadataRequest(topics=[wanted(topic_name)], allow_auto_topic_creation=True)
    first = (await ask(request, 12)).topics[0]
    assert first.error_code is ErrorCode.LEADER_NOT_AVAILABLE
    for _ in range(100):
        found = (await ask(request, 12)).topics[0]
        if found.error_code is ErrorCode.NONE:
            break
        await asyncio.sleep(0.05)
    assert len(found.partitions) == 1


async def test_a_missing_topic_is_unknown_when_nobody_wants_it_created(ask: Ask, topic_name: str) -> None:
    request = MetadataRequest(topics=[wanted(topic_name)], allow_auto_topic_creation=False)
    assert (await ask(request, 12)).topics[0].error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_invalid_name_is_never_created(ask: Ask) -> None:
    answer = await ask(MetadataRequest(topics=[wanted("bad name")], allow_auto_topic_creation=True), 12)
    assert answer.topics[0].error_code is ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_authorised_operations_are_told_on_request(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name))
    request = MetadataRequest(
        topics=[wanted(topic_name)],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    answer = await ask(request, 10)
    assert answer.cluster_authorized_operations == 8096
    assert answer.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
    plain = await ask(MetadataRequest(topics=[wanted(topic_name)]), 10)
    assert plain.topics[0].topic_authorized_operations == -(1 << 31)


async def test_others_have_their_turns_while_many_topics_may_not_be_made(others: Others, short_turns: None) -> None:
    many = 200
    entry = Entry("User:ann", "*", AclOperation.DESCRIBE, AclPermission.ALLOW)
    authorizer = Authorizer()
    authorizer.replace(Pattern(AclResource.TOPIC, AclPattern.LITERAL, "*"), [entry])
    authority = authorizer.authority("User:ann", "10.0.0.1")
    cache: Any = SimpleNamespace(topics={}, names=frozenset(), brokers={}, controller_id=None, under_way=set())
    config = read_broker_config({"zookeeper.connect": "z:1", "broker.id": "1"})
    parts: Any = SimpleNamespace(metadata=cache, config=config, cluster_id="c")
    ctx: Any = SimpleNamespace(api_version=12, authority=authority, listener="L")
    missing = [f"t{number}" for number in range(many)]
    before = others.turns
    request = MetadataRequest(topics=list(map(wanted, missing)), allow_auto_topic_creation=True)
    answer = await _create_and_answer(parts, ctx, request, {}, missing)
    assert others.turns - before >= many // 2
    assert len(answer.topics) == many
