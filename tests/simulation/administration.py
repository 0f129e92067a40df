"""What administrators do while all else happens: topics made, extended and deleted, replicas moved, settings changed.

Each change is drawn at once and done by a machine of its own, which may be cut off or fail, as everybody may.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any

from kbroker.aio import Admin
from kbroker.client.types import TopicPartition
from tests.simulation.clients import FAILURES, MIN_IN_SYNC, REQUEST_S

Change = tuple[str, Callable[[Admin], Coroutine[Any, Any, Any]]]
"""What it is, and how it is done."""

_SETTINGS = {
    "segment.bytes": ("16384", "65536", None),
    "flush.messages": ("1", None),
    "segment.ms": ("500", None),
}


def draw(rng: random.Random, topic: str, partitions: int, broker_ids: list[int]) -> Change:
    """Return something that an administrator may want: the clients' topic keeps what the promises are about."""
    kinds = (_replicas, _preferred_leaders, _settings, _new_topic, _more_partitions, _deletion)
    return rng.choice(kinds)(rng, topic, partitions, broker_ids)


async def carry_out(bootstrap: str, change: Change) -> None:
    """Do it, as far as it can be done: nobody tries again."""
    try:
        async with Admin(bootstrap, request_timeout_ms=int(REQUEST_S * 1000)) as admin:
            await change[1](admin)
    except FAILURES:
        return


def move_leader(topic: str, partition: int, broker_ids: list[int]) -> Change:
    """Return what lets the first of these lead."""

    async def move(admin: Admin) -> None:
        await admin.alter_reassignments({TopicPartition(topic, partition): broker_ids})
        await admin.elect_leaders(None)

    return f"{topic}-{partition} is for broker {broker_ids[0]} to lead", move


def _replicas(rng: random.Random, topic: str, partitions: int, broker_ids: list[int]) -> Change:
    wanted = {
        TopicPartition(topic, number): rng.sample(broker_ids, rng.randint(MIN_IN_SYNC, len(broker_ids)))
        for number in range(partitions)
        if rng.random() < 0.7
    }
    moves = ", ".join(f"{key.partition} to {replicas}" for key, replicas in wanted.items())
    return f"move the replicas of {topic}: {moves or 'none'}", lambda admin: admin.alter_reassignments(wanted)


def _preferred_leaders(rng: random.Random, topic: str, partitions: int, broker_ids: list[int]) -> Change:
    return "elect preferred leaders", lambda admin: admin.elect_leaders(None)


def _settings(rng: random.Random, topic: str, partitions: int, broker_ids: list[int]) -> Change:
    key, values = rng.choice(list(_SETTINGS.items()))
    value = rng.choice(values)
    return f"set {key} of {topic} to {value}", lambda admin: admin.alter_configs("topic", topic, {key: value})


def _other_topic(rng: random.Random) -> str:
    return f"other-{rng.randrange(4)}"


def _new_topic(rng: random.Random, topic: str, partitions: int, broker_ids: list[int]) -> Change:
    name, wanted, replicas = _other_topic(rng), rng.randint(1, 3), rng.randint(1, len(broker_ids))

    async def create(admin: Admin) -> None:
        await admin.create_topic(name, partitions=wanted, replication_factor=replicas)

    return f"create {name}, {wanted} partitions x {replicas}", create


def _more_partitions(rng: random.Random, topic: str, partitions: int, broker_ids: list[int]) -> Change:
    name, wanted = _other_topic(rng), rng.randint(2, 6)
    return f"{wanted} partitions for {name}", lambda admin: admin.create_partitions({name: wanted})


def _deletion(rng: random.Random, topic: str, partitions: int, broker_ids: list[int]) -> Change:
    name = _other_topic(rng)
    return f"delete {name}", lambda admin: admin.delete_topic(name)
