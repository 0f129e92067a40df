import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest

from kbroker.client import leaders
from kbroker.client.client_config import AdminConfig
from kbroker.client.errors import (
    BrokerError,
    NotConnected,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kbroker.client.leaders import ask_leaders
from kbroker.client.metadata import ClusterMetadata, Node, PartitionMetadata, TopicMetadata
from kbroker.client.types import TopicPartition
from kbroker.protocol.errors import ErrorCode

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class PlayedCluster:
    """Two partitions, both led by broker 1 as far as the client knows; a refresh tells how it is."""

    def __init__(self) -> None:
        self.config = AdminConfig(bootstrap="played:1", request_timeout_ms=60_000)
        self.metadata = ClusterMetadata(nodes={number: Node(number, "played", number) for number in (1, 2)})
        self.led_by = {0: 1, 1: 1}
        self.learn()
        self.led_by[1] = 2
        self.refreshes = 0

    def learn(self) -> None:
        partitions = {
            number: PartitionMetadata(number, leader, leader, (1, 2), (1, 2), (), ErrorCode.NONE)
            for number, leader in self.led_by.items()
        }
        self.metadata.topics["t"] = TopicMetadata("t", bytes(16), False, ErrorCode.NONE, partitions)

    async def attempts(self, timeout_ms: int) -> AsyncIterator[int]:
        for number in range(1_000):
            yield number
            await asyncio.sleep(0.001)

    async def refresh(self, topics: object) -> None:
        self.refreshes += 1
        self.learn()

    async def topic(self, name: str, timeout_ms: int, auto_create: bool) -> None:
        assert not auto_create

    async def ask(
        self, leader: int, wanted: Mapping[TopicPartition, str], found: dict[TopicPartition, str]
    ) -> dict[TopicPartition, BrokerError]:
        refused = {}
        for key, value in wanted.items():
            if self.led_by[key.partition] == leader:
                found[key] = f"{value} at {leader}"
            else:
                refused[key] = error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, topic=key.topic, partition=key.partition)
        return refused


async def test_only_what_a_former_leader_refused_is_asked_again_of_its_new_one() -> None:
    played = PlayedCluster()
    asked: list[tuple[int, set[TopicPartition]]] = []

    async def ask(leader: int, wanted: Mapping[TopicPartition, str], found: dict[TopicPartition, str]) -> Any:
        asked.append((leader, set(wanted)))
        return await played.ask(leader, wanted, found)

    answer = await ask_leaders(cast(Any, played), {FIRST: "a", SECOND: "b"}, ask)
    assert answer == {FIRST: "a at 1", SECOND: "b at 2"}
    assert asked == [(1, {FIRST, SECOND}), (2, {SECOND})]


async def test_who_cannot_be_reached_is_not_asked_again_once_another_leads() -> None:
    played = PlayedCluster()
    played.led_by[0] = 2

    async def ask(leader: int, wanted: Mapping[TopicPartition, str], found: dict[TopicPartition, str]) -> Any:
        if leader == 1:
            raise NotConnected("it is dead")
        return await played.ask(leader, wanted, found)

    answer = await ask_leaders(cast(Any, played), {FIRST: "a", SECOND: "b"}, ask)
    assert answer == {FIRST: "a at 2", SECOND: "b at 2"}


async def test_what_does_not_pass_is_raised_at_once_though_others_may() -> None:
    played = PlayedCluster()

    async def ask(leader: int, wanted: Mapping[TopicPartition, str], found: dict[TopicPartition, str]) -> Any:
        refused = await played.ask(leader, wanted, found)
        return refused | {FIRST: error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic="t", partition=0)}

    with pytest.raises(TopicAuthorizationFailedError):
        await ask_leaders(cast(Any, played), {SECOND: "b", FIRST: "a"}, ask)
    assert played.refreshes == 0


async def test_that_there_is_no_such_partition_is_soon_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "NEW_TOPIC_S", 0.01)
    played = PlayedCluster()
    with pytest.raises(UnknownTopicOrPartitionError, match="the topic has 2 partitions"):
        await ask_leaders(cast(Any, played), {TopicPartition("t", 2): "c"}, played.ask)
