"""Administration of access rules (Kafka's ACLs)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from kbroker.client.cluster import Cluster
from kbroker.client.errors import ConfigurationError, error_for
from kbroker.client.types import AccessRule, AccessRuleFilter
from kbroker.client.values import instance, listed, text
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.security import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from kbroker.security.acls import AclOperation, AclPattern, AclPermission, AclResource

R = TypeVar("R", AccessRule, AccessRuleFilter)
ENUMERATIONS = {
    "resource": AclResource,
    "operation": AclOperation,
    "permission": AclPermission,
    "pattern": AclPattern,
}


FOR_FILTERS = frozenset({"ANY", "MATCH"})


class AclAdmin:
    """Admin's calls about access rules; a cluster without an authorizer raises SecurityDisabledError."""

    cluster: Cluster

    async def create_acls(self, rules: Iterable[AccessRule]) -> None:
        """Add rules; raises for the first that cannot be."""
        wanted = [_certain(_checked(AccessRule, rule)) for rule in listed("rules", rules)]
        creations = [
            CreateAclsRequest.AclCreation(
                resource_type=rule.resource,
                resource_name=rule.name,
                resource_pattern_type=rule.pattern,
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
            for rule in wanted
        ]
        answer = await self.cluster.ask(CreateAclsRequest(creations=creations))
        for rule, result in zip(wanted, answer.results, strict=True):
            if result.error_code is not ErrorCode.NONE:
                raise error_for(result.error_code, f"{rule}: {result.error_message or 'refused'}")

    async def describe_acls(self, which: AccessRuleFilter = AccessRuleFilter()) -> list[AccessRule]:  # noqa: B008
        """Return the rules that match, by default all."""
        answer = await self.cluster.ask(DescribeAclsRequest(**_filter_fields(_checked(AccessRuleFilter, which))))
        if answer.error_code is not ErrorCode.NONE:
            raise error_for(answer.error_code, answer.error_message)
        return [
            _rule(resource.resource_type, resource.resource_name, resource.pattern_type, item)
            for resource in answer.resources
            for item in resource.acls
        ]

    async def delete_acls(self, filters: Iterable[AccessRuleFilter]) -> list[AccessRule]:
        """Delete the rules that match one of the filters; returns them."""
        checked = [_checked(AccessRuleFilter, which) for which in listed("filters", filters)]
        wanted = [DeleteAclsRequest.DeleteAclsFilter(**_filter_fields(which)) for which in checked]
        answer = await self.cluster.ask(DeleteAclsRequest(filters=wanted))
        deleted = []
        for result in answer.filter_results:
            for item in (result, *result.matching_acls):
                if item.error_code is not ErrorCode.NONE:
                    raise error_for(item.error_code, item.error_message)
            deleted += [_rule(i.resource_type, i.resource_name, i.pattern_type, i) for i in result.matching_acls]
        return deleted


def _checked(kind: type[R], given: object) -> R:
    """Return a rule or a filter whose fields are what they should be: as texts or numbers they could mean another."""
    rule = instance("what is asked for", kind, given)
    for name, wanted in ENUMERATIONS.items():
        instance(f"{kind.__name__}.{name}", wanted, getattr(rule, name))
    for name in ("name", "principal", "host"):
        value = getattr(rule, name)
        if value is not None or kind is AccessRule:
            text(f"{kind.__name__}.{name}", value)
    return rule


def _certain(rule: AccessRule) -> AccessRule:
    """Return a rule that says one thing: brokers give no reason where they refuse what is for filters."""
    for name in ENUMERATIONS:
        if getattr(rule, name).name in FOR_FILTERS:
            raise ConfigurationError(f"AccessRule.{name}={getattr(rule, name).name} is for filters, not for a rule")
    kind, colon, who = rule.principal.partition(":")
    if not (kind and colon and who):
        raise ConfigurationError(f"{rule.principal!r} is no principal: one is TYPE:NAME, as User:alice")
    return rule


def _filter_fields(which: AccessRuleFilter) -> dict[str, Any]:
    """Return the fields by which both DescribeAcls and DeleteAcls say what they mean."""
    return {
        "resource_type_filter": which.resource,
        "resource_name_filter": which.name,
        "pattern_type_filter": which.pattern,
        "principal_filter": which.principal,
        "host_filter": which.host,
        "operation": which.operation,
        "permission_type": which.permission,
    }


def _rule(resource: int, name: str, pattern: int, item: Any) -> AccessRule:
    return AccessRule(
        AclResource(resource),
        name,
        item.principal,
        AclOperation(item.operation),
        AclPermission(item.permission_type),
        item.host,
        AclPattern(pattern),
    )
