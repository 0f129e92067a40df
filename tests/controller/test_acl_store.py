"""Access rules in ZooKeeper, in Kafka's form."""

from __future__ import annotations

import asyncio
import json

import pytest

from kbroker.controller.acl_store import acl_path, decode_acls, encode_acls
from kbroker.controller.znode_operations import Stat
from kbroker.controller.znodes import MalformedZnode
from kbroker.security.acls import AclOperation, AclPattern, AclPermission, AclResource, Entry, Pattern
from tests.controller.conftest import Connect, until

LITERAL = Pattern(AclResource.TRANSACTIONAL_ID, AclPattern.LITERAL, "pay:1")
PREFIXED = Pattern(AclResource.TOPIC, AclPattern.PREFIXED, "pay-")
READ = Entry("User:a", "*", AclOperation.READ, AclPermission.ALLOW)
WRITE = Entry("User:b", "10.0.0.1", AclOperation.DESCRIBE_CONFIGS, AclPermission.DENY)


def test_rules_have_kafkas_paths_and_words() -> None:
    assert acl_path(LITERAL) == "/kafka-acl/TransactionalId/pay:1"
    assert acl_path(PREFIXED) == "/kafka-acl-extended/prefixed/Topic/pay-"
    data = encode_acls([WRITE])
    acl = {"principal": "User:b", "permissionType": "Deny", "operation": "DescribeConfigs", "host": "10.0.0.1"}
    assert json.loads(data) == {"version": 1, "acls": [acl]}
    assert decode_acls(data, "p") == {WRITE}
    assert decode_acls(None, "p") == frozenset()


@pytest.mark.parametrize("data", [b'{"version":2,"acls":[]}', b"[]", b"x", b'{"version":1,"acls":[{"principal":"a"}]}'])
def test_rules_that_cannot_be_read_are_no_rules(data: bytes) -> None:
    with pytest.raises(MalformedZnode, match="p"):
        decode_acls(data, "p")


async def test_a_change_is_written_told_and_read_by_others(connect: Connect) -> None:
    one, other = await connect(), await connect()
    await one.ensure_acl_paths()
    await one.ensure_acl_paths()
    told: list[Pattern] = []

    async def take(pattern: Pattern) -> None:
        told.append(pattern)

    await other.watch_acl_changes(take)
    for pattern in (LITERAL, PREFIXED):
        both = frozenset({READ, WRITE})
        assert await one.change_acls(pattern, lambda present: present | {READ, WRITE}) == (frozenset(), both)
        assert await one.change_acls(pattern, lambda present: present | {READ}) == (both, both)
    await until(lambda: len(told) == 2)
    assert set(told) == {LITERAL, PREFIXED}
    assert await other.read_all_acls() == {LITERAL: {READ, WRITE}, PREFIXED: {READ, WRITE}}
    literal, _ = await one.get("/kafka-acl-changes/acl_changes_0000000000")
    assert literal == b"TRANSACTIONAL_ID:pay:1"
    extended, _ = await one.get("/kafka-acl-extended-changes/acl_changes_0000000000")
    expected = {"version": 1, "resourceType": "TOPIC", "name": "pay-", "patternType": "PREFIXED"}
    assert json.loads(extended or b"") == expected


async def test_a_node_without_rules_is_removed(connect: Connect) -> None:
    session = await connect()
    await session.ensure_acl_paths()
    await session.change_acls(LITERAL, lambda present: present | {READ})
    assert await session.change_acls(LITERAL, lambda present: frozenset()) == (frozenset({READ}), frozenset())
    assert await session.exists(acl_path(LITERAL)) is None
    assert await session.read_acls(LITERAL) == (frozenset(), None)


async def test_changes_at_the_same_time_lose_nothing(connect: Connect) -> None:
    sessions = [await connect() for _ in range(3)]
    await sessions[0].ensure_acl_paths()
    entries = [READ._replace(principal=f"User:{number}") for number in range(6)]
    changes = [
        sessions[number % 3].change_acls(PREFIXED, lambda present, new=entry: present | {new})  # type: ignore[misc]
        for number, entry in enumerate(entries)
    ]
    await asyncio.gather(*changes)
    assert (await sessions[0].read_acls(PREFIXED))[0] == set(entries)


async def test_a_change_that_was_written_without_an_answer_is_told_all_the_same(connect: Connect) -> None:
    session, other = await connect(), await connect()
    await session.ensure_acl_paths()
    calls = []

    def addition(present: frozenset[Entry]) -> frozenset[Entry]:
        calls.append(present)
        return present | {READ}

    await session.change_acls(LITERAL, lambda present: present | {WRITE})
    set_data = session.set

    async def without_an_answer(path: str, data: bytes | None, version: int = -1) -> Stat:
        await set_data(path, data, version)
        return await set_data(path, data, version)  # the session sends again what got no answer

    session.set = without_an_answer  # type: ignore[method-assign]
    await session.change_acls(LITERAL, addition)
    assert calls == [{WRITE}, {READ, WRITE}]
    assert len(await other.children("/kafka-acl-changes")) == 2


async def test_types_of_the_future_are_left_out(connect: Connect) -> None:
    session = await connect()
    await session.ensure_acl_paths()
    await session.create_recursive("/kafka-acl/Sandwich/ham", b"?")
    await session.change_acls(LITERAL, lambda present: present | {READ})
    assert await session.read_all_acls() == {LITERAL: {READ}}
