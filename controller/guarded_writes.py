"""Writes that meet what others wrote: taken over, decided again, written again (procedures, pure).

Every node is replaced at the version we know. Where it has another one by now, what it holds is adopted and the change
decided anew, until it is written, or is not wanted any more, or is not ours to make.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from kbroker.controller.events import PartitionStatesWritten, TopicsWritten
from kbroker.controller.instructions import Instruction, Pause, Steps, WritePartitionStates, WriteTopics
from kbroker.controller.pacing import PARTITIONS_PER_PAUSE
from kbroker.controller.state import ControllerState
from kbroker.controller.znodes import Conflict, PartitionState, TopicAssignment, TopicPartition

log = logging.getLogger(__name__)

ATTEMPTS = 10

K = TypeVar("K")
V = TypeVar("V")


def write_states(
    state: ControllerState,
    partitions: Iterable[TopicPartition],
    decide: Callable[[list[TopicPartition]], Steps[dict[TopicPartition, PartitionState]]],
) -> Steps[dict[TopicPartition, PartitionState]]:
    """Write what `decide` makes of the states known then; those written, which the controller's state has by now."""

    def adopt(partition: TopicPartition, conflict: Conflict[PartitionState]) -> bool:
        return adopt_state(state, partition, conflict)

    return (yield from _write(partitions, decide, WritePartitionStates, state.take, adopt))


def adopt_state(state: ControllerState, partition: TopicPartition, conflict: Conflict[PartitionState]) -> bool:
    """Take over what ZooKeeper holds; False when the change is not ours to make any more."""
    current = conflict.current
    if current is None or current.controller_epoch > state.epoch:
        log.error("partition %s: change given up, ZooKeeper holds %s", partition, current)
        return False
    state.take(partition, current)
    return True


def write_topics(
    state: ControllerState,
    topics: Mapping[str, TopicAssignment],
    change: Callable[[str, TopicAssignment], TopicAssignment | None],
) -> Steps[dict[str, TopicAssignment]]:
    """Write what `change` makes of topics (None: they are well as they are); how their nodes are then.

    Those that could not be written are left out.
    `topics` is what is known of the nodes. Partitions that somebody else has added meanwhile stay, if `change` leaves
    them; the watch on the topic's node tells of them.
    """
    known = dict(topics)
    settled: dict[str, TopicAssignment] = {}

    def decide(names: list[str]) -> Steps[dict[str, TopicAssignment]]:
        yield from ()
        changed = {name: change(name, known[name]) for name in names}
        settled.update({name: known[name] for name, topic in changed.items() if topic is None})
        return {name: topic for name, topic in changed.items() if topic is not None}

    def take(name: str, written: TopicAssignment) -> None:
        if written.partitions.keys() <= state.assignments.get(name, {}).keys():
            state.topic_versions[name] = written.version  # else the node holds more than we know

    def adopt(name: str, conflict: Conflict[TopicAssignment]) -> bool:
        if conflict.current is None:
            log.error("topic %s: change given up, its node is gone", name)
            return False
        known[name] = conflict.current
        return True

    written = yield from _write(topics, decide, WriteTopics, take, adopt)
    return {**settled, **written}


def _write(
    keys: Iterable[K],
    decide: Callable[[list[K]], Steps[dict[K, V]]],
    order: Callable[[dict[K, V]], Instruction],
    take: Callable[[K, V], None],
    adopt: Callable[[K, Conflict[V]], bool],
) -> Steps[dict[K, V]]:
    settled: dict[K, V] = {}
    remaining = list(keys)
    for _ in range(ATTEMPTS):
        wanted = yield from decide(remaining)
        if not wanted:
            return settled
        written: PartitionStatesWritten | TopicsWritten = yield order(wanted)
        remaining = []
        results: Mapping[K, V | Conflict[V]] = written.results  # type: ignore[assignment]
        for number, (key, result) in enumerate(results.items(), 1):
            if not isinstance(result, Conflict):
                take(key, result)
                settled[key] = result
            elif adopt(key, result):
                remaining.append(key)
            if number % PARTITIONS_PER_PAUSE == 0:
                yield Pause()
        if not remaining:
            return settled
    log.error("%s and %d more: given up, others keep writing", remaining[0], len(remaining) - 1)
    return settled
