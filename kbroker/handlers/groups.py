"""Classic consumer groups: joining, heartbeats, leaving; describing, listing and deleting groups."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Generator, Iterable
from functools import partial
from typing import Any, TypeVar

from kbroker.coordinator.group import Group
from kbroker.coordinator.group_coordinator import new_member_id
from kbroker.coordinator.group_events import JoinAnswer, JoinRequest, Leaving, SyncAnswer
from kbroker.coordinator.group_life import GroupState
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import CLUSTER, DELETE, DESCRIBE, GROUP, READ, TOPIC, each, inside, on_group
from kbroker.handlers.registry import handles
from kbroker.protocol.codec import ElementWriter
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kbroker.protocol.schema import Message
from kbroker.replica.turns import Turn, Work, in_turns, portions
from kbroker.security.authorizer import Everything
from kbroker.security.limited_lines import LimitedLines

log = logging.getLogger(__name__)
_refusals = LimitedLines(log, "members that name too many protocols")

FIRST_MEMBER_ID_REQUIRED, FIRST_PROTOCOL_TYPE, FIRST_SKIP_ASSIGNMENT = 4, 7, 9
MOST_PROTOCOLS = 100
"""Assignors that a member may name: each counts for all members. Clients name two or three."""
MAX_REASON = 255
"""Characters of a member's own reason that are kept."""
FIRST_SYNC_PROTOCOL = 5
FIRST_LEAVE_MANY = 3
_NAMED_TOPIC = re.compile(r"\btopic (?P<name>[A-Za-z0-9._-]+…?)")
HIDDEN = "(hidden)"

DescribedGroup = DescribeGroupsResponse.DescribedGroup
Described = TypeVar("Described", bound=Message)


# --- membership -----------------------------------------------------------------------------------------------


@handles(JoinGroupRequest, on_group(READ))
def join_group(
    services: Services, ctx: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    """Join a group; the answer comes when the generation is complete."""
    version = ctx.api_version
    client_id = ctx.client_id or ""
    if len(request.protocols) > MOST_PROTOCOLS:
        text = f"a member names {len(request.protocols)} protocols, more than {MOST_PROTOCOLS}"
        host = ctx.client_host
        level = _refusals.level(host, logging.INFO)
        log.log(level, "refusing group %.200s, client %.200s from %s: %s", request.group_id, client_id, host, text)
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    wanted = JoinRequest(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=client_id,
        client_host=f"/{ctx.client_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.session_timeout_ms if version == 0 else request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        new_member_id="" if request.member_id else new_member_id(client_id, request.group_instance_id),
        requires_member_id=version >= FIRST_MEMBER_ID_REQUIRED,
        can_skip_assignment=version >= FIRST_SKIP_ASSIGNMENT,
        reason=(request.reason or "")[:MAX_REASON],
    )
    answer = services.groups.join(request.group_id, wanted)
    if isinstance(answer, JoinAnswer):
        return _joined(answer, version)
    return _joined_later(answer, version)


async def _joined_later(future: Awaitable[JoinAnswer], version: int) -> JoinGroupResponse:
    return _joined(await future, version)


def _joined(answer: JoinAnswer, version: int) -> JoinGroupResponse:
    name = answer.protocol_name
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type,
        protocol_name="" if name is None and version < FIRST_PROTOCOL_TYPE else name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member_id, group_instance_id=instance_id, metadata=metadata
            )
            for member_id, instance_id, metadata in answer.members
        ],
    )


@handles(SyncGroupRequest, on_group(READ))
def sync_group(
    services: Services, ctx: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    """Give a member its assignment, as soon as the leader has brought it."""
    protocol = (request.protocol_type, request.protocol_name)
    if ctx.api_version >= FIRST_SYNC_PROTOCOL and None in protocol:
        return _synced(SyncAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    answer = services.groups.sync(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        protocol,
        {entry.member_id: bytes(entry.assignment) for entry in request.assignments},
    )
    if isinstance(answer, SyncAnswer):
        return _synced(answer)
    return _synced_later(answer)


async def _synced_later(future: asyncio.Future[SyncAnswer]) -> SyncGroupResponse:
    return _synced(await future)


def _synced(answer: SyncAnswer) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )


@handles(HeartbeatRequest, on_group(READ))
def heartbeat(services: Services, ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Keep the member's session alive, or say why it has ended."""
    error = services.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=error)


@handles(LeaveGroupRequest, on_group(READ))
def leave_group(
    services: Services, ctx: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    """Let members go; before version 3 just one, whose error is the whole answer's."""
    if ctx.api_version < FIRST_LEAVE_MANY:
        error, errors = services.groups.leave(request.group_id, [Leaving(request.member_id, None)])
        return LeaveGroupResponse(error_code=errors[0] if errors else error)
    return in_turns(_leave_many(services, request))


def _leave_many(services: Services, request: LeaveGroupRequest) -> Work[LeaveGroupResponse]:
    """They all leave at the same moment: before it and after it others have their turns."""
    leaving = []
    for member in request.members:
        leaving.append(Leaving(member.member_id, member.group_instance_id, (member.reason or "")[:MAX_REASON]))
        yield
    error, errors = services.groups.leave(request.group_id, leaving)
    answers = []
    for gone, member_error in zip(leaving, errors, strict=False):
        answers.append(
            LeaveGroupResponse.MemberResponse(
                member_id=gone.member_id, group_instance_id=gone.group_instance_id, error_code=member_error
            )
        )
        yield
    return LeaveGroupResponse(error_code=error, members=answers)


# --- groups as a whole ----------------------------------------------------------------------------------------


@handles(
    DescribeGroupsRequest,
    each(GROUP, DESCRIBE, "groups", None),
    ends_with_connection=True,
    asks_for_much=lambda request: True,
)
def describe_groups(
    services: Services, ctx: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse | Awaitable[DescribeGroupsResponse]:
    """Describe state and members; a group that does not exist is Dead."""
    describe = partial(_describe_with_history if request.include_history else _describe, services, ctx)
    operations = request.include_authorized_operations
    return in_turns(describe_each(DescribeGroupsResponse, ctx, request.groups, describe, operations))


def describe_each(
    response: type[Described],
    ctx: RequestContext,
    group_ids: Iterable[str],
    describe: Callable[[str], Generator[None, None, Any]],
    with_operations: bool,
) -> Generator[None, None, Described]:
    """Make the response of the descriptions of groups, of either protocol; one group may have thousands of members."""
    described = ElementWriter(response, ctx.api_version)
    for group_id in dict.fromkeys(group_ids):  # one that is named often is described once
        group = yield from describe(group_id)
        if with_operations and group.error_code is ErrorCode.NONE:
            group.authorized_operations = ctx.authority.operations(GROUP, group_id)
        described.append(group)
        yield
    return response(groups=described.array())


def _describe(services: Services, ctx: RequestContext, group_id: str) -> Generator[None, None, DescribedGroup]:
    """Describe a group as it is now, and write that out in turns."""
    group, error = services.groups.describe(group_id)
    if not isinstance(group, Group):  # a group of the newer protocol is described by ConsumerGroupDescribe
        state = GroupState.DEAD.value if error is ErrorCode.NONE else ""
        return DescribedGroup(
            error_code=error, group_id=group_id, group_state=state, protocol_type="", protocol_data="", members=[]
        )
    is_stable = group.state is GroupState.STABLE
    members = [
        DescribeGroupsResponse.DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
            member_assignment=member.assignment if is_stable else b"",
        )
        for member in group.members.values()
    ]
    described = DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[],
        last_rebalance=group.last_rebalance,
    )
    written = ElementWriter(DescribeGroupsResponse, ctx.api_version)
    for described_member in members:
        written.append(described_member)
        yield
    described.members = written.array()
    return described


def _describe_with_history(
    services: Services, ctx: RequestContext, group_id: str
) -> Generator[None, None, DescribedGroup]:
    """Describe a group and tell its rebalances, of either protocol, also from before another broker took over."""
    described = yield from _describe(services, ctx, group_id)
    rebalances, behind_ms = services.groups.history(group_id)
    described.history = [
        DescribeGroupsResponse.GroupRebalance(
            timestamp_ms=each.began_at + behind_ms,
            duration_ms=-1 if each.ended_at is None else each.ended_at - each.began_at,
            generation_id=each.generation_id,
            member_count=each.members,
            reasons=[without_hidden_topics(ctx.authority, reason) for reason in each.all_reasons()],
            outcome=each.outcome,
            advice=each.advice,
        )
        for each in rebalances
    ]
    return described


def without_hidden_topics(authority: Everything, reason: str) -> str:
    """Return why a group rebalanced, without names of topics that who asks may not describe."""

    def shown(named: re.Match[str]) -> str:
        is_known = authority.could(DESCRIBE, TOPIC, named["name"], "DescribeGroups")
        return named[0] if is_known else f"topic {HIDDEN}"

    return _NAMED_TOPIC.sub(shown, reason) if authority.is_limited else reason


@handles(ListGroupsRequest, inside("what may not be described is not listed"), ends_with_connection=True)
def list_groups(
    services: Services, ctx: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse | Awaitable[ListGroupsResponse]:
    """List the groups that this broker coordinates, with the states and types asked for."""
    return in_turns(_list_groups(services, ctx, request))


def _list_groups(
    services: Services, ctx: RequestContext, request: ListGroupsRequest
) -> Generator[None, None, ListGroupsResponse]:
    groups, error = services.groups.groups()
    states = {state.lower() for state in request.states_filter}
    types = {group_type.lower() for group_type in request.types_filter}
    authority = ctx.authority
    sees_all = authority.could(DESCRIBE, CLUSTER, api="ListGroups")
    listed = ElementWriter(ListGroupsResponse, ctx.api_version)
    for group in groups:
        if not (sees_all or authority.could(DESCRIBE, GROUP, group.group_id, "ListGroups")):
            pass
        elif (not states or group.state_name.lower() in states) and (not types or group.kind in types):
            listed.append(
                ListGroupsResponse.ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state_name,
                    group_type=group.kind,
                )
            )
        yield
    return ListGroupsResponse(error_code=error, groups=listed.array())


@handles(DeleteGroupsRequest, each(GROUP, DELETE, "groups_names", None))
async def delete_groups(services: Services, ctx: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete groups that have no members, with their offsets."""
    turn = Turn()
    deleted = ElementWriter(DeleteGroupsResponse, ctx.api_version)
    for portion in portions(list(dict.fromkeys(request.groups_names))):
        errors = await services.groups.delete_groups(portion)
        for group_id, error in errors.items():
            deleted.append(DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error))
        await turn.end_if_over()
    return DeleteGroupsResponse(results=deleted.array())
