"""What the keeper does when the log refuses what groups of the newer protocol have changed."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest

from kbroker.coordinator import group_coordinator
from kbroker.coordinator.consumer_group import MUCH, ConsumerAnswer, ConsumerHeartbeat
from kbroker.coordinator.group_coordinator import MOST_UNSEEN
from kbroker.coordinator.mixed_group import MixedGroup
from kbroker.coordinator.topic_patterns import TopicPattern
from kbroker.protocol.errors import ErrorCode, KafkaError
from tests.kbroker.coordinator.conftest import Coordinated


def joining(name: str) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(name, 0, rebalance_timeout_ms=1000, topic_names=frozenset({"t"}), owned={})


async def settled(answer: Any) -> Any:
    return await asyncio.wait_for(answer, 20) if asyncio.iscoroutine(answer) else answer


async def test_a_group_whose_changes_cannot_be_written_is_read_anew(
    coordinated: Coordinated, monkeypatch: pytest.MonkeyPatch
) -> None:
    await coordinated.lead()
    groups = coordinated.groups
    first = await settled(groups.consumer_heartbeat("g", joining("a")))
    assert first.epoch == 1
    owned = groups._owned.by_number[groups.partition_for("g")]
    monkeypatch.setattr(owned.log, "append", lambda records, done: done(ErrorCode.NOT_ENOUGH_REPLICAS, -1))
    with pytest.raises(KafkaError) as refused:
        await settled(groups.consumer_heartbeat("g", joining("b")))
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await asyncio.wait_for(groups._owned.finish(), 20)
    group, error = groups.describe("g")
    assert error is ErrorCode.NONE
    assert group is not None
    assert set(group.members) == {"a"}
    again = await settled(groups.consumer_heartbeat("g", ConsumerHeartbeat("a", 1)))
    assert again.epoch == 1


async def test_members_that_are_silent_are_removed_by_the_timer(coordinated: Coordinated) -> None:
    await coordinated.lead()
    groups = coordinated.groups
    await settled(groups.consumer_heartbeat("g", joining("a")))
    coordinated.now += 46_000
    groups._timers.run_due()
    group, _ = groups.describe("g")
    assert group is not None
    assert group.is_empty


async def test_a_thread_looks_at_all_topics_for_an_expression_that_is_new(
    coordinated: Coordinated, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, bool]] = []

    def noted(expression: str, names: list[str]) -> TopicPattern:
        made.append((expression, threading.current_thread() is threading.main_thread()))
        return TopicPattern(expression, names)

    monkeypatch.setattr(group_coordinator, "TopicPattern", noted)
    await coordinated.lead()
    groups = coordinated.groups
    join = ConsumerHeartbeat("a", 0, rebalance_timeout_ms=1000, topic_regex="t.*", owned={})
    with pytest.raises(KafkaError, match="RE2"):
        await settled(groups.consumer_heartbeat("g", replace(join, topic_regex="(")))
    assert groups.describe("g")[0] is None
    assert (await settled(groups.consumer_heartbeat("g", join))).epoch == 1
    assert (await settled(groups.consumer_heartbeat("g", replace(join, member_id="b")))).epoch == 2
    assert made == [("(", False), ("t.*", False)]


async def test_after_a_coordinator_change_a_thread_looks_at_all_topics_once_for_all_members(
    coordinated: Coordinated, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[tuple[int, bool]] = []
    look_at = TopicPattern.look_at

    def noted(pattern: TopicPattern, names: list[str]) -> dict[str, bool]:
        if names:
            looks.append((len(names), threading.current_thread() is threading.main_thread()))
        return look_at(pattern, names)

    await coordinated.lead()
    join = ConsumerHeartbeat("a", 0, rebalance_timeout_ms=1000, topic_regex="t.*", owned={})
    for member_id in "ab":
        await settled(coordinated.groups.consumer_heartbeat("g", replace(join, member_id=member_id)))
    await coordinated.restart()
    await coordinated.lead()
    topics = coordinated.played.replicas.metadata.topics
    topics.update((f"t{number}", next(iter(topics.values()))) for number in range(2 * MOST_UNSEEN))
    monkeypatch.setattr(TopicPattern, "look_at", noted)
    beats = [ConsumerHeartbeat("a", 1), ConsumerHeartbeat("b", 2)]
    answers = [coordinated.groups.consumer_heartbeat("g", beat) for beat in beats]
    assert [(await settled(answer)).member_id for answer in answers] == ["a", "b"]
    assert looks == [(len(topics), False)]


async def test_expressions_that_take_long_hold_up_no_other_threads(
    coordinated: Coordinated, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def slow(expression: str, names: list[str]) -> TopicPattern:
        go_on.wait(60)
        return TopicPattern(expression, names)

    monkeypatch.setattr(group_coordinator, "TopicPattern", slow)
    await coordinated.lead()
    join = ConsumerHeartbeat("a", 0, rebalance_timeout_ms=1000, owned={})
    joining = [
        asyncio.ensure_future(
            settled(coordinated.groups.consumer_heartbeat(f"g{number}", replace(join, topic_regex=f"t{number}")))
        )
        for number in range(100)
    ]
    try:
        await asyncio.sleep(0)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "others'"), 30) == "others'"
        assert not any(each.done() for each in joining)
    finally:
        go_on.set()
    assert [answer.epoch for answer in await asyncio.gather(*joining)] == [1] * 100


async def test_of_members_that_are_assigned_much_one_is_heard_in_a_turn_of_the_loop(
    coordinated: Coordinated, monkeypatch: pytest.MonkeyPatch
) -> None:
    await coordinated.lead()
    turn, heard = 0, []
    heartbeat = MixedGroup.heartbeat

    def noted(group: MixedGroup, request: ConsumerHeartbeat, now: int) -> ConsumerAnswer:
        heard.append(turn)
        return heartbeat(group, request, now)

    monkeypatch.setattr(MixedGroup, "heartbeat", noted)

    async def turns_of(names: frozenset[str]) -> int:
        """In how many turns five members of as many groups are heard."""
        nonlocal turn
        heard.clear()
        join = ConsumerHeartbeat("m", 0, rebalance_timeout_ms=1000, topic_names=names, owned={})
        groups = [f"{len(names)}-{number}" for number in range(5)]
        joins = [asyncio.ensure_future(settled(coordinated.groups.consumer_heartbeat(each, join))) for each in groups]
        while len(heard) < len(groups):
            await asyncio.sleep(0)
            turn += 1
        assert [(await each).epoch for each in joins] == [1] * 5
        return len(set(heard))

    assert await turns_of(frozenset({"t"})) == 1
    topics = coordinated.played.replicas.metadata.topics
    wide = dict.fromkeys(range(MUCH + 1), next(iter(next(iter(topics.values())).partitions.values())))
    topics["wide"] = replace(next(iter(topics.values())), name="wide", partitions=wide)
    assert await turns_of(frozenset({"wide", "t"})) == 5
    assert await turns_of(frozenset(f"t{number}" for number in range(MUCH + 1))) == 5


async def test_a_rebalance_is_told_with_the_same_time_until_the_clock_on_the_wall_is_set(
    coordinated: Coordinated,
) -> None:
    await coordinated.lead()
    await settled(coordinated.groups.consumer_heartbeat("g", joining("a")))

    def told_at() -> int:
        rebalances, behind_ms = coordinated.groups.history("g")
        return rebalances[0].began_at + behind_ms

    began = coordinated.now
    assert told_at() == began
    coordinated.ahead_ms = 3_600_000
    assert told_at() == began + 3_600_000
    for off_ms in (1, -1, 0):
        coordinated.ahead_ms = 3_600_000 + off_ms
        assert told_at() == began + 3_600_000
