"""Sentences about groups: hostile names, and what is advised when."""

from __future__ import annotations

import pytest

from kbroker.coordinator import group_sentences as told
from kbroker.coordinator.member import Member


def member(member_id: str = "m-1", client_id: str = "m", host: str = "/10.0.0.7") -> Member:
    return Member(member_id, None, client_id, host, 45_000, 300_000, (("range", b""),))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (member(), "m-1 (10.0.0.7)"),
        (member("4711", "billing"), "4711 (billing, 10.0.0.7)"),
        (member("4711", ""), "4711 (10.0.0.7)"),
        (member("a\x1b[2J\nb", ""), "a\ufffd[2J\ufffdb (10.0.0.7)"),
        (member("x" * 1000, ""), f"{'x' * 119}… (10.0.0.7)"),
    ],
)
def test_a_member_is_named_with_its_client_and_machine_and_nothing_that_moves_a_cursor(
    given: Member, said: str
) -> None:
    assert told.name_of(given) == said


def test_a_long_reason_of_a_client_is_cut_short() -> None:
    assert len(told.left(member(), "why " * 1000).what) < 300


@pytest.mark.parametrize(("ms", "said"), [(0, "0.0 s"), (340, "0.3 s"), (42_400, "42 s"), (1_800_000, "30 min")])
def test_a_time_is_said_as_people_say_it(ms: int, said: str) -> None:
    assert told.seconds(ms) == said


def test_of_many_members_ten_are_named() -> None:
    said = told.unsynced([member(f"m-{number}") for number in range(600)], 60_000).what
    assert "m-9 (" in said
    assert "m-10 (" not in said
    assert "and 590 more did not ask" in said
    assert " more" not in told.unsynced([member()], 60_000).what


def test_who_left_because_its_poll_was_late_is_told_which_setting_to_raise() -> None:
    assert told.left(member(), "the consumer is being closed").advice == ""
    assert "max.poll.interval.ms" in told.left(member(), "consumer poll timeout has expired.").advice
    assert told.left(member()).what.endswith("left, and did not say why")
    assert "max.poll.interval.ms (now 300 s)" in told.left(member()).advice, "librdkafka leaves in silence"
    assert "max.poll.interval.ms" in told.late(member()).advice
    assert "now 300 s" in told.kept_partitions(member()).advice


def test_a_static_member_that_expired_is_told_to_have_more_time_for_its_restart() -> None:
    assert "that a restart takes" in told.expired(member(), 45_000, is_static=True).advice
    assert "close its consumer" in told.expired(member(), 45_000, is_static=False).advice


def test_a_new_member_after_one_of_its_client_had_gone_is_taken_for_a_restart() -> None:
    assert told.joined(member()).advice == ""
    again = told.joined(member(), "back", gone_for_ms=3000)
    assert again.what == "m-1 (10.0.0.7) joined, 3.0 s after a member of the same client had gone: back"
    assert "group.instance.id" in again.advice
    assert told.joined(member(), is_static=True, gone_for_ms=3000).advice == ""


def test_who_joins_again_says_whether_it_wants_something_else_or_leads() -> None:
    assert "other words for its assignor" in told.joined_again(member(), "", leads=True, is_changed=True).what
    anew = told.joined_again(member(), "why", leads=True, is_changed=True, topics="now also topic u").what
    assert anew == "m-1 (10.0.0.7) joined again for other topics: now also topic u: why"
    assert "as leaders do when topics" in told.joined_again(member(), "", leads=True, is_changed=False).what
    assert told.joined_again(member(), "why", leads=False, is_changed=False).what == "m-1 (10.0.0.7) joined again: why"


def test_topics_that_came_or_left_are_named_whole_and_not_more_than_fit() -> None:
    assert told.other_topics({"t", "u"}, {"u", "t"}) == ""
    assert told.other_topics({"t"}, {"u", "a"}) == "now also topic a, topic u; no longer topic t"
    many = told.other_topics((), {f"t-{number:03}" for number in range(500)})
    assert many.endswith("topic t-009 and 490 more")
    long = told.other_topics((), {"x" * 249, "y" * 249, "z" * 249})
    assert long == f"now also topic {'x' * 249} and 2 more"
    assert told.other_topics((), {"a\x1b[2Jb"}) == "now also topic a\ufffd[2Jb"


def test_changed_topics_are_named_with_what_changed() -> None:
    one, other = b"1" * 16, b"2" * 16
    before = {"gone": (one, 1), "new": (one, 1), "grew": (one, 3), "same": (one, 2)}
    after = {"new": (other, 1), "grew": (one, 6), "same": (one, 2), "came": (one, 1)}
    said = told.topics_changed(before, after).what
    assert said == (
        "topic came came; topic gone was deleted or is read no longer; topic new was made anew; "
        "topic grew has 6 partitions, it had 3"
    )
