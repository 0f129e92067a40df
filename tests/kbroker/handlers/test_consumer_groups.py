"""ConsumerGroupHeartbeat and ConsumerGroupDescribe in every version on a real broker."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.coordinator.consumer_group import ConsumerGroup, ConsumerSettings
from kbroker.coordinator.consumer_member import ConsumerMember
from kbroker.handlers.consumer_groups import consumer_group_describe
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from kbroker.protocol.messages.topics import CreateTopicsRequest
from kbroker.protocol.primitives import LONGEST_STRING
from kbroker.security.authorizer import EVERYTHING
from tests.fixtures.others import Others
from tests.kbroker.asking import Ask

VERSIONS = (0, 1)


@pytest.fixture
async def group(ask: Ask, topic_name: str) -> str:
    """A group id of the test's own, called like a topic with two partitions; the coordinator is ready."""
    topic = CreateTopicsRequest.CreatableTopic(
        name=topic_name, num_partitions=2, replication_factor=1, assignments=[], configs=[]
    )
    await ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    for _ in range(500):
        if (await ask(FindCoordinatorRequest(key=topic_name), 3)).error_code is ErrorCode.NONE:
            return topic_name
        await asyncio.sleep(0.01)
    raise TimeoutError("no coordinator")


def joining(group: str, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    values: dict[str, Any] = {
        "group_id": group,
        "member_id": str(uuid.uuid4()),
        "member_epoch": 0,
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": [group],
        "topic_partitions": [],
    }
    return ConsumerGroupHeartbeatRequest(**{**values, **fields})


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_member_joins_stays_and_leaves(ask: Ask, group: str, version: int) -> None:
    join = joining(group)
    answer = await ask(join, version)
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms) == (ErrorCode.NONE, 1, 200)
    ((topic_id, partitions),) = [(each.topic_id, each.partitions) for each in answer.assignment.topic_partitions]
    assert list(partitions) == [0, 1]
    stay = ConsumerGroupHeartbeatRequest(group_id=group, member_id=join.member_id, member_epoch=1)
    assert (await ask(stay, version)).assignment is None
    (described,) = (
        await ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=True), version)
    ).groups
    assert (described.group_state, described.group_epoch, described.assignor_name) == ("Stable", 1, "uniform")
    (member,) = described.members
    assert (member.member_id, member.member_epoch, list(member.subscribed_topic_names)) == (join.member_id, 1, [group])
    assert [each.topic_id for each in member.target_assignment.topic_partitions] == [topic_id]
    assert member.assignment == member.target_assignment
    assert member.member_type == (1 if version else -1)
    assert described.authorized_operations > 0
    leave = ConsumerGroupHeartbeatRequest(group_id=group, member_id=join.member_id, member_epoch=-1)
    assert (await ask(leave, version)).member_epoch == -1
    assert (await ask(stay, version)).error_code is ErrorCode.UNKNOWN_MEMBER_ID


async def test_version_0_lets_the_coordinator_make_the_member_id(ask: Ask, group: str) -> None:
    answer = await ask(joining(group, member_id=""), 0)
    assert (answer.error_code, bool(answer.member_id)) == (ErrorCode.NONE, True)
    assert (await ask(joining(group, member_id=""), 1)).error_code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST, "GroupId"),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST, "InstanceId"),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST, "RackId"),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST, "MemberEpoch"),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST, "InstanceId"),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs"),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST, "TopicPartitions"),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST, "SubscribedTopicNames"),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION, "RE2"),
        ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR, "mine"),
        ({"member_epoch": 5}, ErrorCode.GROUP_ID_NOT_FOUND, "not one of the newer protocol"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    ask: Ask, group: str, fields: dict[str, Any], error: ErrorCode, said: str
) -> None:
    answer = await ask(joining(group, **fields), 1)
    assert answer.error_code is error
    assert said in (answer.error_message or "")


async def test_offsets_of_a_member_go_by_its_epoch(ask: Ask, group: str) -> None:
    join = joining(group)
    await ask(join, 1)
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=7, committed_metadata=""
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=group, partitions=[partition])
    for epoch, error in ((1, ErrorCode.NONE), (0, ErrorCode.STALE_MEMBER_EPOCH), (2, ErrorCode.STALE_MEMBER_EPOCH)):
        commit = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=epoch, member_id=join.member_id, topics=[topic]
        )
        assert (await ask(commit, 9)).topics[0].partitions[0].error_code is error
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=group, member_id=join.member_id, member_epoch=epoch, topics=None
        )
        (found,) = (await ask(OffsetFetchRequest(groups=[asked]), 9)).groups
        assert found.error_code is error
        of_nobody = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
        (told_once,) = (await ask(OffsetFetchRequest(groups=[of_nobody, asked]), 9)).groups
        assert told_once.error_code is error


async def test_a_member_that_is_no_consumer_cannot_join_consumers(ask: Ask, group: str) -> None:
    await ask(joining(group), 1)
    stranger = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="connect",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="default", metadata=b"")],
    )
    assert (await ask(stranger, 9)).error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    (described,) = (await ask(DescribeGroupsRequest(groups=[group]), 5)).groups
    assert (described.error_code, described.group_state) == (ErrorCode.NONE, "Dead")
    names = ["stranger", "x" * LONGEST_STRING]
    request = ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=False)
    assert [each.error_code for each in (await ask(request, 1)).groups] == [ErrorCode.GROUP_ID_NOT_FOUND] * 2


async def test_others_have_their_turns_while_a_large_group_is_described(others: Others, short_turns: None) -> None:
    topics: Any = SimpleNamespace(updates=0, topics={}, names=frozenset(), topic_by_id=lambda topic_id: None)
    group = ConsumerGroup("g", ConsumerSettings(), topics)
    group.members = {member_id: ConsumerMember(member_id) for member_id in map(str, range(100))}
    found = SimpleNamespace(describe=lambda group_id: (group, ErrorCode.NONE))
    context: Any = SimpleNamespace(api_version=1, authority=EVERYTHING)
    services: Any = SimpleNamespace(groups=found, metadata=topics)
    before = others.turns
    answer: Any = consumer_group_describe(
        services, context, ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    )
    group.members.clear()
    await answer
    assert others.turns - before >= 50
