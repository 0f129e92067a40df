"""Replicas whose log is gone, or came back shorter than it was, must not be taken for what they were.

A broker that comes back without a log it had (its disk is new), with less of it than its own checkpoints promise or
than was found behind a damaged batch (which ends a log), or after its machine has lost its power (what was not synced
is gone, and nobody can say how much that was; a log that is flushed before each acknowledgement has it all), and is
still in the ISR may be made the leader; then all its followers cut their logs down to what it has. A controller leaves
a broker out of the ISRs when it dies, unless it does not know of the death: killed together with the controller and
back at once, the broker is registered anew before the next controller looks. So such a broker registers only when it is
in the ISR no more: an in-sync replica then fills it before anybody may elect it.

    others of the ISR live       a controller leaves this broker out as soon as it knows of the death
    none of them lives (yet)     all died together, and may be on their way back with all that was acknowledged: a
                                 controller leaves the ISR as it is, and the first that registers leads
    there are no others          nothing to wait for: what this broker has is all there is
    the topic is being deleted   nothing to wait for: nobody leads it again, so its ISRs stay as they are, and that its
                                 logs are gone is what was asked for; the deletion itself waits for this broker. (One
                                 that is to be deleted once its moves are over is led until then.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kbroker.controller.wording import count, few
from kbroker.controller.znodes import TopicPartition
from kbroker.controller.zookeeper import ZooKeeper

log = logging.getLogger(__name__)

POLL_S = 0.1


async def wait_until_left_out(
    zookeeper: ZooKeeper, broker_id: int, has_whole_log: Callable[[TopicPartition], bool], timeout_s: float
) -> None:
    """Wait while this broker, not registered now, is in ISRs with others though it lacks all or some of the log.

    Gives up after `timeout_s`, and says so: where nobody else comes back, what this broker has is better than nothing.
    """
    lost = [
        TopicPartition(topic, partition)
        for topic, assignment in (await zookeeper.read_topics()).items()
        for partition, replicas in assignment.partitions.items()
        if broker_id in replicas.replicas and not has_whole_log(TopicPartition(topic, partition))
    ]
    if not lost:
        return
    deadline = asyncio.get_running_loop().time() + timeout_s
    is_told = False
    while trusted := await _believed_in_sync(zookeeper, broker_id, lost):
        text = f"{count(len(trusted), 'partition')} without a whole log here, though in the ISR: {few(trusted)}"
        if asyncio.get_running_loop().time() >= deadline:
            log.error("%s; registering all the same, no controller has left this broker out of it", text)
            return
        if not is_told:
            log.warning("%s; registering once a controller has left this broker out of it", text)
            is_told = True
        await asyncio.sleep(POLL_S)


async def _believed_in_sync(
    zookeeper: ZooKeeper, broker_id: int, partitions: list[TopicPartition]
) -> list[TopicPartition]:
    """Those in whose ISR the broker is besides others, and that may be led again."""
    states = await zookeeper.read_partition_states(partitions)
    trusted = [each for each, state in states.items() if broker_id in state.isr and len(state.isr) > 1]
    going = await _being_deleted(zookeeper, {each.topic for each in trusted})
    return [each for each in trusted if each.topic not in going]


async def _being_deleted(zookeeper: ZooKeeper, topics: set[str]) -> set[str]:
    """Those of the topics that a controller deletes now, or the next one will at once."""
    marked = topics & await zookeeper.topics_to_delete() if topics else topics
    found = await zookeeper.read_topics(sorted(marked))
    moving = {
        name
        for name, topic in found.items()
        if any(replicas.is_being_reassigned for replicas in topic.partitions.values())
    }
    return marked - moving
