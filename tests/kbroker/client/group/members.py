"""Helpers for tests of groups: topics with records, members that poll, bounded waits."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kbroker.client.consumer import Consumer
from kbroker.client.group.listener import RebalanceListener
from kbroker.client.producer import Producer
from kbroker.client.types import TopicPartition
from kbroker.protocol.records.record import Record

LIMIT_S = 60.0
QUICK: dict[str, Any] = {"heartbeat_interval_ms": 200, "session_timeout_ms": 20_000, "auto_offset_reset": "earliest"}
"""Rebalances are noticed soon."""


def member(bootstrap: str, group: str, **arguments: Any) -> Consumer:
    return Consumer(bootstrap, group_id=group, **{**QUICK, **arguments})


async def fill(bootstrap: str, topic: str, count: int, partitions: int = 3) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=number % partitions)


async def poll_until(condition: Callable[[], bool], *consumers: Consumer) -> list[Record]:
    """Poll all members until the condition holds; returns what they were given."""
    records: list[Record] = []
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            for found in await asyncio.gather(*(consumer.poll(0.1) for consumer in consumers)):
                records += found
    return records


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def shares(*consumers: Consumer) -> list[int]:
    return sorted(len(consumer.assignment()) for consumer in consumers)


class Diary(RebalanceListener):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, tuple[TopicPartition, ...]]] = []

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.entries.append(("assigned", tuple(partitions)))

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.entries.append(("revoked", tuple(partitions)))

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.entries.append(("lost", tuple(partitions)))

    def count(self, what: str) -> int:
        return sum(entry[0] == what for entry in self.entries)
