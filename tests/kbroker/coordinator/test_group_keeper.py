"""What the keeper does when the log refuses what groups of the newer protocol have changed."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest

from kbroker.coordinator import group_coordinator
from kbroker.coordinator.consumer_group import ConsumerHeartbeat
from kbroker.coordinator.topic_patterns import TopicPattern
from kbroker.protocol.errors import ErrorCode, KafkaError
from tests.kbroker.coordinator.conftest import Coordinated


def joining(name: str) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(name, 0, rebalance_timeout_ms=1000, topic_names=frozenset({"t"}), owned={})


async def settled(answer: Any) -> Any:
    return await asyncio.wait_for(answer, 10) if asyncio.iscoroutine(answer) else answer


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
    await asyncio.wait_for(groups._owned.finish(), 10)
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
