"""Group APIs in every version on a real broker."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.coordinator.group_sentences import other_topics, topics_changed
from kbroker.handlers import groups
from kbroker.handlers.groups import MOST_PROTOCOLS, without_hidden_topics
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from kbroker.protocol.primitives import LONGEST_STRING
from kbroker.security.acls import AclOperation, AclPattern, AclPermission, AclResource, Entry, Pattern
from kbroker.security.authorizer import EVERYTHING, Authorizer
from kbroker.security.limited_lines import LINES_EACH
from tests.kbroker.asking import Ask

Identity = LeaveGroupRequest.MemberIdentity


@pytest.fixture
async def group(ask: Ask, topic_name: str) -> str:
    """A group id of the test's own; the coordinator is ready."""
    for _ in range(500):
        if (await ask(FindCoordinatorRequest(key=topic_name), 3)).error_code is ErrorCode.NONE:
            return topic_name
        await asyncio.sleep(0.01)
    raise TimeoutError("no coordinator")


async def join(ask: Ask, group: str, version: int = 9, member_id: str = "", **values: Any) -> Any:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        **{"protocols": [protocol], **values},
    )
    answer = await ask(request, version)
    if answer.error_code is ErrorCode.MEMBER_ID_REQUIRED:
        return await join(ask, group, version, answer.member_id, **values)
    return answer


async def sync(ask: Ask, group: str, joined: Any, version: int = 5, **values: Any) -> Any:
    shares = [SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")]
    named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    request = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=shares,
        **{**named, **values},
    )
    return await ask(request, version)


@pytest.mark.parametrize("version", range(10))
async def test_every_version_of_join_forms_a_generation(ask: Ask, group: str, version: int) -> None:
    joined = await join(ask, group, version)
    assert joined.error_code is ErrorCode.NONE
    assert (joined.generation_id, joined.leader, joined.protocol_name) == (1, joined.member_id, "range")
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert joined.member_id.startswith("test-")
    assert [member.member_id for member in joined.members] == [joined.member_id]


@pytest.mark.parametrize("version", range(10))
async def test_every_version_of_join_says_why_not(ask: Ask, group: str, version: int) -> None:
    refused = await join(ask, group, version, member_id="nobody")
    assert refused.error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert (refused.generation_id, refused.leader, refused.member_id) == (-1, "", "nobody")
    assert refused.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", range(6))
async def test_every_version_of_sync_hands_out_assignments(ask: Ask, group: str, version: int) -> None:
    joined = await join(ask, group)
    synced = await sync(ask, group, joined, version)
    assert (synced.error_code, bytes(synced.assignment)) == (ErrorCode.NONE, b"all")
    assert synced.protocol_name == ("range" if version >= 5 else None)
    again = await sync(ask, group, joined, version)
    assert bytes(again.assignment) == b"all"


async def test_a_new_sync_has_to_name_the_protocol(ask: Ask, group: str) -> None:
    joined = await join(ask, group)
    for values in ({"protocol_type": None}, {"protocol_name": None}, {"protocol_name": "sticky"}):
        refused = await sync(ask, group, joined, **values)
        assert refused.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(5))
async def test_every_version_of_heartbeat_keeps_the_member(ask: Ask, group: str, version: int) -> None:
    joined = await join(ask, group)
    await sync(ask, group, joined)
    for generation, expected in ((1, ErrorCode.NONE), (0, ErrorCode.ILLEGAL_GENERATION)):
        request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=joined.member_id)
        assert (await ask(request, version)).error_code is expected


@pytest.mark.parametrize("version", range(6))
async def test_every_version_of_leave_lets_a_member_go(ask: Ask, group: str, version: int) -> None:
    joined = await join(ask, group)
    old = LeaveGroupRequest(group_id=group, member_id=joined.member_id)
    new = LeaveGroupRequest(group_id=group, members=[Identity(member_id=joined.member_id), Identity(member_id="x")])
    answer = await ask(old if version < 3 else new, version)
    assert answer.error_code is ErrorCode.NONE
    if version >= 3:
        assert [(each.member_id, each.error_code) for each in answer.members] == [
            (joined.member_id, ErrorCode.NONE),
            ("x", ErrorCode.UNKNOWN_MEMBER_ID),
        ]
    request = LeaveGroupRequest(group_id=group, member_id=joined.member_id)
    assert (await ask(request, 2)).error_code is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_static_member_is_removed_by_its_instance(ask: Ask, group: str) -> None:
    await join(ask, group, group_instance_id="one")
    leaving = [Identity(member_id="", group_instance_id="one"), Identity(member_id="", group_instance_id="two")]
    answer = await ask(LeaveGroupRequest(group_id=group, members=leaving), 5)
    assert [each.error_code for each in answer.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert [each.group_instance_id for each in answer.members] == ["one", "two"]


@pytest.mark.parametrize("version", range(6))
async def test_every_version_of_describe_shows_the_members(ask: Ask, group: str, version: int) -> None:
    joined = await join(ask, group, group_instance_id="one")
    await sync(ask, group, joined)
    request = DescribeGroupsRequest(groups=[group, "nobody", ""], include_authorized_operations=version >= 3)
    found, unknown, nameless = (await ask(request, version)).groups
    assert (found.error_code, found.group_state) == (ErrorCode.NONE, "Stable")
    assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
    (member,) = found.members
    assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")
    assert (bytes(member.member_assignment), member.group_instance_id) == (b"all", "one" if version >= 4 else None)
    assert (unknown.error_code, unknown.group_state, unknown.protocol_type) == (ErrorCode.NONE, "Dead", "")
    assert nameless.error_code is ErrorCode.NONE
    assert found.authorized_operations == ((1 << 3 | 1 << 6 | 1 << 8) if version >= 3 else -(1 << 31))


async def test_a_group_between_generations_shows_no_metadata(ask: Ask, group: str) -> None:
    await join(ask, group)
    (found,) = (await ask(DescribeGroupsRequest(groups=[group]), 5)).groups
    assert (found.group_state, found.protocol_data) == ("CompletingRebalance", "")
    assert bytes(found.members[0].member_metadata) == b""


@pytest.mark.parametrize("version", range(6))
async def test_every_version_of_list_has_the_group(ask: Ask, group: str, version: int) -> None:
    await sync(ask, group, await join(ask, group))

    async def listed(**filters: Any) -> list[Any]:
        answer = await ask(ListGroupsRequest(**filters), version)
        assert answer.error_code is ErrorCode.NONE
        return [
            (each.protocol_type, each.group_state, each.group_type) for each in answer.groups if each.group_id == group
        ]

    state, kind = "Stable" if version >= 4 else "", "classic" if version >= 5 else ""
    assert await listed() == [("consumer", state, kind)]
    if version >= 4:
        assert await listed(states_filter=["stable", "Dead"])
        assert not await listed(states_filter=["Empty"])
    if version >= 5:
        assert await listed(types_filter=["Classic"])
        assert not await listed(types_filter=["consumer"])


@pytest.mark.parametrize("version", range(3))
async def test_every_version_of_delete_removes_groups_without_members(ask: Ask, group: str, version: int) -> None:
    joined = await join(ask, group)

    async def delete() -> list[Any]:
        answer = await ask(DeleteGroupsRequest(groups_names=[group, "nobody"]), version)
        return [each.error_code for each in answer.results]

    assert await delete() == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    await ask(LeaveGroupRequest(group_id=group, member_id=joined.member_id), 2)
    assert await delete() == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert await delete() == [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND]


async def test_the_rebalances_of_a_group_are_told_to_who_asks(ask: Ask, group: str) -> None:
    joined = await join(ask, group, reason="a first one")
    await sync(ask, group, joined)
    leaving = Identity(member_id=joined.member_id, reason="enough of it")
    await ask(LeaveGroupRequest(group_id=group, members=[leaving]), 5)
    plain = (await ask(DescribeGroupsRequest(groups=[group]), 5)).groups[0]
    assert plain.history is None
    asked = DescribeGroupsRequest(groups=[group, f"{group}-none"], include_history=True)
    told, nothing = (await ask(asked, 5)).groups
    assert nothing.history == []
    first, second = told.history
    assert first.reasons[0].endswith("joined: a first one")
    assert (first.generation_id, first.member_count) == (1, 1)
    assert first.duration_ms >= 0
    assert second.reasons[0].endswith("left: enough of it")
    assert second.outcome == "nobody is in the group any more"
    assert abs(second.timestamp_ms - time.time() * 1000) < 600_000, "by the clock on the wall"
    assert (await ask(asked, 4)).groups[0].history is None, "versions before 5 have no place for it here"


def test_why_a_group_rebalanced_is_told_without_topics_that_one_may_not_describe() -> None:
    authorizer = Authorizer()
    allowed = [Entry("User:ann", "*", AclOperation.READ, AclPermission.ALLOW)]
    authorizer.replace(Pattern(AclResource.TOPIC, AclPattern.LITERAL, "open"), allowed)
    before = {"shut-1": (b"a", 2), "shut-3": (b"c", 1)}
    after = {"shut-1": (b"a", 3), "shut-2": (b"b", 1), "open": (b"d", 1)}
    reason = topics_changed(before, after).what
    assert without_hidden_topics(EVERYTHING, reason) == reason
    told = without_hidden_topics(authorizer.authority("User:ann", "10.0.0.1"), reason)
    assert "topic open came" in told
    assert "shut" not in told
    anew = other_topics({"open", "shut-1"}, {"shut-2", "shut-3"})
    hidden = "now also topic (hidden), topic (hidden); no longer topic open, topic (hidden)"
    assert without_hidden_topics(authorizer.authority("User:ann", "10.0.0.1"), anew) == hidden
    long = topics_changed({}, {f"shut-{number:200}".replace(" ", "-"): (b"a", 1) for number in range(5)}).what
    assert "shut" not in without_hidden_topics(authorizer.authority("User:ann", "10.0.0.1"), long)


async def test_a_member_that_names_more_protocols_than_make_sense_is_told_so(ask: Ask, group: str) -> None:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol
    most, more = (
        [protocol(name=f"assignor-{number}", metadata=b"") for number in range(MOST_PROTOCOLS + extra)]
        for extra in (0, 1)
    )
    refused = await join(ask, group, protocols=more)
    assert (refused.error_code, refused.member_id) == (ErrorCode.INVALID_REQUEST, "")
    assert (await join(ask, group, protocols=most)).error_code is ErrorCode.NONE


def test_members_that_name_too_many_protocols_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="", metadata=b"")
    ctx: Any = SimpleNamespace(api_version=5, client_id="c" * LONGEST_STRING, client_host="10.0.0.1")
    services: Any = None
    request = JoinGroupRequest(
        group_id="g" * LONGEST_STRING,
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol] * (MOST_PROTOCOLS + 1),
    )
    with caplog.at_level("INFO", groups.__name__):
        for _ in range(100):
            with pytest.raises(KafkaError):
                groups.join_group(services, ctx, request)
    assert 0 < len(caplog.messages) <= LINES_EACH
    assert max(map(len, caplog.messages)) < 1000
