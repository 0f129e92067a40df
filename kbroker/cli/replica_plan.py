"""Where replicas should be: as few moves as a fair spread over brokers and racks allows (pure).

A plan is a mapping partition → replicas, the preferred leader first; as a file it is the JSON of Kafka's own tool:

    {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [4, 5]}, …]}
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kbroker.client.types import TopicPartition

Plan = dict[TopicPartition, tuple[int, ...]]
Racks = Mapping[int, str | None]
"""The brokers that may hold replicas, and their racks."""


class PlanError(ValueError):
    """No such plan: the message says why."""


def spread(current: Mapping[TopicPartition, Sequence[int]], brokers: Racks, factor: int | None = None) -> Plan:
    """Put the partitions on these brokers, `factor` replicas each (None: as many as now).

    Replicas stay where they may, brokers get equal shares of replicas and of preferred leaders, and no rack gets two
    replicas of a partition while another has none.
    """
    most = max((factor or len(replicas) for replicas in current.values()), default=0)
    if most > len(brokers):
        raise PlanError(f"{most} replicas need {most} brokers, there are {len(brokers)}: {_list(brokers)}")
    kept = {each: [b for b in replicas if b in brokers] for each, replicas in sorted(current.items())}
    spreading = _Spreading(kept, brokers)
    for partition, replicas in kept.items():
        wanted = factor or len(current[partition])
        while len(replicas) > wanted:
            spreading.drop(partition)
        while len(replicas) < wanted:
            spreading.add(partition)
    spreading.even_out()
    spreading.share_leaders()
    return {partition: tuple(replicas) for partition, replicas in kept.items()}


class _Spreading:
    """The plan in the making: who holds what, and how much."""

    def __init__(self, replicas: dict[TopicPartition, list[int]], brokers: Racks) -> None:
        self.replicas = replicas
        self.racks = brokers
        self.held = Counter(dict.fromkeys(brokers, 0))
        self.held.update(broker for each in replicas.values() for broker in each)

    def add(self, partition: TopicPartition) -> None:
        """One more replica, on the broker that holds least."""
        broker = min(
            self._candidates(partition), key=lambda each: (self._crowd(partition, each), self.held[each], each)
        )
        self.replicas[partition].append(broker)
        self.held[broker] += 1

    def drop(self, partition: TopicPartition) -> None:
        """One replica less: of the fullest rack and broker; the preferred leader only when nothing else is left."""
        others = self.replicas[partition][1:] or self.replicas[partition]
        broker = max(others, key=lambda each: (self._crowd(partition, each), self.held[each], each))
        self.replicas[partition].remove(broker)
        self.held[broker] -= 1

    def _candidates(self, partition: TopicPartition) -> list[int]:
        return [broker for broker in self.racks if broker not in self.replicas[partition]]

    def _crowd(self, partition: TopicPartition, broker: int) -> int:
        """Other replicas of the partition in the broker's rack; brokers without one are racks of their own."""
        rack = self.racks.get(broker)
        others = (each for each in self.replicas[partition] if each != broker)
        return sum(rack is not None and self.racks.get(each) == rack for each in others)

    def even_out(self) -> None:
        """Move replicas from brokers that hold more to those that hold at least two less."""
        moved = True
        while moved:
            moved = sum(self._relieve(partition) for partition in self.replicas) > 0

    def _relieve(self, partition: TopicPartition) -> bool:
        replicas = self.replicas[partition]
        for at in sorted(range(len(replicas)), key=lambda at: -self.held[replicas[at]]):
            full = replicas[at]
            for free in sorted(self._candidates(partition), key=lambda each: (self.held[each], each)):
                if self.held[full] - self.held[free] < 2:
                    break
                same_rack = self.racks[full] is not None and self.racks[full] == self.racks[free]
                if self._crowd(partition, free) - same_rack <= self._crowd(partition, full):
                    replicas[at] = free
                    self.held[full] -= 1
                    self.held[free] += 1
                    return True
        return False

    def share_leaders(self) -> None:
        """Swap who stands first, until nobody is preferred by two more than another that could be."""
        led = Counter(dict.fromkeys(self.racks, 0))
        led.update(replicas[0] for replicas in self.replicas.values() if replicas)
        moved = True
        while moved:
            moved = False
            for replicas in self.replicas.values():
                at = min(range(len(replicas)), key=lambda at: (led[replicas[at]], at), default=0)
                if replicas and led[replicas[0]] - led[replicas[at]] >= 2:
                    led[replicas[0]] -= 1
                    led[replicas[at]] += 1
                    replicas.insert(0, replicas.pop(at))
                    moved = True


def changes(current: Mapping[TopicPartition, Sequence[int]], plan: Plan) -> Plan:
    """Only what differs from now."""
    return {each: replicas for each, replicas in plan.items() if tuple(current.get(each, ())) != replicas}


def to_json(plan: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    """The plan as Kafka's tool writes it."""
    return {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": partition, "replicas": list(replicas)}
            for (topic, partition), replicas in sorted(plan.items())
        ],
    }


def from_json(text: str) -> Plan:
    """Read a plan; raises PlanError naming what is wrong."""
    try:
        document = json.loads(text)
        entries = [(each["topic"], each["partition"], each["replicas"]) for each in document["partitions"]]
    except (ValueError, KeyError, TypeError) as error:
        raise PlanError(
            f'this is no plan, {{"partitions": [{{"topic", "partition", "replicas"}}, …]}}: {error}'
        ) from None
    plan: Plan = {}
    for topic, partition, replicas in entries:
        is_well = isinstance(topic, str) and type(partition) is int and isinstance(replicas, list)
        if not is_well or not all(type(each) is int for each in replicas):
            raise PlanError(
                f"topic {topic!r}, partition {partition!r}, replicas {replicas!r}: no such partition can be"
            )
        if TopicPartition(topic, partition) in plan:
            raise PlanError(f"{topic}-{partition} stands in the plan twice")
        plan[TopicPartition(topic, partition)] = tuple(replicas)
    return plan


def _list(brokers: Racks) -> str:
    return ", ".join(map(str, sorted(brokers)))
