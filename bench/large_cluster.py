"""A cluster's znodes on paper: so many brokers, topics and partitions, all led and in sync, as if made long ago."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kbroker.controller import znodes
from kbroker.controller.znodes import (
    BrokerRegistration,
    Endpoint,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    TopicPartition,
)

PORTS_FROM = 20_000


@dataclass(frozen=True, slots=True)
class Shape:
    """How large it is. The brokers have the ids from 1 on."""

    brokers: int = 100
    topics: int = 10_000
    partitions: int = 100_000
    replicas: int = 3

    @property
    def broker_ids(self) -> range:
        """Return the ids."""
        return range(1, self.brokers + 1)

    def __str__(self) -> str:
        """How it is named in a table."""
        text = f"{self.brokers} brokers, {self.partitions:,} partitions of {self.topics:,} topics"
        return f"{text}, {self.replicas} replica{'' if self.replicas == 1 else 's'} each"

    def assignments(self) -> Iterator[tuple[str, TopicAssignment]]:
        """Give each topic with its replicas: leaders by turns, followers drawn."""
        rng = random.Random(1)
        ids = list(self.broker_ids)
        made = 0
        for number in range(self.topics):
            partitions = {}
            for each in range(self.partitions // self.topics):
                leader = ids[made % len(ids)]
                made += 1
                others = rng.sample([broker_id for broker_id in ids if broker_id != leader], self.replicas - 1)
                partitions[each] = ReplicaAssignment((leader, *others))
            yield f"topic-{number:06}", TopicAssignment((number + 1).to_bytes(16, "big"), partitions)

    def znodes(self, registered: Iterable[tuple[str, bytes | None]] = ()) -> Iterator[tuple[str, bytes | None]]:
        """Give path and data of all nodes, parents first; brokers that are `registered` came before the topics."""
        yield from dict.fromkeys((*_parents(), *znodes.TOP_LEVEL_PATHS)).items()
        yield znodes.CONTROLLER_EPOCH, b"1"
        yield from registered
        for name, topic in self.assignments():
            yield znodes.topic_path(name), znodes.encode_topic(topic)
            yield znodes.partitions_path(name), None
            for number, assignment in topic.partitions.items():
                state = PartitionState(assignment.replicas[0], 0, assignment.replicas, 1)
                yield znodes.partition_path(name, number), None
                yield znodes.state_path(name, number), znodes.encode_partition_state(state)

    def partitions_on(self, broker_id: int) -> list[TopicPartition]:
        """Return those that the broker has a replica of."""
        return [
            TopicPartition(name, number)
            for name, topic in self.assignments()
            for number, each in topic.partitions.items()
            if broker_id in each.replicas
        ]


def _parents() -> list[str]:
    """Return what stands above the nodes that every broker makes."""
    found = []
    for path in znodes.TOP_LEVEL_PATHS:
        names = path.strip("/").split("/")
        found += ["/" + "/".join(names[:depth]) for depth in range(1, len(names))]
    return found


def registration(broker_id: int, port: int = 0) -> BrokerRegistration:
    """Return what a broker on this machine says of itself."""
    return BrokerRegistration(broker_id, (Endpoint("PLAINTEXT", "127.0.0.1", port or PORTS_FROM + broker_id),))
