"""DescribeAcls, CreateAcls and DeleteAcls at a broker with an authorizer, and at one without."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.controller.znode_operations import TooLarge
from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.free_ports import free_ports
from kbroker.handlers.acls import _add, _by_pattern
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.security import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from kbroker.security.acls import AclPattern, AclResource, Pattern, RuleFilter
from tests.fixtures.brokers import START_TIMEOUT, broker_properties, forget
from tests.fixtures.zookeeper import fresh_chroot, remove_chroot
from tests.kbroker.asking import Ask, asking

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER = 2, 3, 4
READ, WRITE, ALL = 3, 4, 2
DENY, ALLOW = 2, 3
NONE, INVALID, UNKNOWN = ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.fixture(scope="module")
def guarded(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with an authorizer, where everybody is a super user."""
    address = fresh_chroot(zookeeper_server)
    authorizer = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    properties = broker_properties(address.connect_string, authorizer)
    process = BrokerProcess(1, tmp_path_factory.mktemp("guarded"), free_ports(1)[0], properties)
    try:
        yield process.start().wait_until_ready(START_TIMEOUT)
    finally:
        forget(process)
        remove_chroot(address)


def creation(name: str, **more: Any) -> CreateAclsRequest.AclCreation:
    values: dict[str, Any] = {
        "resource_type": TOPIC,
        "resource_pattern_type": LITERAL,
        "principal": "User:a",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return CreateAclsRequest.AclCreation(resource_name=name, **(values | more))


def filtered(made: Any, name: str | None, **more: Any) -> Any:
    values = {
        "resource_type_filter": TOPIC,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return made(resource_name_filter=name, **(values | more))


async def create(ask: Ask, *creations: Any) -> list[ErrorCode]:
    answer = await ask(CreateAclsRequest(creations=list(creations)))
    return [result.error_code for result in answer.results]


async def describe(ask: Ask, name: str | None, **more: Any) -> dict[tuple[str, int], list[tuple[str, int]]]:
    answer = await ask(filtered(DescribeAclsRequest, name, **more))
    assert answer.error_code is NONE
    return {
        (resource.resource_name, resource.pattern_type): [(acl.principal, acl.operation) for acl in resource.acls]
        for resource in answer.resources
    }


async def delete(ask: Ask, *filters: Any) -> list[list[tuple[str, int]]]:
    answer = await ask(DeleteAclsRequest(filters=list(filters)))
    assert all(result.error_code is NONE for result in answer.filter_results)
    return [[(acl.resource_name, acl.operation) for acl in result.matching_acls] for result in answer.filter_results]


async def test_rules_are_made_found_and_removed(guarded: BrokerProcess) -> None:
    async with asking(guarded) as ask:
        rules = [creation("a-1"), creation("a-1", operation=WRITE), creation("a-", resource_pattern_type=PREFIXED)]
        assert await create(ask, *rules, creation("a-1")) == [NONE] * 4
        assert await describe(ask, "a-1") == {("a-1", LITERAL): [("User:a", READ), ("User:a", WRITE)]}
        found = await describe(ask, "a-1", pattern_type_filter=MATCH)
        assert set(found) == {("a-1", LITERAL), ("a-", PREFIXED)}
        assert await describe(ask, "a-1", operation=ALL) == {}
        assert await describe(ask, "a-1", principal_filter="User:b") == {}
        made = DeleteAclsRequest.DeleteAclsFilter
        filters = [filtered(made, "a-1", operation=READ), filtered(made, "a-1"), filtered(made, "nothing")]
        assert await delete(ask, *filters) == [[("a-1", READ)], [("a-1", WRITE)], []]
        assert await delete(ask, filtered(made, "a-1", pattern_type_filter=MATCH)) == [[("a-", READ)]]
        assert await describe(ask, None) == {}


async def test_each_rule_that_cannot_be_says_why(guarded: BrokerProcess) -> None:
    async with asking(guarded) as ask:
        codes = await create(
            ask,
            creation("mine", resource_type=CLUSTER),
            creation(""),
            creation("a/b"),
            creation("c", resource_type=77),
            creation("c", operation=99),
            creation("b"),
        )
        assert codes == [INVALID] * 5 + [NONE]
        assert await create(ask, creation("p", principal="nobody"), creation("p"), creation("b")) == [
            UNKNOWN,
            UNKNOWN,
            NONE,
        ]
        for any_code in ({"resource_type": ANY}, {"resource_pattern_type": MATCH}, {"operation": ANY}):
            assert await create(ask, creation("q"), creation("q", **any_code)) == [UNKNOWN, UNKNOWN]
        assert set(await describe(ask, None)) == {("b", LITERAL)}
        assert await describe(ask, None, resource_type_filter=77) == {}


def test_a_filter_that_names_a_pattern_outright_finds_what_this_broker_does_not_know_yet() -> None:
    known = RuleFilter(AclResource.TOPIC, "new", AclPattern.LITERAL)
    broad = RuleFilter(AclResource.TOPIC, "new", AclPattern.MATCH)
    pattern = Pattern(AclResource.TOPIC, AclPattern.LITERAL, "new")
    assert _by_pattern([None, known, broad, known]) == ({pattern: {1: known, 3: known}}, [(2, broad)])


async def test_codes_that_say_they_are_unknown_end_the_connection(guarded: BrokerProcess) -> None:
    for request in (
        CreateAclsRequest(creations=[creation("t", operation=0)]),
        filtered(DescribeAclsRequest, "t", permission_type=0),
        DeleteAclsRequest(filters=[filtered(DeleteAclsRequest.DeleteAclsFilter, "t", resource_type_filter=0)]),
    ):
        async with asking(guarded) as ask:
            with pytest.raises(ConnectionError):
                await ask(request)


async def test_without_an_authorizer_there_are_no_rules(ask: Ask) -> None:
    disabled = ErrorCode.SECURITY_DISABLED
    assert await create(ask, creation("t"), creation("u")) == [disabled, disabled]
    assert (await ask(filtered(DescribeAclsRequest, None))).error_code is disabled
    answer = await ask(DeleteAclsRequest(filters=[filtered(DeleteAclsRequest.DeleteAclsFilter, None)]))
    assert [result.error_code for result in answer.filter_results] == [disabled]


async def test_rules_that_zookeeper_cannot_take_are_refused_with_the_reason() -> None:
    async def refuse(pattern: Pattern, entries: object) -> None:
        raise TooLarge("/kafka-acl/Topic/t: 4200000 bytes are more than ZooKeeper takes at once (jute.maxbuffer)")

    rules: Any = SimpleNamespace(add=refuse)
    refused = await _add(rules, Pattern(AclResource.TOPIC, AclPattern.LITERAL, "t"), [])
    assert refused is not None
    assert "4200000 bytes" in refused.message
