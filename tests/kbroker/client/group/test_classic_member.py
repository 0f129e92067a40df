import random
from typing import Any

import pytest

from kbroker.client.group.assignors import ASSIGNORS
from kbroker.client.group.classic_member import ClassicMember, State
from kbroker.client.group.events import (
    NEVER,
    Fail,
    FindCoordinator,
    GiveUp,
    Identity,
    Instruction,
    MemberSettings,
    Send,
    ShareOut,
    TakeOver,
    Work,
)
from kbroker.client.group.subscriptions import Subscription, decode_subscription, encode_assignment, encode_subscription
from kbroker.client.types import TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)

SETTINGS = MemberSettings("g", session_timeout_ms=10_000, heartbeat_interval_ms=1_000, max_poll_interval_ms=60_000)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def new(*assignors: str, settings: MemberSettings = SETTINGS) -> ClassicMember:
    member = ClassicMember(settings, [ASSIGNORS[name] for name in assignors or ("range",)])
    assert member.subscribe(("a",), 0) == [FindCoordinator()]
    return member


def sent(instructions: list[Instruction]) -> Any:
    (only,) = instructions
    assert isinstance(only, Send)
    return only.request


def join_answer(leader: str = "other", generation: int = 1, **fields: Any) -> JoinGroupResponse:
    values = {"error_code": ErrorCode.NONE, "protocol_name": "range", "member_id": "me", "members": [], **fields}
    return JoinGroupResponse(generation_id=generation, leader=leader, **values)


def refused_join(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name=None, leader="", member_id=member_id, members=[])


def sync_answer(*partitions: TopicPartition, code: ErrorCode = ErrorCode.NONE) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=encode_assignment(partitions))


def begin(member: ClassicMember) -> Work:
    """The application begins to go along."""
    work = member.work
    assert work is not None
    member.work_begun(work)
    member.check()
    return work


def go_along(member: ClassicMember, now: int) -> list[Instruction]:
    return member.work_done(begin(member), now)


def stable(*partitions: TopicPartition, assignor: str = "range", settings: MemberSettings = SETTINGS) -> ClassicMember:
    """A member that has taken its first assignment over."""
    member = new(assignor, settings=settings)
    join = sent(member.coordinator_found(0))
    sync = sent(member.answered(join, join_answer(protocol_name=assignor), 0))
    assert member.answered(sync, sync_answer(*partitions), 0) == []
    assert isinstance(member.work, TakeOver)
    assert go_along(member, 0) == []
    member.check()
    return member


def beat(member: ClassicMember, now: int, code: ErrorCode = ErrorCode.NONE) -> list[Instruction]:
    request = sent(member.tick(now))
    assert isinstance(request, HeartbeatRequest)
    return member.answered(request, HeartbeatResponse(error_code=code), now)


def test_a_member_joins_syncs_and_takes_over() -> None:
    member = new("range", "sticky")
    join = sent(member.coordinator_found(5))
    assert [protocol.name for protocol in join.protocols] == ["range", "sticky"]
    assert (join.group_id, join.member_id, join.rebalance_timeout_ms) == ("g", "", 60_000)
    again = sent(member.answered(join, refused_join(ErrorCode.MEMBER_ID_REQUIRED, "me"), 6))
    assert again.member_id == "me"
    sync = sent(member.answered(again, join_answer(), 7))
    assert (sync.generation_id, sync.member_id, sync.protocol_name, sync.assignments) == (1, "me", "range", [])
    assert member.answered(sync, sync_answer(A0), 8) == []
    assert member.work == TakeOver((A0,), (A0,), ())
    assert member.identity == Identity(1, "me")
    go_along(member, 9)
    assert [member.owned, member.work, member.deadline] == [(A0,), None, 1_008]


def test_the_leader_shares_out_what_the_members_want() -> None:
    member = new()
    join = sent(member.coordinator_found(0))
    blob = encode_subscription(Subscription(("a",)))
    entry = JoinGroupResponse.JoinGroupResponseMember(member_id="me", group_instance_id="i", metadata=blob)
    (order,) = member.answered(join, join_answer("me", members=[entry]), 0)
    assert order == ShareOut("range", {"me": Subscription(("a",), instance_id="i")})
    sync = sent(member.shared_out({"me": b"blob"}, 0))
    assert [(item.member_id, item.assignment) for item in sync.assignments] == [("me", b"blob")]
    assert member.shared_out({"me": b"late"}, 0) == []


def test_a_returning_static_leader_shares_nothing_out() -> None:
    member = new()
    join = sent(member.coordinator_found(0))
    assert isinstance(sent(member.answered(join, join_answer("me", skip_assignment=True), 0)), SyncGroupRequest)
    assert member.is_leader


def test_heartbeats_go_out_in_their_interval_and_keep_the_session() -> None:
    member = stable(A0)
    assert member.tick(999) == []
    assert beat(member, 1_000) == []
    assert member.deadline == 2_000
    assert beat(member, 2_000) == []


def test_an_eager_member_gives_everything_up_before_it_joins_again() -> None:
    member = stable(A0, A1)
    assert beat(member, 1_000, ErrorCode.REBALANCE_IN_PROGRESS) == []
    assert member.work == GiveUp((A0, A1))
    assert isinstance(sent(member.tick(2_000)), HeartbeatRequest), "the session goes on while the application is busy"
    join = sent(go_along(member, 2_100))
    assert isinstance(join, JoinGroupRequest)
    assert join.member_id == "me"
    assert decode_subscription(join.protocols[0].metadata).owned == ()


def test_a_cooperative_member_keeps_everything_and_rejoins_after_it_was_taken_away() -> None:
    member = stable(A0, A1, assignor="cooperative-sticky")
    join = sent(beat(member, 1_000, ErrorCode.REBALANCE_IN_PROGRESS))
    said = decode_subscription(join.protocols[0].metadata)
    assert (said.owned, said.generation, member.work) == ((A0, A1), 1, None)
    sync = sent(member.answered(join, join_answer(generation=2, protocol_name="cooperative-sticky"), 1_001))
    assert member.answered(sync, sync_answer(A1), 1_002) == []
    assert member.work == TakeOver((A1,), (), (A0,))
    rejoin = sent(go_along(member, 1_003))
    assert decode_subscription(rejoin.protocols[0].metadata).owned == (A1,)
    assert rejoin.reason == "need to revoke partitions and re-join"


def test_a_sticky_member_says_what_it_gave_up() -> None:
    member = stable(A0, assignor="sticky")
    beat(member, 1_000, ErrorCode.REBALANCE_IN_PROGRESS)
    join = sent(go_along(member, 1_000))
    said = decode_subscription(join.protocols[0].metadata)
    assert said.user_data == bytes.fromhex("00000001 0001 61 00000001 00000000 00000001")


def taking_over(*partitions: TopicPartition, assignor: str = "range") -> tuple[ClassicMember, Work]:
    """A member whose application is about to take its first assignment over."""
    member = new(assignor)
    sync = sent(member.answered(sent(member.coordinator_found(0)), join_answer(protocol_name=assignor), 0))
    member.answered(sync, sync_answer(*partitions), 0)
    return member, begin(member)


def test_an_eager_member_joins_again_after_it_has_taken_over_and_given_up_again() -> None:
    member, work = taking_over(A0)
    assert beat(member, 1_000, ErrorCode.REBALANCE_IN_PROGRESS) == []
    assert beat(member, 2_000, ErrorCode.REBALANCE_IN_PROGRESS) == [], "the session goes on meanwhile"
    member.check()
    assert member.work_done(work, 2_500) == []
    assert member.work == GiveUp((A0,))
    assert decode_subscription(sent(go_along(member, 2_600)).protocols[0].metadata).owned == ()
    member.check()


def test_a_member_that_was_given_nothing_joins_again_when_the_application_has_heard_that() -> None:
    member, work = taking_over()
    assert beat(member, 1_000, ErrorCode.REBALANCE_IN_PROGRESS) == []
    assert isinstance(sent(member.work_done(work, 1_500)), JoinGroupRequest)


def test_a_cooperative_member_joins_again_with_what_it_has_after_taking_over() -> None:
    member = stable(A0, assignor="cooperative-sticky")
    join = sent(beat(member, 1_000, ErrorCode.REBALANCE_IN_PROGRESS))
    sync = sent(member.answered(join, join_answer(generation=2, protocol_name="cooperative-sticky"), 1_001))
    member.answered(sync, sync_answer(A1), 1_002)
    work = begin(member)
    assert beat(member, 2_002, ErrorCode.REBALANCE_IN_PROGRESS) == []
    said = decode_subscription(sent(member.work_done(work, 2_500)).protocols[0].metadata)
    assert (said.owned, said.generation) == ((A1,), 2)
    member.check()


def test_a_member_that_is_evicted_while_it_takes_over_has_lost_that() -> None:
    for assignor in ("range", "cooperative-sticky"):
        member, work = taking_over(A0, assignor=assignor)
        assert beat(member, 1_000, ErrorCode.UNKNOWN_MEMBER_ID) == []
        assert (member.work, member.identity) == (GiveUp((A0,), lost=True), Identity())
        assert member.work_done(work, 1_001) == []
        assert member.work == GiveUp((A0,), lost=True)
        assert sent(go_along(member, 1_002)).member_id == ""
        member.check()


def test_what_must_be_given_up_besides_is_given_up_before_joining() -> None:
    member = stable(A0, assignor="cooperative-sticky")
    join = sent(member.subscribe(("a", "b"), 1))
    sync = sent(member.answered(join, join_answer(generation=2, protocol_name="cooperative-sticky"), 1))
    member.answered(sync, sync_answer(A0, B0), 1)
    go_along(member, 1)
    member.subscribe(("b",), 1)
    assert member.work == GiveUp((A0,))
    work = begin(member)
    assert beat(member, 1_001, ErrorCode.UNKNOWN_MEMBER_ID) == []
    assert member.work_done(work, 1_002) == []
    assert member.work == GiveUp((B0,), lost=True)
    assert isinstance(sent(go_along(member, 1_003)), JoinGroupRequest)


def test_an_application_that_takes_over_for_too_long_without_polling_has_left() -> None:
    member, work = taking_over(A0)
    member.polling(False, 0)
    beat(member, 5_000, ErrorCode.REBALANCE_IN_PROGRESS)
    member.answered(sent(member.tick(14_000)), HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), 14_000)
    assert [type(item.request) for item in member.tick(60_000) if isinstance(item, Send)] == [LeaveGroupRequest]
    assert member.polling(True, 61_000) == []
    assert member.work_done(work, 62_000) == []
    assert member.work == GiveUp((A0,), lost=True)


def test_what_is_taken_over_when_the_membership_ends_belongs_to_none() -> None:
    member, work = taking_over(A0)
    member.leave("enough", 1)
    assert member.work_done(work, 2) == []
    assert member.owned == ()
    member.check()


def test_an_evicted_member_has_lost_what_it_had() -> None:
    for code, kept in ((ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "me")):
        member = stable(A0, assignor="cooperative-sticky")
        assert beat(member, 1_000, code) == []
        assert member.work == GiveUp((A0,), lost=True)
        assert member.identity == Identity()
        join = sent(go_along(member, 1_001))
        assert join.member_id == kept
        member.check()


def test_a_commit_may_be_the_first_to_hear_of_it() -> None:
    member = stable(A0)
    assert member.commit_refused(ErrorCode.ILLEGAL_GENERATION, Identity(7, "old"), 1) == []
    assert member.work is None
    member.commit_refused(ErrorCode.UNKNOWN_MEMBER_ID, member.identity, 1)
    assert member.work == GiveUp((A0,), lost=True)


def test_a_coordinator_that_has_moved_is_looked_for_and_the_member_goes_on() -> None:
    member = stable(A0)
    assert beat(member, 1_000, ErrorCode.NOT_COORDINATOR) == [FindCoordinator()]
    assert (member.tick(5_000), member.deadline) == ([], 60_000)
    assert member.coordinator_found(5_000) == []
    assert isinstance(sent(member.tick(5_000)), HeartbeatRequest)
    assert member.work is None


def test_a_coordinator_that_is_silent_for_a_session_is_looked_for() -> None:
    member = stable(A0)
    sent(member.tick(1_000))
    assert member.deadline == 10_000
    assert member.tick(10_000) == [FindCoordinator()]


def test_a_join_without_an_answer_is_repeated_after_a_while() -> None:
    member = new()
    join = sent(member.coordinator_found(0))
    assert member.failed(join, 10) == [FindCoordinator()]
    assert member.coordinator_found(20) == []
    assert isinstance(sent(member.tick(110)), JoinGroupRequest)
    assert member.answered(join, join_answer(), 111) == [], "the late answer to the first is not wanted any more"


def test_a_rebalance_during_the_sync_begins_another_round() -> None:
    member = new()
    sync = sent(member.answered(sent(member.coordinator_found(0)), join_answer(), 0))
    join = sent(member.answered(sync, sync_answer(code=ErrorCode.REBALANCE_IN_PROGRESS), 1))
    assert isinstance(join, JoinGroupRequest)


def test_a_changed_subscription_makes_another_round_at_once_or_after_the_one_under_way() -> None:
    member = stable(A0)
    assert member.subscribe(("a",), 1) == []
    assert member.subscribe(("b",), 1) == []
    assert member.work == GiveUp((A0,))
    join = sent(go_along(member, 2))
    assert member.subscribe(("a", "b"), 3) == []
    sync = sent(member.answered(join, join_answer(generation=2), 4))
    join = sent(member.answered(sync, sync_answer(B0), 5))
    assert decode_subscription(join.protocols[0].metadata).topics == ("a", "b")


def test_partitions_of_topics_that_are_not_wanted_are_not_taken_over() -> None:
    member = new()
    sync = sent(member.answered(sent(member.coordinator_found(0)), join_answer(), 0))
    assert member.answered(sync, sync_answer(TopicPartition("foreign", 0)), 0) == []
    assert (member.work, member.state) == (None, State.JOINING)
    assert isinstance(sent(member.tick(100)), JoinGroupRequest)


def test_an_application_that_stays_away_leaves_the_group_until_it_comes_back() -> None:
    member = stable(A0)
    member.polling(True, 10)
    assert member.polling(False, 1_000) == []
    for now in range(1_000, 61_000, 1_000):
        beat(member, now)
    leave = sent(member.tick(61_000))
    assert isinstance(leave, LeaveGroupRequest)
    assert (member.state, member.deadline) == (State.STALE, NEVER)
    assert member.polling(True, 99_000) == []
    assert member.work == GiveUp((A0,), lost=True)
    assert sent(go_along(member, 99_000)).member_id == ""


def test_while_the_application_polls_it_is_not_away() -> None:
    member = stable(A0, settings=MemberSettings("g", session_timeout_ms=200_000, max_poll_interval_ms=60_000))
    member.polling(True, 10)
    beat(member, 100_000)
    assert member.state is State.STABLE


def test_leaving_says_goodbye_unless_the_member_is_static() -> None:
    member = stable(A0)
    leave = sent(member.leave("enough", 1))
    assert [(item.member_id, item.reason) for item in leave.members] == [("me", "enough")]
    assert (member.owned, member.deadline, member.work) == ((), NEVER, None)
    static = stable(A0, settings=MemberSettings("g", instance_id="i"))
    assert static.leave("enough", 1) == []


def test_a_member_that_leaves_while_its_coordinator_is_looked_up_says_so_if_that_can_know_it() -> None:
    member = stable(A0)
    assert member.failed(sent(member.tick(1_000)), 1_500) == [FindCoordinator()]
    assert isinstance(sent(member.leave("enough", 1_600)), LeaveGroupRequest)
    member.check()
    assert member.subscribe(("a",), 1_700) == [FindCoordinator()], "the look-up has ended with the membership"
    assert member.leave("enough", 1_800) == [], "nobody has heard of it yet"
    assert member.subscribe(("a",), 1_900) == [FindCoordinator()]


def test_errors_that_stay_end_the_membership() -> None:
    for code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED):
        member = stable(A0)
        (end,) = beat(member, 1_000, code)
        assert isinstance(end, Fail)
        assert (end.code, member.work) == (code, GiveUp((A0,), lost=True))
    member = new()
    (end,) = member.answered(sent(member.coordinator_found(0)), refused_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL), 0)
    assert isinstance(end, Fail)


@pytest.mark.slow
def test_whatever_happens_the_invariants_hold() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        member = ClassicMember(SETTINGS, [ASSIGNORS[rng.choice(["range", "cooperative-sticky"])]])
        name = next(iter(member.assignors))
        requests: list[Any] = []
        now = 0
        for _ in range(60):
            now += rng.choice((0, 1, 100, 1_000, 20_000))
            out = one_event(rng, member, name, requests, now)
            member.check()
            requests += [item.request for item in out if isinstance(item, Send)]
            if any(isinstance(item, FindCoordinator) for item in out) and rng.random() < 0.8:
                requests += [item.request for item in member.coordinator_found(now) if isinstance(item, Send)]


def one_event(rng: random.Random, member: ClassicMember, name: str, requests: list[Any], now: int) -> list[Instruction]:
    code = rng.choice([ErrorCode.NONE] * 6 + [code for code in ErrorCode if code.value < 83 and rng.random() < 0.1])
    kind = rng.randrange(7)
    if kind == 0:
        return member.subscribe(tuple(rng.sample("abc", rng.randint(1, 3))), now)
    if kind == 1 and member._under_way is not None:
        return member.work_done(member._under_way, now)
    if kind == 1 and member.work is not None:
        begin(member)
    if kind == 2:
        return member.polling(rng.random() < 0.7, now)
    if kind == 3 and rng.random() < 0.1:
        return member.leave("", now)
    if kind in (4, 5) and requests:
        request = requests.pop(rng.randrange(len(requests)))
        if rng.random() < 0.1:
            return member.failed(request, now)
        if isinstance(request, JoinGroupRequest):
            fine = code is ErrorCode.NONE
            return member.answered(request, join_answer(protocol_name=name) if fine else refused_join(code, "me"), now)
        if isinstance(request, SyncGroupRequest):
            partitions = [TopicPartition(topic, 0) for topic in rng.sample("abc", rng.randint(0, 3))]
            return member.answered(request, sync_answer(*partitions, code=code), now)
        return member.answered(request, HeartbeatResponse(error_code=code), now)
    return member.tick(now)
