"""The story of a group: what groups of both protocols tell, and how much is kept."""

from __future__ import annotations

from typing import Any

from kbroker.coordinator.consumer_group import ConsumerGroup, ConsumerHeartbeat
from kbroker.coordinator.group_sentences import Told
from kbroker.coordinator.group_story import MOST_REASONS, GroupStories, GroupStory, Rebalance
from kbroker.protocol.errors import ErrorCode
from kbroker.security.authorizer import EVERYTHING
from tests.kbroker.coordinator.play import GroupPlay, subscription
from tests.kbroker.coordinator.test_consumer_group import Client, FakeTopics, make


def last(play: GroupPlay) -> Rebalance:
    return play.group.story.rebalances[-1]


def formed(*names: str) -> GroupPlay:
    """A stable group of these, of which nothing is told yet."""
    play = GroupPlay()
    play.form(*names)
    play.group.story.rebalances.clear()
    return play


def go_on(play: GroupPlay, *names: str) -> None:
    """Let these join again and get their shares."""
    for name in names:
        play.join(name)
    for name in sorted(names, key=lambda each: play.ids[each] != play.group.leader):
        play.sync(name, dict.fromkeys(names, b""))
        while play.writes:
            play.written()


# --- the classic protocol -------------------------------------------------------------------------------------


def test_a_member_that_leaves_is_told_with_its_reason_and_who_held_up_the_others() -> None:
    play = formed("a", "b", "c")
    play.leave("c", reason="the consumer is being closed")
    assert last(play).ended_at is None
    play.wait(300)
    play.join("a")
    play.wait(4000)
    go_on(play, "b")
    play.sync("a", {})
    while play.writes:
        play.written()
    told = last(play)
    assert told.reasons == ["c-1 (host) left: the consumer is being closed"]
    assert told.advice == []
    assert (
        told.outcome
        == "generation 3 of 2 members; the group stood still for 4.3 s, all of it until b-1 (host) was there"
    )
    assert (told.generation_id, told.members) == (3, 2)
    assert told.ended_at is not None
    assert told.ended_at - told.began_at == 4300


def test_a_poll_that_comes_late_is_told_with_the_setting_to_raise() -> None:
    play = formed("a", "b")
    play.join("c", version=3, session_ms=200_000)
    play.join("a", session_ms=200_000)
    for _ in range(7):
        play.wait(9_000)
        play.heartbeat("b")
    assert [reason.split(" (")[0] for reason in last(play).reasons] == ["c-1", "b-1"]
    assert "did not join again in 60 s, its poll came late" in last(play).reasons[1]
    assert "max.poll.interval.ms" in last(play).advice[0]


def test_a_session_that_ended_is_told_and_a_restart_is_recognised() -> None:
    play = formed("a", "b")
    for _ in range(2):
        play.wait(6_000)
        play.heartbeat("a")
    assert "b-1 (host) was expelled: it was not heard of for its session timeout of 10 s" in last(play).reasons
    go_on(play, "a")
    play.ids.pop("b")
    play.join("b", version=3)
    assert last(play).reasons[0].startswith("b-2 (host) joined, ")
    assert "group.instance.id" in last(play).advice[0]


def test_another_member_that_goes_during_a_round_belongs_to_the_same_rebalance() -> None:
    play = formed("a", "b", "c")
    play.leave("c")
    play.leave("b")
    go_on(play, "a")
    (told,) = play.group.story.rebalances
    assert [reason.split(" ")[0] for reason in told.reasons] == ["c-1", "b-1"]
    assert told.outcome.startswith("generation 3 of 1 member; ")


def test_a_leader_that_assigns_slowly_is_named() -> None:
    play = formed("a", "b")
    play.leave("b")
    play.join("a")
    play.wait(3_000)
    play.sync("a", {})
    play.written()
    assert last(play).outcome.endswith("3.0 s until a-1 (host) had assigned")


def test_a_member_that_never_asks_for_its_share_is_told() -> None:
    play = formed("a", "b")
    play.join("a", {"range": subscription("t", "u")}, session_ms=200_000)
    play.join("b", session_ms=200_000)
    assert "a-1 (host) joined again for other topics: now also topic u" in last(play).reasons[0]
    play.sync("a", {})
    play.wait(61_000)
    assert "b-1 (host) did not ask for the assignment in 60 s" in last(play).reasons[-1]


def test_topics_that_a_member_wants_anew_and_no_longer_are_named_also_while_the_others_are_waited_for() -> None:
    play = formed("a", "b", "c", "d")
    play.join("b", {"range": subscription("u", "v")}, reason="subscribe")
    assert last(play).reasons == [
        "b-1 (host) joined again for other topics: now also topic u, topic v; no longer topic t: subscribe"
    ]
    play.join("c", {"range": subscription("t", "u")})
    play.join("a", {"range": subscription("t", "u")})
    play.join("d", {"range": subscription("t") + b"has more"})
    assert last(play).reasons[1:] == ["c-1 (host) joined again for other topics: now also topic u"], "said once"


def test_other_words_for_the_assignor_are_no_other_topics() -> None:
    play = formed("a", "b")
    play.join("b", {"range": subscription("t") + b"what it has by now"})
    (reason,) = last(play).reasons
    assert reason == "b-1 (host) joined again with other words for its assignor, or other assignors"


def test_topics_that_cannot_be_known_are_not_said_to_be_left() -> None:
    play = formed("a", "b")
    play.join("b", {"range": subscription("u"), "own": b"in a format of its own"})
    (reason,) = last(play).reasons
    assert "topic" not in reason


def test_a_static_member_that_comes_back_makes_nobody_wait() -> None:
    play = GroupPlay()
    play.join("a", instance="one")
    play.sync("a", {})
    play.written()
    former = play.ids.pop("a")
    play.join("a", instance="one")
    told = last(play)
    assert told.reasons == [f"one came back as a-2 (host); it was {former}"]
    assert (told.began_at, told.outcome) == (told.ended_at, "nobody had to stop reading")


def test_the_last_one_to_go_leaves_a_group_that_is_told_to_be_empty() -> None:
    play = formed("a")
    play.leave("a")
    assert last(play).outcome == "nobody is in the group any more"


def test_an_assignment_that_cannot_be_stored_is_told() -> None:
    play = formed("a")
    play.join("a")
    play.sync("a", {})
    play.written(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert "could not be written: NOT_ENOUGH_REPLICAS" in last(play).reasons[-1]
    assert "__consumer_offsets" in last(play).advice[0]


def test_heartbeats_and_commits_tell_nothing() -> None:
    play = formed("a")
    play.heartbeat("a")
    play.commit_error("a")
    assert not play.group.story.rebalances


# --- the newer protocol ---------------------------------------------------------------------------------------


def settle(clients: list[Client], now: int) -> None:
    for _ in range(4):
        for client in clients:
            client.heartbeat(now)


def newer() -> tuple[ConsumerGroup, FakeTopics, list[Client]]:
    group, topics = make({"t": 4})
    clients = [Client(group, name, {"t"}) for name in ("a", "b")]
    settle(clients, 1000)
    group.story.rebalances.clear()
    return group, topics, clients


def test_members_of_the_newer_protocol_are_told_until_everybody_has_its_share() -> None:
    group, _, clients = newer()
    clients.append(Client(group, "c", {"t"}))
    clients[2].heartbeat(2000)
    assert group.story.open is not None
    settle(clients, 5000)
    (told,) = group.story.rebalances
    assert told.reasons == ["c () joined"]
    assert told.outcome.startswith(f"generation {group.epoch} of 3 members; it took 3.0 s, in which only what moved")


def test_topics_that_a_member_of_the_newer_protocol_wants_anew_are_named_and_what_its_pattern_means() -> None:
    group, topics, clients = newer()
    for name in ("u-1", "u-2"):
        topics.set(name, 1)
    settle(clients, 2000)

    def asks(**wishes: Any) -> str:
        heartbeat = ConsumerHeartbeat("a", clients[0].epoch, owned=clients[0].owned, authority=EVERYTHING, **wishes)
        answer = group.heartbeat(heartbeat, 3000)
        clients[0].epoch = answer.epoch
        clients[0].owned = clients[0].owned if answer.assigned is None else dict(answer.assigned)
        settle(clients, 4000)
        (reason,) = group.story.rebalances[-1].reasons
        return reason

    assert asks(topic_names=frozenset({"u-1"})) == "a () changed what it reads: now also topic u-1; no longer topic t"
    assert asks(topic_regex="u-.*") == "a () changed what it reads: now also topic u-2"
    assert asks(topic_regex="u-[12]") == "a () changed its pattern, its assignor or its rack"
    assert asks(topic_regex="") == "a () changed what it reads: no longer topic u-2"
    assert asks(rack_id="r") == "a () changed its pattern, its assignor or its rack"


def test_a_topic_that_grows_and_a_member_that_is_not_heard_of_are_told() -> None:
    group, topics, clients = newer()
    topics.set("t", 6)
    settle(clients, 2000)
    assert group.story.rebalances[-1].reasons == ["topic t has 6 partitions, it had 4"]
    clients[0].heartbeat(40_000)
    assert group.tick(50_000) == group.story.rebalances[-1].reasons
    assert group.story.rebalances[-1].reasons == [
        "b () was expelled: it was not heard of for its session timeout of 45 s"
    ]
    settle(clients[:1], 51_000)
    assert group.story.open is None


def test_partitions_that_are_not_given_up_in_time_are_told_as_a_late_poll() -> None:
    group, _, clients = newer()
    Client(group, "c", {"t"}).heartbeat(2000)
    for now in (3000, 20_000, 40_000, 60_000):
        for client in clients:
            group.heartbeat(ConsumerHeartbeat(client.name, client.epoch, owned=client.owned), now)
    group.tick(70_000)
    assert any("did not give up partitions in 60 s" in reason for reason in group.story.rebalances[-1].reasons)
    assert any("max.poll.interval.ms" in advice for advice in group.story.rebalances[-1].advice)


# --- how it is kept -------------------------------------------------------------------------------------------


def tell(story: GroupStory, count: int, text: str = "x") -> None:
    for number in range(count):
        story.note(number, Told(f"{text}{number}"))


def test_only_the_last_ones_of_a_group_are_kept() -> None:
    stories = GroupStories(3)
    tell(stories.of("g"), 5)
    assert [each.reasons for each in stories.told("g")] == [["x2"], ["x3"], ["x4"]]
    assert stories.told("other") == []
    tell(GroupStories(0).of("g"), 5)


def test_all_groups_together_have_a_limit_and_those_told_longest_ago_go_first() -> None:
    stories = GroupStories(100, most_sentences=12)
    for name in ("a", "b", "c"):
        tell(stories.of(name), 2)
    assert [len(stories.told(name)) for name in ("a", "b", "c")] == [2, 2, 2]
    tell(stories.of("a"), 1, "new")
    assert [len(stories.told(name)) for name in ("a", "b", "c")] == [3, 1, 2]
    tell(stories.of("c"), 100)
    assert [len(stories.told(name)) for name in ("a", "b", "c")] == [0, 0, 6]


def test_clients_and_groups_with_long_names_take_no_more_room_than_others() -> None:
    stories = GroupStories(100)
    tell(stories.of("g" * 256), 1)
    assert not stories.told("g" * 256)
    story = stories.of("g" * 255)
    story.gone(1000, "c" * 30_000)
    assert [len(name) for name in story._gone] == [120]
    assert story.gone_for_ms(2000, "c" * 30_000) == 1000


def test_a_group_that_is_made_anew_goes_on_with_its_story() -> None:
    stories = GroupStories(100)
    tell(stories.of("g"), 1)
    tell(stories.of("g"), 1, "later")
    assert len(stories.told("g")) == 2


def test_a_rebalance_without_end_keeps_its_first_reasons_and_a_number() -> None:
    story = GroupStory()
    for number in range(1000):
        story.begin(number, Told("again"))
    (told,) = story.rebalances
    assert told.all_reasons() == ["again"] * MOST_REASONS + [f"and {1000 - MOST_REASONS} more"]


def test_a_coordinator_that_moves_ends_what_is_under_way_and_says_so() -> None:
    story = GroupStory()
    story.moved_away(1, "moved")
    assert not story.rebalances, "of a group of which nothing is told"
    story.begin(2, Told("why"))
    story.moved_away(3, "moved")
    assert (story.rebalances[-1].ended_at, story.rebalances[-1].outcome) == (3, "moved")
    story.moved_away(4, "moved")
    assert (story.rebalances[-1].reasons, len(story.rebalances)) == (["moved"], 2)
