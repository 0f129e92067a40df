"""Carrying instructions out: each through ZooKeeper or the channels, its result given back as an event.

Writes and reads go in chunks, so that the broker's event loop is never held for more than a few milliseconds.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from kbroker.controller import events, znodes
from kbroker.controller.controller_store import ElectedController
from kbroker.controller.instructions import (
    Answer,
    CloseChannel,
    CreatePartitionStates,
    DeleteNodes,
    DeleteTopicNodes,
    ForgetTopics,
    Instruction,
    OpenChannel,
    Pause,
    ReadPartitionStates,
    ReadTopicConfigs,
    ReadTopics,
    Send,
    SetNode,
    WritePartitionStates,
    WriteTopics,
)
from kbroker.controller.ports import BrokerChannels
from kbroker.controller.znode_operations import ControllerMoved, SessionExpired, ZooKeeperError
from kbroker.controller.znodes import Conflict, PartitionState, TopicPartition
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.protocol.messages.replication import LeaderAndIsrRequest, StopReplicaRequest

CHUNK = 500
PAUSES_PER_FREEZE = 10
T = TypeVar("T")


class Orders:
    """One term's hands. `tell` takes events (broker's answers), `watch_topic` a topic's name, `answer` a call's end."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        channels: BrokerChannels,
        term: ElectedController,
        tell: Callable[[events.Event], None],
        topic_changed: Callable[[str], None],
        answer: Callable[[int, Any], None],
    ) -> None:
        self._zookeeper = zookeeper
        self._channels = channels
        self._term = term
        self._tell = tell
        self._topic_changed = topic_changed
        self._answer = answer
        self._channels_open: set[int] = set()
        self._topics_watched: set[str] = set()
        self._is_over = False
        self._pauses = 0

    def end(self) -> None:
        """Close the channels and forget the watches: the term is over. Answers that still come are nobody's."""
        self._is_over = True
        for broker_id in self._channels_open:
            self._channels.remove_broker(broker_id)
        for name in self._topics_watched:
            self._zookeeper.unwatch(znodes.topic_path(name))
        self._channels_open.clear()
        self._topics_watched.clear()

    async def carry_out(self, instruction: Instruction) -> events.Result | None:
        """Do it. Raises ControllerMoved, SessionExpired."""
        match instruction:
            case Send() | OpenChannel() | CloseChannel():
                self._use_channel(instruction)
            case Answer(call, response):
                self._answer(call, response)
            case ForgetTopics(names):
                self._forget_topics(names)
            case Pause():
                return await self._pause()
            case _:
                return await self._use_zookeeper(instruction)
        return None

    def begin(self) -> None:
        """An event's instructions begin."""
        self._pauses = 0

    async def _pause(self) -> events.Result:
        """Let others in. What a long event leaves behind is to stay: the garbage collector need not look at it."""
        self._pauses += 1
        if self._pauses % PAUSES_PER_FREEZE == 0:
            gc.freeze()
        await asyncio.sleep(0)
        return events.Done()

    async def _use_zookeeper(self, instruction: Instruction) -> events.Result:
        try:
            return await self._read_or_write(instruction)
        except (ControllerMoved, SessionExpired):
            raise
        except ZooKeeperError as error:
            return events.Failed(error)

    async def _read_or_write(self, instruction: Instruction) -> events.Result:
        zookeeper, term = self._zookeeper, self._term
        match instruction:
            case CreatePartitionStates(states) | WritePartitionStates(states):
                return await self._write_states(states, is_new=isinstance(instruction, CreatePartitionStates))
            case ReadPartitionStates(partitions):
                return events.PartitionStatesRead(await self.read_states(partitions))
            case ReadTopics(names):
                return events.TopicsRead(await self.read_topics(names))
            case ReadTopicConfigs(names):
                return events.TopicConfigsRead(await zookeeper.read_configs("topics", names))
            case WriteTopics(topics):
                return events.TopicsWritten(await zookeeper.write_topics(term, topics))
            case DeleteTopicNodes(topic):
                await zookeeper.delete_topic_nodes(term, topic)
            case DeleteNodes(paths):
                await zookeeper.delete_nodes(term, paths)
            case SetNode(path, data):
                await zookeeper.set_node(term, path, data)
            case _:
                raise AssertionError(f"no such instruction: {instruction}")
        return events.Done()

    # --- channels ---

    def _use_channel(self, instruction: Send | OpenChannel | CloseChannel) -> None:
        if isinstance(instruction, Send):
            self._send(instruction)
        elif isinstance(instruction, OpenChannel):
            self._channels_open.add(instruction.broker_id)
            fell_behind = events.BrokerFellBehind(instruction.broker_id)
            self._channels.add_broker(
                instruction.broker_id, instruction.host, instruction.port, lambda: self._tell(fell_behind)
            )
        else:
            self._channels_open.discard(instruction.broker_id)
            self._channels.remove_broker(instruction.broker_id)

    def _send(self, order: Send) -> None:
        def on_response(response: Any) -> None:
            if self._is_over:
                return
            if isinstance(order.request, LeaderAndIsrRequest):
                self._tell(events.LeaderAndIsrAnswered(order.broker_id, order.request, response))
            elif isinstance(order.request, StopReplicaRequest):
                self._tell(events.StopReplicaAnswered(order.broker_id, order.request, response))

        self._channels.send(order.broker_id, order.request, order.version, on_response)

    # --- ZooKeeper ---

    async def _write_states(
        self, states: Mapping[TopicPartition, PartitionState], *, is_new: bool
    ) -> events.PartitionStatesWritten:
        zookeeper = self._zookeeper
        write = zookeeper.create_partition_states if is_new else zookeeper.write_partition_states
        results: dict[TopicPartition, PartitionState | Conflict[PartitionState]] = {}
        for chunk in _chunks(states.items()):
            results.update(await write(self._term, dict(chunk)))
        return events.PartitionStatesWritten(results)

    async def read_states(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionState]:
        """States of those partitions that have one."""
        states: dict[TopicPartition, PartitionState] = {}
        for chunk in _chunks(partitions):
            states.update(await self._zookeeper.read_partition_states(chunk))
        return states

    async def read_topics(self, names: Sequence[str]) -> dict[str, znodes.TopicAssignment]:
        """Assignments of those topics that are there, watched from now on."""
        topics: dict[str, znodes.TopicAssignment] = {}
        for chunk in _chunks(names):
            for name in chunk:
                self._zookeeper.watch(znodes.topic_path(name), self._on_topic_watch)
            self._topics_watched.update(chunk)
            topics.update(await self._zookeeper.read_topics(chunk, watch=True))
        return topics

    def _on_topic_watch(self, path: str) -> None:
        self._topic_changed(path.rpartition("/")[2])

    def _forget_topics(self, names: Sequence[str]) -> None:
        for name in names:
            self._topics_watched.discard(name)
            self._zookeeper.unwatch(znodes.topic_path(name))


def _chunks(values: Iterable[T]) -> Iterator[Sequence[T]]:
    left = iter(values)
    while chunk := list(islice(left, CHUNK)):
        yield chunk
