"""What administrators do while all else happens: topics made, extended and deleted, replicas moved, settings changed.

Each change is drawn at once and done by a machine of its own, which may be cut off or fail, as everybody may.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from kbroker.aio import Admin
from kbroker.client.types import TopicPartition
from kbroker.protocol.errors import ErrorCode, KafkaError
from tests.simulation.acknowledged_changes import AcknowledgedChanges, Register
from tests.simulation.clients import FAILURES, MIN_IN_SYNC, REQUEST_S

REQUEST_MS = int(REQUEST_S * 1000)


class Change(NamedTuple):
    """Something that an administrator wants."""

    text: str
    act: Callable[[Admin], Coroutine[Any, Any, Any]]
    wanted: Mapping[Register, Any] = {}
    """What holds once it is acknowledged, until somebody wants something else."""


_SETTINGS = {
    "segment.bytes": ("16384", "65536", None),
    "flush.messages": ("1", None),
    "segment.ms": ("500", None),
}


def draw(rng: random.Random, topic: str, partitions: int, broker_ids: list[int]) -> Change:
    """Return something that an administrator may want: the clients' topic keeps what the promises are about."""
    kinds = (_replicas, _preferred_leaders, _settings, _new_topic, _more_partitions, _deletion)
    return rng.choice(kinds)(rng, topic, partitions, broker_ids)


async def carry_out(bootstrap: str, change: Change, changes: AcknowledgedChanges) -> None:
    """Do it, as far as it can be done: nobody tries again, and what was acknowledged is remembered."""
    attempt = changes.begin(change.wanted)
    try:
        async with Admin(bootstrap, request_timeout_ms=REQUEST_MS, retry_backoff_ms=REQUEST_MS) as admin:
            await change.act(admin)
            changes.acknowledge(attempt)
    except FAILURES:
        return


def replicas_of(moves: Mapping[TopicPartition, list[int]]) -> dict[Register, Any]:
    """Return what partitions' replicas are after these moves."""
    return {("replicas", at.topic, str(at.partition)): replicas for at, replicas in moves.items()}


def move_leader(topic: str, partition: int, broker_ids: list[int]) -> Change:
    """Return what lets the first of these lead."""

    moves = {TopicPartition(topic, partition): broker_ids}

    async def move(admin: Admin) -> None:
        await admin.alter_reassignments(moves)
        await admin.elect_leaders(None)

    return Change(f"{topic}-{partition} is for broker {broker_ids[0]} to lead", move, replicas_of(moves))


def _replicas(rng: random.Random, topic: str, partitions: int, broker_ids: list[int]) -> Change:
    wanted = {
        TopicPartition(topic, number): rng.sample(broker_ids, rng.randint(MIN_IN_SYNC, len(broker_ids)))
        for number in range(partitions)
        if rng.random() < 0.7
    }
    moves = ", ".join(f"{key.partition} to {replicas}" for key, replicas in wanted.items())
    text = f"move the replicas of {topic}: {moves or 'none'}"
    return Change(text, lambda admin: admin.alter_reassignments(wanted), replicas_of(wanted))


def _preferred_leaders(rng: random.Random, topic: str, partitions: int, broker_ids: list[int]) -> Change:
    return Change("elect preferred leaders", lambda admin: admin.elect_leaders(None))


def _settings(rng: random.Random, topic: str, partitions: int, broker_ids: list[int]) -> Change:
    key, values = rng.choice(list(_SETTINGS.items()))
    value = rng.choice(values)
    return Change(
        f"set {key} of {topic} to {value}",
        lambda admin: admin.alter_configs("topic", topic, {key: value}),
        {("setting", topic, key): value},
    )


def draw_long(rng: random.Random, topic: str, partitions: int, broker_ids: list[int]) -> Change:
    """Return something that takes a controller several steps."""
    if rng.random() < 0.5:
        return _replicas(rng, topic, partitions, broker_ids)
    name = _other_topic(rng)

    async def create_and_delete(admin: Admin) -> None:
        try:
            await admin.create_topic(name, partitions=3, replication_factor=len(broker_ids))
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        await admin.delete_topic(name)

    return Change(f"create and delete {name}", create_and_delete, {("topic", name): None})


def _other_topic(rng: random.Random) -> str:
    return f"other-{rng.randrange(4)}"


def _new_topic(rng: random.Random, topic: str, partitions: int, broker_ids: list[int]) -> Change:
    name, wanted, replicas = _other_topic(rng), rng.randint(1, 3), rng.randint(1, len(broker_ids))

    async def create(admin: Admin) -> None:
        await admin.create_topic(name, partitions=wanted, replication_factor=replicas)

    return Change(f"create {name}, {wanted} partitions x {replicas}", create, {("topic", name): wanted})


def _more_partitions(rng: random.Random, topic: str, partitions: int, broker_ids: list[int]) -> Change:
    name, wanted = _other_topic(rng), rng.randint(2, 6)
    return Change(
        f"{wanted} partitions for {name}",
        lambda admin: admin.create_partitions({name: wanted}),
        {("topic", name): wanted},
    )


def _deletion(rng: random.Random, topic: str, partitions: int, broker_ids: list[int]) -> Change:
    name = _other_topic(rng)
    return Change(f"delete {name}", lambda admin: admin.delete_topic(name), {("topic", name): None})
