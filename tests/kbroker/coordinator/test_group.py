"""A group alone: transitions, answers to misuse, and random histories whose invariants are checked at each step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kbroker.coordinator.group import _TRANSITIONS, Group
from kbroker.coordinator.group_events import GroupSettings, JoinRequest, Leaving
from kbroker.coordinator.group_life import GroupState
from kbroker.coordinator.group_offsets import CommittedOffset
from kbroker.protocol.errors import ErrorCode
from tests.kbroker.coordinator.play import GroupPlay, subscription

ALLOWED_FROM = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY},
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: set(GroupState) - {GroupState.DEAD},
}
MINUTE = 60_000


def stable(*names: str) -> GroupPlay:
    play = GroupPlay()
    play.form(*(names or ("a",)))
    return play


def test_the_table_has_kafkas_transitions_and_no_others() -> None:
    pairs = {(before, after) for after, froms in ALLOWED_FROM.items() for before in froms}
    assert set(_TRANSITIONS) == pairs


def test_a_transition_that_is_not_in_the_table_is_a_mistake() -> None:
    group = Group("g", GroupSettings(), 0)
    with pytest.raises(KeyError):
        group._move(GroupState.STABLE, 0)


def test_the_members_get_what_the_leader_gave_them() -> None:
    play = stable("a", "b", "c")
    assert play.assignments == {"a": b"a", "b": b"b", "c": b"c"}
    assert play.group.subscribed_topics == frozenset("t")


def test_an_assignment_that_is_stored_after_its_generation_has_ended_is_nobodys() -> None:
    play = stable("a", "b")
    play.join("c", version=3)
    play.join("a")
    play.join("b")
    play.sync("a", {"a": b"old", "b": b"old", "c": b"old"})
    play.leave("c")
    play.join("a")
    play.join("b")
    play.written()
    states = [play.group.state]
    play.sync("b")
    play.sync("a", {"a": b"new", "b": b"new"})
    play.written()
    states.append(play.group.state)
    assert states == [GroupState.COMPLETING_REBALANCE, GroupState.STABLE]
    assert [play.assignments[each] for each in "ab"] == [b"new", b"new"]


def test_an_assignment_for_somebody_else_is_ignored_and_a_forgotten_member_gets_an_empty_one() -> None:
    play = GroupPlay()
    play.join("a", version=3)
    play.sync("a", {"stranger": b"everything"})
    assert [member.member_id for member in play.writes[0].value.members] == ["a-1"]
    play.written()
    assert play.assignments["a"] == b""


def test_the_protocol_with_most_votes_among_the_common_ones_is_used() -> None:
    play = GroupPlay(delay_ms=1000)
    play.join("a", {"x": b"", "range": b"1", "sticky": b""}, version=3)
    play.join("b", {"sticky": b"", "range": b"2"}, version=3)
    play.join("c", {"sticky": b"", "range": b"3"}, version=3)
    play.wait(3000)
    assert play.group.protocol_name == "sticky"


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("connect", {"range": b""}), ("consumer", {"other": b""}), ("consumer", {})]
)
def test_a_member_with_nothing_in_common_is_refused(protocol_type: str, protocols: dict[str, bytes]) -> None:
    play = stable()
    request = JoinRequest("", None, "c", "/h", 10_000, 10_000, protocol_type, tuple(protocols.items()), "c-1", False)
    (answer,) = play.group.join(request, "token", play.now)
    assert answer.answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[union-attr]


@pytest.mark.parametrize("protocol_type", ["", "consumer"])
def test_the_first_member_has_to_have_a_type_and_protocols(protocol_type: str) -> None:
    group = Group("g", GroupSettings(), 0)
    request = JoinRequest("", None, "c", "/h", 10_000, 10_000, protocol_type, (), "c-1", False)
    (answer,) = group.join(request, "token", 0)
    assert answer.answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[union-attr]


def test_members_are_known_by_id_and_generation() -> None:
    play = stable("a")
    group, member_id, generation = play.group, play.ids["a"], play.group.generation_id
    assert group.heartbeat(member_id, None, generation, play.now) is ErrorCode.NONE
    assert group.heartbeat("stranger", None, generation, play.now) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.heartbeat(member_id, None, generation - 1, play.now) is ErrorCode.ILLEGAL_GENERATION
    assert group.heartbeat(member_id, "no-instance", generation, play.now) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_id_that_is_anothers_by_now_fences() -> None:
    play = GroupPlay()
    play.join("a", instance="one")
    former = play.ids.pop("a")
    play.join("a", instance="one")
    assert play.group.heartbeat(former, "one", 1, play.now) is ErrorCode.FENCED_INSTANCE_ID
    errors, _ = play.group.leave([Leaving(former, "one")], play.now)
    assert errors == [ErrorCode.FENCED_INSTANCE_ID]


def test_a_sync_with_another_protocol_is_refused() -> None:
    play = stable("a")
    for protocol in (("connect", None), ("consumer", "sticky")):
        (answer,) = play.group.sync(play.ids["a"], None, play.group.generation_id, protocol, {}, "token", play.now)
        assert answer.answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[union-attr]


def test_commits_are_held_against_membership_and_state() -> None:
    play = GroupPlay()
    error = play.group.commit_error
    assert error("", None, -1, play.now) is ErrorCode.NONE
    assert error("", None, 1, play.now) is ErrorCode.UNKNOWN_MEMBER_ID
    play.join("a", version=3)
    member_id = play.ids["a"]
    assert error(member_id, None, 1, play.now) is ErrorCode.REBALANCE_IN_PROGRESS
    assert error(member_id, None, 1, play.now, is_transactional=True) is ErrorCode.NONE
    play.sync("a")
    play.written()
    assert error(member_id, None, 1, play.now) is ErrorCode.NONE
    assert error(member_id, None, 0, play.now) is ErrorCode.ILLEGAL_GENERATION
    assert error("", None, -1, play.now) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error("", None, -1, play.now, is_transactional=True) is ErrorCode.NONE
    play.die()
    assert error(member_id, None, 1, play.now) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_commit_keeps_its_member_alive() -> None:
    play = stable("a")
    for _ in range(5):
        play.wait(9000)
        assert play.commit_error("a") is ErrorCode.NONE
    play.wait(10_001)
    assert play.group.state is GroupState.EMPTY


def test_a_member_that_never_sends_heartbeats_is_removed_after_its_session() -> None:
    play = stable("a", "b")
    play.wait(9999)
    assert play.group.state is GroupState.STABLE
    play.wait(2)
    assert not play.group.members


def test_a_member_that_another_ones_end_answers_has_a_new_session() -> None:
    play = stable("a", "b")
    play.join("b", {"range": subscription("t", "u")})
    play.wait(10_001)
    assert [member.client_id for member in play.group.members.values()] == ["b"]
    assert not play.open, "b waits for nothing"
    play.wait(9_000)
    assert play.group.members, "its session began with the answer"


def test_the_group_knows_why_it_rebalanced_last() -> None:
    play = stable("a", "b")
    assert "joined" in play.group.last_rebalance
    gone = next(iter(play.group.members))
    play.leave("a")
    assert play.group.last_rebalance == f"{gone} (host) left, and did not say why"


def test_a_new_member_may_wait_five_minutes_for_its_first_generation() -> None:
    play = stable("a")
    play.join("b", version=3, session_ms=6000, rebalance_ms=3_600_000)
    for _ in range(33):
        play.wait(9000)
        play.heartbeat("a")
    assert "join" in {kind for kind, _ in play.open}
    play.wait(5000)
    assert "b cannot join: UNKNOWN_MEMBER_ID" in play.lines


def test_rounds_in_which_nobody_comes_back_do_not_spin() -> None:
    play = GroupPlay()
    play.join("a", instance="one", rebalance_ms=0, session_ms=30_000)
    play.join("b", instance="two", rebalance_ms=0, session_ms=30_000)
    play.wait(29_000)
    assert len(play.lines) < 20


@pytest.mark.parametrize(("instance", "line"), [("one", "FENCED_INSTANCE_ID"), ("two", "UNKNOWN_MEMBER_ID")])
def test_a_member_id_given_to_a_dynamic_member_cannot_be_used_with_an_instance_id(instance: str, line: str) -> None:
    play = GroupPlay()
    play.join("a", instance="one", version=3)
    request = JoinRequest("", None, "b", "/h", 10_000, 60_000, "consumer", (("range", subscription("t")),), "b-1", True)
    play.group.join(request, ("join", "b"), play.now)
    assert "b-1" in play.group.pending_members
    play.open.append(("join", "b"))
    play.join("b", instance=instance, member_id="b-1")
    assert f"b cannot join: {line}" in play.lines
    play.group.check()


def test_a_static_member_is_replaced_while_others_join() -> None:
    play = stable("a")
    play.join("b", instance="two")
    play.ids.pop("b", None)
    play.join("c", version=3)
    play.open.append(("join", "b"))
    request = JoinRequest("", "two", "b", "/h", 10_000, 60_000, "consumer", (("range", subscription("t")),), "b-9")
    play.tell(play.group.join(request, ("join", "b"), play.now))
    assert "b cannot join: FENCED_INSTANCE_ID" in play.lines
    play.join("a")
    assert play.ids["b"] == "b-9"


def test_who_waited_for_an_assignment_that_never_came_has_a_session_again() -> None:
    """A static member that has gone meanwhile would stand in the way of every rebalance for ever."""
    play = GroupPlay(delay_ms=2000)
    play.join("a", instance="one", version=3, rebalance_ms=0)
    play.join("b", version=3)
    play.wait(2001)
    play.sync("a", {})
    play.wait(70_000)  # past its session, and until b is given up, which has not asked for its assignment
    assert "a gets no assignment: REBALANCE_IN_PROGRESS" in play.lines
    play.wait(10_000)
    assert play.group.state is GroupState.EMPTY


def test_a_reloaded_group_that_is_too_large_rebalances_at_once() -> None:
    play = stable("a", "b", "c")
    play.group.settings = GroupSettings(max_size=2)
    play.tell(play.group.start(play.now))
    assert play.group.state is GroupState.PREPARING_REBALANCE


def test_offsets_expire_by_what_kind_of_group_it_is() -> None:
    offset = CommittedOffset(1, commit_timestamp=1_000_000)
    simple = Group("g", GroupSettings(), 1_000_000)
    simple.offsets.load(("t", 0), offset, 0)
    assert not simple.expired_offsets(1_000_000 + MINUTE - 1, MINUTE)
    assert simple.expired_offsets(1_000_000 + MINUTE, MINUTE) == [("t", 0)]
    play = stable("a")
    for topic in ("t", "elsewhere"):
        play.group.offsets.load((topic, 0), offset, 0)
    assert play.group.expired_offsets(play.now + MINUTE, MINUTE) == [("elsewhere", 0)]
    play.wait(3 * MINUTE)
    assert play.group.state is GroupState.EMPTY
    since = play.group.state_since
    assert since is not None
    assert not play.group.expired_offsets(since + MINUTE - 1, MINUTE)
    assert len(play.group.expired_offsets(since + MINUTE, MINUTE)) == 2
    play.group.state_since = None
    assert len(play.group.expired_offsets(1_000_000 + MINUTE, MINUTE)) == 2


class GroupHistory(RuleBasedStateMachine):
    """Members do anything at any time; whoever waits is answered in the end."""

    names = st.sampled_from(["a", "b", "c", "d"])

    def __init__(self) -> None:
        super().__init__()
        self.play = GroupPlay(delay_ms=2000, max_size=3)

    def is_waiting(self, name: str) -> bool:
        return any(waiting == name for _, waiting in self.play.open)

    @rule(
        name=names,
        protocols=st.sampled_from([("range",), ("sticky", "range"), ("range", "sticky"), ("other",)]),
        version=st.sampled_from([3, 8, 9]),
        is_static=st.booleans(),
        forgets=st.booleans(),
        rebalance_ms=st.sampled_from([0, 5000, 60_000]),
    )
    def join(self, name: str, protocols: Any, version: int, is_static: bool, forgets: bool, rebalance_ms: int) -> None:
        if forgets:
            self.play.ids.pop(name, None)
        member = self.play.group.members.get(self.play.ids.get(name, ""))
        static = is_static if member is None else member.is_static
        self.play.join(
            name,
            {protocol: subscription("t") for protocol in protocols},
            instance=f"static-{name}" if static else None,
            version=version,
            rebalance_ms=rebalance_ms,
        )

    @rule(name=names)
    def sync(self, name: str) -> None:
        if not self.is_waiting(name):
            self.play.sync(name, {each: each.encode() for each in self.play.ids})

    @rule(name=names)
    def heartbeat(self, name: str) -> None:
        self.play.heartbeat(name)

    @rule(name=names, by_instance=st.booleans())
    def leave(self, name: str, by_instance: bool) -> None:
        self.play.leave(name, f"static-{name}" if by_instance else None)

    @precondition(lambda self: self.play.writes)
    @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]))
    def written(self, error: ErrorCode) -> None:
        self.play.written(error)

    @rule(ms=st.sampled_from([1, 1999, 2001, 9000, 70_000]))
    def wait(self, ms: int) -> None:
        self.play.wait(ms)

    @invariant()
    def holds(self) -> None:
        self.play.group.check()

    def teardown(self) -> None:
        while self.play.writes:
            self.play.written()
        self.play.wait(400_000)
        while self.play.writes:
            self.play.written()
        assert not self.play.open, self.play.open
        assert not self.play.group.members
        assert self.play.group.state is GroupState.EMPTY
        self.play.die()


TestHistory = pytest.mark.slow(GroupHistory.TestCase)
TestHistory.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
