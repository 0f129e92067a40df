"""The map of partitions and brokers: who leads, who follows in step, who does not, what moves. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kbroker.client.types import PartitionDescription, Reassignment, TopicDescription, TopicPartition

LEADER, IN_SYNC, OUT_OF_SYNC, OFFLINE, ADDING, REMOVING = (
    "leader",
    "in-sync",
    "out-of-sync",
    "offline",
    "adding",
    "removing",
)
CELL = 13
"""Pixels from one cell to the next."""
Placement = tuple[int | None, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""A partition's leader, replicas and ISR, and which of the replicas are just being added."""
Moves = Mapping[TopicPartition, Reassignment]
"""Those under way."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One replica: where it is drawn, and how it is."""

    x: int
    y: int
    state: str
    title: str


@dataclass(frozen=True, slots=True)
class TopicMap:
    """A topic's cells: a column for each partition, a row for each broker."""

    topic: str
    width: int
    height: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """How much of the partitions a broker has."""

    broker: int
    leaders: int
    replicas: int
    out_of_sync: int


def draw(topic: TopicDescription, brokers: Sequence[int], moves: Moves, most: int = 200) -> TopicMap:
    """Draw a topic, its first `most` partitions."""
    rows = {broker: row for row, broker in enumerate(brokers)}
    cells = []
    for column, partition in enumerate(topic.partitions[:most]):
        move = moves.get(TopicPartition(topic.name, partition.partition))
        for broker in partition.replicas:
            row = rows.get(broker)
            if row is not None:
                state = state_of(partition, broker, move)
                title = f"{topic.name}-{partition.partition} on broker {broker}: {state}"
                cells.append(Cell(column * CELL, row * CELL, state, title))
    shown = min(len(topic.partitions), most)
    return TopicMap(topic.name, max(shown, 1) * CELL, max(len(rows), 1) * CELL, tuple(cells))


def state_of(partition: PartitionDescription, broker: int, move: Reassignment | None) -> str:
    """Say how one replica is."""
    if move is not None and broker in move.adding:
        return ADDING
    if move is not None and broker in move.removing:
        return REMOVING
    if partition.leader == broker:
        return LEADER
    if partition.leader is None or broker in partition.offline_replicas:
        return OFFLINE
    return IN_SYNC if broker in partition.isr else OUT_OF_SYNC


def placements_of(topics: Iterable[TopicDescription], moves: Moves) -> Counter[Placement]:
    """Count the partitions that are placed alike: of very many partitions there are few kinds."""
    return Counter(
        (each.leader, each.replicas, each.isr, _adding(topic.name, each.partition, moves) if moves else ())
        for topic in topics
        for each in topic.partitions
    )


def _adding(topic: str, partition: int, moves: Moves) -> tuple[int, ...]:
    move = moves.get(TopicPartition(topic, partition))
    return () if move is None else move.adding


def brokers_in(placements: Iterable[Placement], known: Iterable[int]) -> list[int]:
    """Return the brokers that are there, or that should have a replica."""
    return sorted({broker for _, replicas, _, _ in placements for broker in replicas}.union(known))


def loads(placements: Mapping[Placement, int], brokers: Iterable[int]) -> list[BrokerLoad]:
    """Count each broker's part."""
    leaders, held, out_of_sync = (dict.fromkeys(brokers, 0) for _ in range(3))
    for (leader, replicas, isr, adding), count in placements.items():
        if leader in leaders:
            leaders[leader] += count
        for broker in replicas:
            held[broker] = held.get(broker, 0) + count
            out_of_sync[broker] = out_of_sync.get(broker, 0) + count * (broker not in isr and broker not in adding)
    return [BrokerLoad(broker, leaders[broker], held[broker], out_of_sync[broker]) for broker in leaders]
