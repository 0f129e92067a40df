"""DescribeAcls, CreateAcls, DeleteAcls: the rules by which the authorizer decides. Any broker takes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection, Sequence
from typing import Any

from kbroker.cluster.access_rules import AccessRules
from kbroker.controller.znode_operations import TooLarge, ZooKeeperError
from kbroker.controller.znodes import MalformedZnode
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import ALTER, DESCRIBE, on_cluster
from kbroker.handlers.registry import CloseConnection, handles
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.security import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from kbroker.replica.turns import Turn, Work, each_in_turns, in_turns, portions
from kbroker.security.acls import (
    CLUSTER_NAME,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    Entry,
    EntryFilters,
    Pattern,
    RuleFilter,
)
from kbroker.security.authorizer import Authorizer

log = logging.getLogger(__name__)

UNKNOWN, ANY = 0, 1

Matching = DeleteAclsResponse.DeleteAclsMatchingAcl
FilterResult = DeleteAclsResponse.DeleteAclsFilterResult


def _rules(services: Services) -> AccessRules:
    if services.rules is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    return services.rules


def _refuse_unknown(*codes: int) -> None:
    """What says of itself that it knows not what it says cannot be parsed by Kafka, either."""
    if UNKNOWN in codes:
        raise CloseConnection("its access rules contain unknown elements")


# --- DescribeAcls -------------------------------------------------------------------------------------------------


@handles(
    DescribeAclsRequest,
    on_cluster(DESCRIBE),
    ends_with_connection=True,
    asks_for_much=lambda request: request.resource_name_filter is None,
)
def describe_acls(
    services: Services, ctx: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse | Awaitable[DescribeAclsResponse]:
    """Tell the rules that match, as this broker knows them."""
    wanted = _filter(request)
    if wanted is None:
        return DescribeAclsResponse(error_code=ErrorCode.NONE, resources=[])
    return in_turns(_describe(_rules(services).authorizer, wanted))


def _describe(authorizer: Authorizer, wanted: RuleFilter) -> Work[DescribeAclsResponse]:
    resources = []
    only = wanted.only
    for pattern in authorizer.patterns() if only is None else (only,):
        yield
        if not wanted.takes(pattern):
            continue
        entries = []
        for entry in authorizer.entries(pattern):
            yield
            if wanted.takes_entry(entry):
                entries.append(entry)
        rules = []
        for entry in sorted(entries):
            yield
            rules.append(_described(entry))
        if rules:
            resources.append(
                DescribeAclsResponse.DescribeAclsResource(
                    resource_type=pattern.resource,
                    resource_name=pattern.name,
                    pattern_type=pattern.kind,
                    acls=rules,
                )
            )
    return DescribeAclsResponse(error_code=ErrorCode.NONE, resources=resources)


def _described(entry: Entry) -> DescribeAclsResponse.AclDescription:
    return DescribeAclsResponse.AclDescription(
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


def _filter(asked: Any) -> RuleFilter | None:
    """What a request asks for; None for codes that nobody knows: there are no such rules."""
    codes = asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type
    _refuse_unknown(*codes)
    try:
        return RuleFilter(
            AclResource(codes[0]),
            asked.resource_name_filter,
            AclPattern(codes[1]),
            asked.principal_filter,
            asked.host_filter,
            AclOperation(codes[2]),
            AclPermission(codes[3]),
        )
    except ValueError:
        return None


# --- CreateAcls ---------------------------------------------------------------------------------------------------


@handles(CreateAclsRequest, on_cluster(ALTER))
async def create_acls(services: Services, ctx: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Add rules; those that are there already are fine."""
    rules, turn = _rules(services), Turn()
    for creation in request.creations:
        await turn.end_if_over()
        codes = _codes(creation)
        _refuse_unknown(*codes)
        if ANY in codes or creation.resource_pattern_type == AclPattern.MATCH:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    errors: dict[int, KafkaError] = {}
    wanted: dict[Pattern, dict[int, Entry]] = {}
    for number, creation in enumerate(request.creations):
        await turn.end_if_over()
        rule = _rule(creation)
        if isinstance(rule, KafkaError):
            errors[number] = rule
        else:
            pattern, entry = rule
            wanted.setdefault(pattern, {})[number] = entry
    for pattern, entries in wanted.items():
        await turn.end_if_over()
        error = await _add(rules, pattern, entries.values())
        if error is not None:
            errors |= dict.fromkeys(entries, error)
    numbers = range(len(request.creations))
    return CreateAclsResponse(results=await each_in_turns(lambda number: _created(errors.get(number)), numbers))


def _codes(creation: CreateAclsRequest.AclCreation) -> tuple[int, int, int, int]:
    return (
        creation.resource_type,
        creation.resource_pattern_type,
        creation.operation,
        creation.permission_type,
    )


def _rule(creation: CreateAclsRequest.AclCreation) -> tuple[Pattern, Entry] | KafkaError:
    """Return the rule, or what is wrong with it."""
    name = creation.resource_name
    if creation.resource_type == AclResource.CLUSTER and name != CLUSTER_NAME:
        text = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        return KafkaError(ErrorCode.INVALID_REQUEST, text)
    if not name:
        return KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    try:
        pattern = Pattern(AclResource(creation.resource_type), AclPattern(creation.resource_pattern_type), name)
        operation, permission = AclOperation(creation.operation), AclPermission(creation.permission_type)
    except ValueError:
        return KafkaError(ErrorCode.INVALID_REQUEST, "ACL binding contains unknown elements")
    if "/" in name:
        return KafkaError(ErrorCode.INVALID_REQUEST, f"ACL binding contains invalid resource name: {name}")
    return pattern, Entry(creation.principal, creation.host, operation, permission)


async def _add(rules: AccessRules, pattern: Pattern, entries: Collection[Entry]) -> KafkaError | None:
    """One principal that is none fails all rules about its resources, as in Kafka."""
    if any(":" not in entry.principal for entry in entries):
        text = "expected a string in format principalType:principalName"
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
    try:
        await rules.add(pattern, entries)
    except (ZooKeeperError, MalformedZnode) as error:
        return _not_written(pattern, error)
    return None


def _not_written(pattern: Pattern, error: Exception) -> KafkaError:
    log.error("access rules about %s not changed: %r", pattern, error)
    why = f": they do not fit into ZooKeeper: {error}" if isinstance(error, TooLarge) else ""
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Failed to update the ACLs of {pattern}{why}")


def _created(error: KafkaError | None) -> CreateAclsResponse.AclCreationResult:
    if error is None:
        return CreateAclsResponse.AclCreationResult(error_code=ErrorCode.NONE)
    return CreateAclsResponse.AclCreationResult(error_code=error.code, error_message=error.message or None)


# --- DeleteAcls ---------------------------------------------------------------------------------------------------


@handles(DeleteAclsRequest, on_cluster(ALTER))
async def delete_acls(services: Services, ctx: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Remove the rules that match a filter; one that several match is listed under the first of them."""
    rules, turn = _rules(services), Turn()
    filters = await each_in_turns(_filter, request.filters)
    removed_by: list[list[Matching]] = [[] for _ in filters]
    outright, others = await asyncio.to_thread(_by_pattern, filters)
    for pattern in dict.fromkeys((*rules.authorizer.patterns(), *outright)):
        await turn.end_if_over()
        meant = dict(outright.get(pattern, {}))
        for portion in portions(others):
            meant.update((number, each) for number, each in portion if each.takes(pattern))
            await turn.end_if_over()
        if not meant:
            continue
        about = await asyncio.to_thread(EntryFilters, meant.items())
        error = None
        try:
            removed = await rules.remove(pattern, about)
        except (ZooKeeperError, MalformedZnode) as failure:
            error = _not_written(pattern, failure)
            removed = await asyncio.to_thread(sorted, rules.authorizer.entries(pattern))
        for entry in removed:
            await turn.end_if_over()
            first = about.first(entry)
            if first is not None:
                removed_by[first].append(_deleted(pattern, entry, error))
    return DeleteAclsResponse(filter_results=await each_in_turns(_result, removed_by))


def _result(removed: list[Matching]) -> FilterResult:
    return FilterResult(error_code=ErrorCode.NONE, matching_acls=removed)


def _by_pattern(
    filters: Sequence[RuleFilter | None],
) -> tuple[dict[Pattern, dict[int, RuleFilter]], list[tuple[int, RuleFilter]]]:
    """Those that name a pattern outright, which another broker may have made just now, and those to be compared."""
    outright: dict[Pattern, dict[int, RuleFilter]] = {}
    others: list[tuple[int, RuleFilter]] = []
    for number, each in enumerate(filters):
        if each is not None and each.only is not None:
            outright.setdefault(each.only, {})[number] = each
        elif each is not None:
            others.append((number, each))
    return outright, others


def _deleted(pattern: Pattern, entry: Entry, error: KafkaError | None) -> Matching:
    return Matching(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=pattern.resource,
        resource_name=pattern.name,
        pattern_type=pattern.kind,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
