"""Replicas whose log is gone must not be taken for what they were.

A broker that comes back without a log it had (its disk is new) and is still in the ISR may be made the leader, and then
all its followers cut their logs down to nothing. A controller leaves a broker out of the ISRs when it dies, unless it
does not know of the death: killed together with the controller and back at once, the broker is registered anew before
the next controller looks. So such a broker registers only when it is in the ISR no more.
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
    zookeeper: ZooKeeper, broker_id: int, has_log: Callable[[TopicPartition], bool], timeout_s: float
) -> None:
    """Wait while this broker, not registered now, is in ISRs of partitions whose log it lacks and other members live.

    Gives up after `timeout_s`, and says so: where no controller is at work nobody else leads these partitions either.
    """
    missing = [
        TopicPartition(topic, partition)
        for topic, assignment in (await zookeeper.read_topics()).items()
        for partition, replicas in assignment.partitions.items()
        if broker_id in replicas.replicas and not has_log(TopicPartition(topic, partition))
    ]
    if not missing:
        return
    deadline = asyncio.get_running_loop().time() + timeout_s
    is_told = False
    while lost := await _believed_in_sync(zookeeper, broker_id, missing):
        text = f"{count(len(lost), 'partition')} without a log here, though in the ISR: {few(lost)}"
        if asyncio.get_running_loop().time() >= deadline:
            log.warning("%s; registering all the same, no controller has left this broker out of it", text)
            return
        if not is_told:
            log.warning("%s; registering once a controller has left this broker out of it", text)
            is_told = True
        await asyncio.sleep(POLL_S)


async def _believed_in_sync(
    zookeeper: ZooKeeper, broker_id: int, partitions: list[TopicPartition]
) -> list[TopicPartition]:
    """Those in whose ISR the broker is besides others that live."""
    states = await zookeeper.read_partition_states(partitions)
    others = set(await zookeeper.brokers()) - {broker_id}
    return [each for each, state in states.items() if broker_id in state.isr and others & set(state.isr)]
