from typing import Any

from kbroker.client.group.consumer_member import ConsumerMember, State
from kbroker.client.group.events import (
    NEVER,
    Fail,
    FindCoordinator,
    GiveUp,
    Identity,
    Instruction,
    MemberSettings,
    Send,
    TakeOver,
    Work,
)
from kbroker.client.types import TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

SETTINGS = MemberSettings("g", max_poll_interval_ms=60_000, rack="east", server_assignor="uniform")
ID_A, ID_B = bytes([1] * 16), bytes([2] * 16)
NAMES = {ID_A: "a", ID_B: "b"}
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def sent(instructions: list[Instruction]) -> ConsumerGroupHeartbeatRequest:
    (only,) = instructions
    assert isinstance(only, Send)
    assert isinstance(only.request, ConsumerGroupHeartbeatRequest)
    return only.request


def answer(epoch: int, assigned: dict[bytes, list[int]] | None = None) -> ConsumerGroupHeartbeatResponse:
    response = ConsumerGroupHeartbeatResponse
    assignment = None
    if assigned is not None:
        assignment = response.Assignment(
            topic_partitions=[
                response.TopicPartitions(topic_id=key, partitions=value) for key, value in assigned.items()
            ]
        )
    return response(
        error_code=ErrorCode.NONE,
        member_id="me",
        member_epoch=epoch,
        heartbeat_interval_ms=1_000,
        assignment=assignment,
    )


def refused(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, member_epoch=0, heartbeat_interval_ms=0)


def owned(request: ConsumerGroupHeartbeatRequest) -> Any:
    topics = request.topic_partitions
    return topics if topics is None else {item.topic_id: list(item.partitions) for item in topics}


def begin(member: ConsumerMember) -> Work:
    """The application begins to go along."""
    work = member.work
    assert work is not None
    member.work_begun(work)
    member.check()
    return work


def go_along(member: ConsumerMember, now: int) -> list[Instruction]:
    return member.work_done(begin(member), now)


def new(settings: MemberSettings = SETTINGS) -> tuple[ConsumerMember, ConsumerGroupHeartbeatRequest]:
    """A member and its first heartbeat."""
    member = ConsumerMember(settings, "me")
    member.learn_topics(NAMES, 0)
    assert member.subscribe(("a", "b"), 0) == [FindCoordinator()]
    return member, sent(member.coordinator_found(0))


def stable(settings: MemberSettings = SETTINGS) -> ConsumerMember:
    """A member with A0, acknowledged."""
    member, join = new(settings)
    assert member.answered(join, answer(1, {ID_A: [0]}), 0) == []
    assert member.work == TakeOver((A0,), (A0,), ())
    acknowledged = sent(go_along(member, 0))
    assert owned(acknowledged) == {ID_A: [0]}
    assert member.answered(acknowledged, answer(1), 0) == []
    member.check()
    return member


def test_the_first_heartbeat_says_all_the_next_ones_only_that_the_member_lives() -> None:
    member, join = new()
    assert (join.member_id, join.member_epoch, join.rack_id, join.server_assignor) == ("me", 0, "east", "uniform")
    assert (join.subscribed_topic_names, join.rebalance_timeout_ms, owned(join)) == (["a", "b"], 60_000, {})
    member.answered(join, answer(1), 0)
    assert member.deadline == 1_000
    later = sent(member.tick(1_000))
    assert (later.member_epoch, later.subscribed_topic_names, later.rebalance_timeout_ms) == (1, None, -1)
    assert (owned(later), later.rack_id, later.server_assignor) == (None, None, None)


def test_an_assignment_is_acknowledged_when_the_application_has_gone_along() -> None:
    member = stable()
    assert member.identity == Identity(1, "me")
    beat = sent(member.tick(1_000))
    member.answered(beat, answer(2, {ID_A: [1], ID_B: [0]}), 1_000)
    assert member.work == TakeOver((A1, B0), (A1, B0), (A0,))
    work = begin(member)
    assert owned(sent(member.tick(2_000))) is None, "nothing is acknowledged before"
    member.work_done(work, 2_100)
    beat = sent(member.answered(member._heartbeat, answer(2), 2_200))  # type: ignore[arg-type]
    assert owned(beat) == {ID_A: [1], ID_B: [0]}
    assert member.owned == (A1, B0)


def test_an_assignment_that_changes_nothing_is_acknowledged_at_once() -> None:
    member = stable()
    beat = sent(member.tick(1_000))
    assert owned(sent(member.answered(beat, answer(2, {ID_A: [0]}), 1_000))) == {ID_A: [0]}
    assert member.work is None


def test_topics_whose_names_are_not_known_yet_wait_for_them() -> None:
    member, join = new()
    member.learn_topics({}, 0)
    member.answered(join, answer(1, {ID_A: [0]}), 0)
    assert (member.work, member.unknown_topics) == (None, True)
    member.learn_topics(NAMES, 0)
    assert (member.work, member.unknown_topics) == (TakeOver((A0,), (A0,), ()), False)


def test_a_fenced_member_loses_all_and_joins_anew() -> None:
    for code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
        member = stable()
        assert member.answered(sent(member.tick(1_000)), refused(code), 1_000) == []
        assert member.work == GiveUp((A0,), lost=True)
        assert member.identity == Identity()
        member.check()
        join = sent(go_along(member, 1_001))
        assert (join.member_epoch, join.subscribed_topic_names, owned(join)) == (0, ["a", "b"], {})


def test_a_fenced_member_that_has_nothing_joins_anew_at_once() -> None:
    member, join = new()
    member.answered(join, answer(1), 0)
    again = sent(member.answered(sent(member.tick(1_000)), refused(ErrorCode.FENCED_MEMBER_EPOCH), 1_000))
    assert (again.member_epoch, again.subscribed_topic_names, owned(again)) == (0, ["a", "b"], {})


def test_what_comes_on_top_is_not_acknowledged_while_the_application_begins_with_it() -> None:
    member = stable()
    member.answered(sent(member.tick(1_000)), answer(2, {ID_A: [0, 1]}), 1_000)
    work = begin(member)
    assert (member.learn_topics(NAMES, 1_001), member.work) == ([], None)
    beat = sent(member.tick(2_000))
    assert (owned(beat), member.answered(beat, answer(2), 2_000)) == (None, [])
    assert owned(sent(member.work_done(work, 2_500))) == {ID_A: [0, 1]}


def test_an_assignment_taken_back_while_the_application_begins_with_it_is_acknowledged_after_that() -> None:
    member, join = new()
    member.answered(join, answer(1, {ID_A: [0]}), 0)
    work = begin(member)
    beat = sent(member.tick(1_000))
    assert member.answered(beat, answer(1, {}), 1_001) == [], "the application has begun with A0"
    beat = sent(member.work_done(work, 1_500))
    assert owned(beat) is None
    assert member.work == TakeOver((), (), (A0,))
    member.answered(beat, answer(1), 1_501)
    assert owned(sent(go_along(member, 1_600))) == {}


def test_a_member_that_is_fenced_while_it_takes_over_has_lost_that_and_joins_after_it() -> None:
    member, join = new()
    member.answered(join, answer(1, {ID_A: [0]}), 0)
    work = begin(member)
    assert member.answered(sent(member.tick(1_000)), refused(ErrorCode.FENCED_MEMBER_EPOCH), 1_000) == []
    assert member.work_done(work, 1_500) == []
    assert member.work == GiveUp((A0,), lost=True)
    assert sent(go_along(member, 1_600)).member_epoch == 0
    member.check()


def test_a_member_that_is_fenced_while_it_gives_all_up_joins_after_that() -> None:
    member = stable()
    member.answered(sent(member.tick(1_000)), answer(1, {}), 1_000)
    work = begin(member)
    assert member.answered(sent(member.tick(2_000)), refused(ErrorCode.UNKNOWN_MEMBER_ID), 2_000) == []
    assert (sent(member.work_done(work, 2_500)).member_epoch, member.owned) == (0, ())


def test_what_is_taken_over_when_the_membership_ends_belongs_to_none() -> None:
    member, join = new()
    member.answered(join, answer(1, {ID_A: [0]}), 0)
    work = begin(member)
    member.leave("enough", 1)
    assert member.work_done(work, 2) == []
    assert member.owned == ()


def test_what_was_acknowledged_is_not_said_again() -> None:
    assert owned(sent(stable().tick(1_000))) is None


def test_a_changed_subscription_is_said_at_once() -> None:
    member = stable()
    beat = sent(member.subscribe(("b",), 10))
    assert (beat.subscribed_topic_names, beat.member_epoch) == (["b"], 1)
    assert member.subscribe(("a",), 11) == [], "one request at a time"
    assert sent(member.answered(beat, answer(2), 12)).subscribed_topic_names == ["a"]


def test_after_an_error_everything_is_said_again() -> None:
    member = stable()
    beat = sent(member.tick(1_000))
    assert member.failed(beat, 1_500) == [FindCoordinator()]
    again = sent(member.coordinator_found(2_000))
    assert (again.member_epoch, again.subscribed_topic_names, owned(again)) == (1, ["a", "b"], {ID_A: [0]})
    assert member.answered(again, refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), 2_000) == []
    assert member.deadline == 2_100
    assert member.answered(sent(member.tick(2_100)), refused(ErrorCode.NOT_COORDINATOR), 2_100) == [FindCoordinator()]


def test_an_answer_lost_while_the_application_goes_along_is_asked_for_with_what_is_owned() -> None:
    member = stable()
    beat = sent(member.tick(1_000))
    member.answered(beat, answer(2, {ID_A: [1]}), 1_000)
    assert member.work == TakeOver((A1,), (A1,), (A0,))
    work = begin(member)
    member.failed(sent(member.tick(2_000)), 2_500)
    again = sent(member.coordinator_found(2_500))
    assert (again.subscribed_topic_names, again.rebalance_timeout_ms) == (["a", "b"], 60_000)
    assert owned(again) == {ID_A: [0, 1]}, "what the application may have"
    member.work_done(work, 2_600)
    later = sent(member.answered(again, answer(2, {ID_A: [1]}), 2_700))
    assert owned(later) == {ID_A: [1]}, "that it went along is still to be said"
    member.check()


def test_a_member_that_leaves_while_it_joins_says_so() -> None:
    member, _ = new()
    goodbye = sent(member.leave("", 1))
    assert (goodbye.member_id, goodbye.member_epoch) == ("me", -1)
    assert member.leave("", 2) == [], "once"


def test_a_member_that_leaves_while_its_coordinator_is_looked_up_says_so_if_that_can_know_it() -> None:
    member = stable()
    member.failed(sent(member.tick(1_000)), 1_500)
    assert sent(member.leave("", 1_600)).member_epoch == -1
    member.check()
    assert member.subscribe(("a",), 1_700) == [FindCoordinator()], "the look-up has ended with the membership"
    assert member.leave("", 1_800) == [], "nobody has heard of it yet"
    assert member.subscribe(("a",), 1_900) == [FindCoordinator()]


def test_an_application_that_stays_away_leaves_until_it_comes_back() -> None:
    member = stable()
    member.polling(False, 0)
    assert sent(member.tick(60_000)).member_epoch == -1
    assert (member.state, member.deadline) == (State.STALE, NEVER)
    member.polling(True, 70_000)
    assert member.work == GiveUp((A0,), lost=True)
    assert sent(go_along(member, 70_000)).member_epoch == 0


def test_leaving_differs_for_static_members() -> None:
    assert sent(stable().leave("", 1)).member_epoch == -1
    static = MemberSettings("g", instance_id="i")
    goodbye = sent(stable(static).leave("", 1))
    assert (goodbye.member_epoch, goodbye.instance_id) == (-2, "i")


def test_an_old_cluster_is_told_from_other_failures() -> None:
    member, join = new()
    (end,) = member.answered(join, refused(ErrorCode.UNSUPPORTED_VERSION), 0)
    assert isinstance(end, Fail)
    assert "group_protocol='classic'" in end.message
    member = stable()
    (end,) = member.answered(sent(member.tick(1_000)), refused(ErrorCode.GROUP_MAX_SIZE_REACHED), 1_000)
    assert isinstance(end, Fail)
    assert (end.code, member.work) == (ErrorCode.GROUP_MAX_SIZE_REACHED, GiveUp((A0,), lost=True))


def test_a_refused_commit_makes_the_member_ask() -> None:
    member = stable()
    assert sent(member.commit_refused(ErrorCode.STALE_MEMBER_EPOCH, member.identity, 5)).member_epoch == 1
