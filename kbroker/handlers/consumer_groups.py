"""Groups of the newer protocol (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Awaitable, Generator
from copy import copy
from functools import partial

from kbroker.coordinator.consumer_group import ConsumerAnswer, ConsumerGroup, ConsumerHeartbeat
from kbroker.coordinator.consumer_member import JOIN_EPOCH, LEAVE_STATIC_EPOCH, ConsumerMember, Partitions
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import DESCRIBE, GROUP, READ, TOPIC, Asked, Steps, each, on_group
from kbroker.handlers.groups import describe_each
from kbroker.handlers.registry import handles
from kbroker.protocol.codec import ElementWriter
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kbroker.replica.turns import at_once, in_turns

FIRST_CLIENT_MADE_MEMBER_ID = 1
NOT_TOLD = -1
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
NOT_ALL_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


def _may_subscribe(asked: Asked) -> Steps | None:
    """Who may not know of one of the topics hears that, and joins nothing."""
    steps = _judge(asked, Counter(asked.request.subscribed_topic_names or ()))
    return steps if asked.ctx.is_large else at_once(steps)


def _judge(asked: Asked, names: Counter[str]) -> Steps:
    is_refused = False
    for name, times in names.items():
        is_refused |= not asked.may(DESCRIBE, TOPIC, name, times)
        yield
    if is_refused:
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


@handles(ConsumerGroupHeartbeatRequest, on_group(READ), _may_subscribe)
def consumer_group_heartbeat(
    services: Services, ctx: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    """Join, stay in or leave a group; the answer tells the member's epoch and, when it changed, its assignment."""
    try:
        _check(services, request, ctx.api_version)
        answer = services.groups.consumer_heartbeat(request.group_id, _heartbeat(ctx, request))
    except KafkaError as error:
        return _refused(request, error)
    if isinstance(answer, ConsumerAnswer):
        return _answered(services, answer)
    return _answered_later(services, request, answer)


def _check(services: Services, request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Raise KafkaError for a request that does not make sense, whatever the group."""
    if "consumer" not in services.config.group_coordinator_rebalance_protocols:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "consumer is not among this broker's group.coordinator.rebalance.protocols"
        )
    joins = request.member_epoch == JOIN_EPOCH
    subscribes = request.subscribed_topic_names is not None or bool(request.subscribed_topic_regex)
    problems = (
        (not request.group_id, "GroupId can't be empty."),
        (not request.member_id and (version >= FIRST_CLIENT_MADE_MEMBER_ID or not joins), "MemberId can't be empty."),
        (request.instance_id == "", "InstanceId can't be empty."),
        (request.rack_id == "", "RackId can't be empty."),
        (request.member_epoch < LEAVE_STATIC_EPOCH, "MemberEpoch is invalid."),
        (request.member_epoch == LEAVE_STATIC_EPOCH and request.instance_id is None, "InstanceId can't be null."),
        (joins and request.rebalance_timeout_ms == NOT_TOLD, "RebalanceTimeoutMs must be provided in first request."),
        (joins and request.topic_partitions is None, "TopicPartitions must be empty when (re-)joining."),
        (joins and bool(request.topic_partitions), "TopicPartitions must be empty when (re-)joining."),
        (
            joins and not subscribes,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
    )
    for is_wrong, message in problems:
        if is_wrong:
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _heartbeat(ctx: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat:
    names = request.subscribed_topic_names
    owned: Partitions | None = None
    if request.topic_partitions is not None:
        owned = {bytes(topic.topic_id): frozenset(topic.partitions) for topic in request.topic_partitions}
    return ConsumerHeartbeat(
        member_id=request.member_id or str(uuid.uuid4()),
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=None if names is None else frozenset(names),
        topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=owned,
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.client_host}",
        authority=ctx.authority,
    )


def _refused(request: ConsumerGroupHeartbeatRequest, error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=error.code,
        error_message=error.message or None,
        member_id=request.member_id or None,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )


def _answered(services: Services, answer: ConsumerAnswer) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if answer.assigned is not None:
        entry = ConsumerGroupHeartbeatResponse.TopicPartitions
        assignment = ConsumerGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                entry(topic_id=topic, partitions=sorted(numbers)) for topic, numbers in answer.assigned.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=services.config.group_consumer_heartbeat_interval_ms,
        assignment=assignment,
    )


async def _answered_later(
    services: Services, request: ConsumerGroupHeartbeatRequest, answer: Awaitable[ConsumerAnswer]
) -> ConsumerGroupHeartbeatResponse:
    try:
        return _answered(services, await answer)
    except KafkaError as error:
        return _refused(request, error)


# --- describing -----------------------------------------------------------------------------------------------

DescribedGroup = ConsumerGroupDescribeResponse.DescribedGroup


@handles(
    ConsumerGroupDescribeRequest,
    each(GROUP, DESCRIBE, "group_ids", None),
    ends_with_connection=True,
    asks_for_much=lambda request: True,
)
def consumer_group_describe(
    services: Services, ctx: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse | Awaitable[ConsumerGroupDescribeResponse]:
    """Describe epochs, members, current and target assignments."""
    describe = partial(_describe_to, services, ctx)
    operations = request.include_authorized_operations
    return in_turns(describe_each(ConsumerGroupDescribeResponse, ctx, request.group_ids, describe, operations))


def _describe_to(services: Services, ctx: RequestContext, group_id: str) -> Generator[None, None, DescribedGroup]:
    """Describe a group to who may know of all topics that its members have; to others it says why not.

    It is described as it is now, and written out in turns: each of its members may have thousands of topics.
    """
    group, code = services.groups.describe(group_id)
    if not isinstance(group, ConsumerGroup):
        error = KafkaError(code)
        if code is ErrorCode.NONE:
            text = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
            error = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
        return _not_described(group_id, error)
    described = DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target.epoch,
        assignor_name=group.assignor,
        members=[],
    )
    members = [(copy(member), group.target.members.get(member.member_id, {})) for member in group.members.values()]
    written = ElementWriter(ConsumerGroupDescribeResponse, ctx.api_version)
    known: set[str] = set()
    for member, target in members:
        assignment = _assignment(services, member.assigned)
        yield
        target_assignment = _assignment(services, target)
        yield
        names = {topic.topic_name for each in (assignment, target_assignment) for topic in each.topic_partitions}
        for name in names - known if ctx.authority.is_limited else ():
            if not ctx.authority.could(DESCRIBE, TOPIC, name, "ConsumerGroupDescribe"):
                return _not_described(group_id, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, NOT_ALL_TOPICS))
            yield
        known |= names
        written.append(_member(member, assignment, target_assignment))
        yield
    described.members = written.array()
    return described


def _not_described(group_id: str, error: KafkaError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error.code,
        error_message=error.message or None,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _member(
    member: ConsumerMember,
    assignment: ConsumerGroupDescribeResponse.Assignment,
    target_assignment: ConsumerGroupDescribeResponse.Assignment,
) -> ConsumerGroupDescribeResponse.Member:
    return ConsumerGroupDescribeResponse.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=assignment,
        target_assignment=target_assignment,
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(services: Services, partitions: Partitions) -> ConsumerGroupDescribeResponse.Assignment:
    entry = ConsumerGroupDescribeResponse.TopicPartitions
    listed = []
    for topic_id, numbers in partitions.items():
        topic = services.metadata.topic_by_id(topic_id)
        if topic is not None:
            listed.append(entry(topic_id=topic_id, topic_name=topic.name, partitions=sorted(numbers)))
    return ConsumerGroupDescribeResponse.Assignment(topic_partitions=listed)
