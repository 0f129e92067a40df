"""Access rules: what is asked and read, and what a real Kafka makes of it."""

import asyncio
import time
from collections.abc import Callable

import pytest

from kbroker.client.acl_admin import AclAdmin
from kbroker.client.admin import Admin
from kbroker.client.errors import BrokerError, SecurityDisabledError
from kbroker.client.types import (
    AccessRule,
    AccessRuleFilter,
)
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.security import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from kbroker.protocol.schema import Message
from kbroker.security.acls import AclOperation, AclPattern, AclPermission, AclResource

RULE = AccessRule(AclResource.TOPIC, "t", "User:a", AclOperation.READ, AclPermission.DENY, "h", AclPattern.PREFIXED)


class Authorizer:
    """Stands in for a cluster with access rules: no broker here has them yet."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.code = code
        self.asked: list[Message] = []

    async def ask(self, request: Message) -> Message:
        self.asked.append(request)
        if isinstance(request, CreateAclsRequest):
            result = CreateAclsResponse.AclCreationResult(error_code=self.code, error_message="no")
            return CreateAclsResponse(results=[result] * len(request.creations))
        if isinstance(request, DescribeAclsRequest):
            one = DescribeAclsResponse.AclDescription(principal="User:a", host="h", operation=3, permission_type=2)
            resource = DescribeAclsResponse.DescribeAclsResource(
                resource_type=2, resource_name="t", pattern_type=4, acls=[one]
            )
            return DescribeAclsResponse(error_code=self.code, resources=[resource])
        match = DeleteAclsResponse.DeleteAclsMatchingAcl(
            error_code=ErrorCode.NONE, resource_type=2, resource_name="t", pattern_type=4, principal="User:a", host="h",
            operation=3, permission_type=2,
        )  # fmt: skip
        filtered = DeleteAclsResponse.DeleteAclsFilterResult(error_code=self.code, matching_acls=[match])
        return DeleteAclsResponse(filter_results=[filtered])


def admin_of(authorizer: Authorizer) -> AclAdmin:
    admin = AclAdmin()
    admin.cluster = authorizer  # type: ignore[assignment]
    return admin


async def test_rules_are_created_found_and_deleted() -> None:
    authorizer = Authorizer()
    admin = admin_of(authorizer)
    await admin.create_acls([RULE])
    assert await admin.describe_acls() == [RULE]
    assert await admin.delete_acls([AccessRuleFilter(AclResource.TOPIC, "t")]) == [RULE]
    created, described, deleted = authorizer.asked
    assert isinstance(created, CreateAclsRequest)
    assert (created.creations[0].resource_pattern_type, created.creations[0].permission_type) == (4, 2)
    assert isinstance(described, DescribeAclsRequest)
    assert (described.resource_type_filter, described.resource_name_filter, described.operation) == (1, None, 1)
    assert isinstance(deleted, DeleteAclsRequest)
    assert (deleted.filters[0].resource_name_filter, deleted.filters[0].pattern_type_filter) == ("t", 1)


async def test_refusals_are_raised() -> None:
    admin = admin_of(Authorizer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    for call in (admin.create_acls([RULE]), admin.describe_acls(), admin.delete_acls([AccessRuleFilter()])):
        with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await call


@pytest.mark.slow
async def test_a_cluster_without_an_authorizer_says_so(kafka_bootstrap: str) -> None:
    async with Admin(kafka_bootstrap) as admin:
        with pytest.raises(SecurityDisabledError):
            await admin.describe_acls()
        with pytest.raises(SecurityDisabledError):
            await admin.create_acls([RULE])


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_rules_are_kept_by_a_kafka_with_an_authorizer(kafka_in_turn: Callable[..., str]) -> None:
    authorizer = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"
    bootstrap = kafka_in_turn("start", authorizer, "super.users=User:ANONYMOUS")
    read = AccessRule(AclResource.TOPIC, "t", "User:a", AclOperation.READ)
    rules = [read, RULE, AccessRule(AclResource.GROUP, "g", "User:b", AclOperation.ALL)]
    async with Admin(bootstrap) as admin:
        await admin.create_acls(rules)
        assert await until_there_are(admin, 3) == set(rules)
        assert await admin.describe_acls(AccessRuleFilter(AclResource.GROUP)) == rules[2:]
        assert await admin.describe_acls(AccessRuleFilter(principal="User:nobody")) == []
        found = await admin.describe_acls(AccessRuleFilter(AclResource.TOPIC, "tuna", pattern=AclPattern.MATCH))
        assert found == [RULE], "its prefix"
        assert await admin.delete_acls([AccessRuleFilter(AclResource.TOPIC, permission=AclPermission.DENY)]) == [RULE]
        assert await until_there_are(admin, 2) == {read, rules[2]}
        with pytest.raises(BrokerError, match="INVALID_REQUEST"):
            await admin.create_acls([AccessRule(AclResource.TOPIC, "", "User:a", AclOperation.READ)])


async def until_there_are(admin: Admin, count: int) -> set[AccessRule]:
    """A broker hears of rules from ZooKeeper."""
    deadline = time.monotonic() + 60
    while len(found := await admin.describe_acls()) != count:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.1)
    return set(found)
