"""What the controller reads and writes in ZooKeeper. Every write is fenced by the version of /controller_epoch.

Kafka sends one multi per path; here several hundred operations share one, `[check(/controller_epoch), op, op, …]`.
When one of them fails the chunk is done again path by path, so that each path's outcome is what Kafka's would be.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kbroker.controller import znodes
from kbroker.controller.multi_codec import encoded_size, multis
from kbroker.controller.wording import count, few
from kbroker.controller.znode_operations import (
    BadVersion,
    Check,
    ControllerMoved,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    Outcome,
    SetData,
    Stat,
    ZnodeError,
    Znodes,
    failure,
)
from kbroker.controller.znodes import Conflict, PartitionState, TopicAssignment, TopicPartition

log = logging.getLogger(__name__)

_CHUNKS_IN_FLIGHT = 4
_SINGLES_IN_FLIGHT = 100


@dataclass(frozen=True, slots=True)
class ElectedController:
    """Our term as controller."""

    epoch: int
    epoch_version: int
    """Version of /controller_epoch; every write of ours checks it."""


class ControllerStore(Znodes):
    """The controller's side of ZooKeeper."""

    # --- election ---

    async def elect_controller(self, broker_id: int, timestamp_ms: int) -> ElectedController | None:
        """Run for controller: None when another broker is."""
        epoch, stat = await self._controller_epoch()
        outcomes = await self.multi(
            [
                Create(znodes.CONTROLLER, znodes.encode_controller(broker_id, timestamp_ms), ephemeral=True),
                SetData(znodes.CONTROLLER_EPOCH, str(epoch + 1).encode(), stat.version),
            ]
        )
        failed = failure(outcomes)
        if failed is None:
            assert isinstance(outcomes[1], Stat)
            return ElectedController(epoch + 1, outcomes[1].version)
        if not isinstance(failed[1], NodeExists | BadVersion):
            raise failed[1]
        return await self.won_before(broker_id)

    async def won_before(self, broker_id: int) -> ElectedController | None:
        """The term that an attempt of ours has won, whose answer was lost with a connection; None: there is none."""
        epoch, epoch_stat = await self._controller_epoch()
        try:
            data, stat = await self.get(znodes.CONTROLLER)
        except NoNode:
            return None
        is_ours = stat.ephemeral_owner == self.session_id
        if not is_ours or znodes.decode_controller(data, stat.version).broker_id != broker_id:
            return None
        # Both were written in one transaction: where they were not, the epoch is another's, or no longer the last one.
        return ElectedController(epoch, epoch_stat.version) if stat.czxid == epoch_stat.mzxid else None

    async def _controller_epoch(self) -> tuple[int, Stat]:
        """The last epoch, and what is known of its znode; the node is made when it is missing."""
        while True:
            try:
                data, stat = await self.get(znodes.CONTROLLER_EPOCH)
            except NoNode:
                with contextlib.suppress(NodeExists):
                    await self.create(znodes.CONTROLLER_EPOCH, b"0")
                continue
            return znodes.decode_controller_epoch(data), stat

    async def resign(self, term: ElectedController) -> None:
        """Give /controller up, if it is still ours."""
        outcomes = await self.multi([Check(znodes.CONTROLLER_EPOCH, term.epoch_version), Delete(znodes.CONTROLLER)])
        failed = failure(outcomes)
        if failed is not None and not isinstance(failed[1], BadVersion | NoNode):
            raise failed[1]

    # --- fenced writes ---

    async def write_fenced(
        self, term: ElectedController, operations: Sequence[Operation], group: int = 1
    ) -> list[Outcome]:
        """Carry operations out, each for itself; their outcomes. Raises ControllerMoved, TooLarge.

        Several multis are under way at once: an operation may rely on an earlier one only within its `group`.
        """
        fence = encoded_size(Check(znodes.CONTROLLER_EPOCH, term.epoch_version))
        chunks = list(multis(operations, group, reserved=fence))
        outcomes: list[Outcome] = []
        for first in range(0, len(chunks), _CHUNKS_IN_FLIGHT):
            written = await asyncio.gather(
                *(self._write_chunk(term, chunk) for chunk in chunks[first : first + _CHUNKS_IN_FLIGHT])
            )
            for each in written:
                outcomes += each
        return outcomes

    async def _write_chunk(self, term: ElectedController, chunk: Sequence[Operation]) -> list[Outcome]:
        """One multi for all; when one of them fails, a multi for each."""
        outcomes = await self._write_at_once(term, chunk)
        if len(chunk) == 1 or failure(outcomes) is None:
            return outcomes
        singles: list[Outcome] = []
        for first in range(0, len(chunk), _SINGLES_IN_FLIGHT):
            part = chunk[first : first + _SINGLES_IN_FLIGHT]
            for each in await asyncio.gather(*(self._write_at_once(term, [operation]) for operation in part)):
                singles += each
        return singles

    async def _write_at_once(self, term: ElectedController, operations: Sequence[Operation]) -> list[Outcome]:
        check = Check(znodes.CONTROLLER_EPOCH, term.epoch_version)
        fence, *outcomes = await self.multi([check, *operations])
        if isinstance(fence, BadVersion | NoNode):
            raise ControllerMoved(f"the term of controller epoch {term.epoch} is over")
        return outcomes

    # --- partition states ---

    async def create_partition_states(
        self, term: ElectedController, states: Mapping[TopicPartition, PartitionState]
    ) -> dict[TopicPartition, PartitionState | Conflict[PartitionState]]:
        """Make the nodes of new partitions, directories included; a state that is there already is a conflict."""
        topics = dict.fromkeys(each.topic for each in states)
        await self.write_fenced(term, [Create(znodes.partitions_path(topic)) for topic in topics])
        operations: list[Operation] = []
        for partition, state in states.items():
            operations.append(Create(znodes.partition_path(*partition)))
            operations.append(Create(znodes.state_path(*partition), znodes.encode_partition_state(state)))
        outcomes = await self.write_fenced(term, operations, group=2)
        return await self._settle(states, outcomes[1::2], is_new=True)

    async def write_partition_states(
        self, term: ElectedController, states: Mapping[TopicPartition, PartitionState]
    ) -> dict[TopicPartition, PartitionState | Conflict[PartitionState]]:
        """Replace states whose znode still has the version in `partition_epoch`; written ones have the new one."""
        operations = [
            SetData(znodes.state_path(*each), znodes.encode_partition_state(state), state.partition_epoch)
            for each, state in states.items()
        ]
        outcomes = await self.write_fenced(term, operations)
        return await self._settle(states, outcomes, is_new=False)

    async def _settle(
        self, states: Mapping[TopicPartition, PartitionState], outcomes: Sequence[Outcome], *, is_new: bool
    ) -> dict[TopicPartition, PartitionState | Conflict[PartitionState]]:
        """What was written, and what is there instead. A write whose answer was lost counts as written."""
        results: dict[TopicPartition, PartitionState | Conflict[PartitionState]] = {}
        refused = []
        for (partition, state), outcome in zip(states.items(), outcomes, strict=True):
            if isinstance(outcome, ZnodeError):
                refused.append(partition)
            epoch = outcome.version if isinstance(outcome, Stat) else 0
            results[partition] = replace(state, partition_epoch=epoch)
        current = await self.read_partition_states(refused) if refused else {}
        for partition in refused:
            ours = replace(states[partition], partition_epoch=0 if is_new else states[partition].partition_epoch + 1)
            found = current.get(partition)
            results[partition] = ours if found == ours else Conflict(found)
        return results

    async def read_partition_states(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionState]:
        """States of those partitions that have one."""
        wanted = list(partitions)
        found = await self.get_many([znodes.state_path(*each) for each in wanted])
        states, unreadable = {}, []
        for partition, node in zip(wanted, found, strict=True):
            if node is not None:
                try:
                    data, stat = node
                    states[partition] = znodes.decode_partition_state(partition, data, stat.version, stat.mzxid)
                except znodes.MalformedZnode as error:
                    unreadable.append(str(error))
        if unreadable:
            advice = "write what its replicas had, then remove /controller: the next one reads it"
            log.error("%s left without a state (%s): %s", count(len(unreadable), "partition"), advice, few(unreadable))
        return states

    # --- topics ---

    async def write_topics(
        self, term: ElectedController, topics: Mapping[str, TopicAssignment]
    ) -> dict[str, TopicAssignment | Conflict[TopicAssignment]]:
        """Replace topics whose znode still has the version in `version`; written ones have the new one."""
        operations = [
            SetData(znodes.topic_path(name), znodes.encode_topic(each), each.version) for name, each in topics.items()
        ]
        results: dict[str, TopicAssignment | Conflict[TopicAssignment]] = {}
        for (name, topic), outcome in zip(topics.items(), await self.write_fenced(term, operations), strict=True):
            if isinstance(outcome, Stat):
                results[name] = replace(topic, version=outcome.version)
            else:
                results[name] = await self._found_instead(name, topic)
        return results

    async def _found_instead(self, name: str, wanted: TopicAssignment) -> TopicAssignment | Conflict[TopicAssignment]:
        """What a topic's node holds; when it is what was to be written, the write's answer was lost."""
        try:
            data, stat = await self.get(znodes.topic_path(name))
            found = znodes.decode_topic(name, data, stat.version)
        except (NoNode, znodes.MalformedZnode):
            return Conflict(None)
        return found if found == wanted else Conflict(found)

    async def delete_topic_nodes(self, term: ElectedController, topic: str) -> None:
        """Remove a deleted topic's nodes: its tree, its overrides, the mark; what is missing is fine."""
        partitions = (await self.children_of_many([znodes.partitions_path(topic)]))[0]
        operations: list[Operation] = []
        for number in partitions:
            operations.append(Delete(f"{znodes.partitions_path(topic)}/{number}/state"))
            operations.append(Delete(f"{znodes.partitions_path(topic)}/{number}"))
        await self.write_fenced(term, operations, group=2)
        rest = [
            Delete(znodes.partitions_path(topic)),
            Delete(znodes.topic_path(topic)),
            Delete(znodes.config_path("topics", topic)),
            Delete(znodes.delete_topic_path(topic)),
        ]
        await self.write_fenced(term, rest, group=len(rest))

    async def delete_nodes(self, term: ElectedController, paths: Iterable[str]) -> None:
        """Remove nodes without children; missing ones are fine."""
        operations = [Delete(path) for path in paths]
        if operations:
            await self.write_fenced(term, operations)

    async def set_node(self, term: ElectedController, path: str, data: bytes) -> None:
        """Replace a node's data; a missing one is fine."""
        await self.write_fenced(term, [SetData(path, data)])

    # --- the rest ---

    async def ensure_feature(self, term: ElectedController, levels: Mapping[str, int] | None = None) -> None:
        """Make /feature say: enabled, with these levels. A node that says so, with whatever levels, is left alone, and
        one that says nothing: nobody knows which levels count.
        """
        try:
            data, _ = await self.get(znodes.FEATURE)
        except NoNode:
            await self.write_fenced(term, [Create(znodes.FEATURE, znodes.encode_feature(levels))])
            return
        try:
            is_enabled = znodes.is_feature_enabled(data)
        except znodes.MalformedZnode as error:
            log.error("features stay as each broker knows them until that node is mended: %s", error)
            return
        if not is_enabled:
            await self.set_node(term, znodes.FEATURE, znodes.encode_feature())

    async def read_notifications(self, parent: str) -> dict[str, bytes | None]:
        """Path → data of all nodes below /isr_change_notification or /log_dir_event_notification; sets the watch."""
        paths = [f"{parent}/{name}" for name in await self.children(parent, watch=True)]
        found = await self.get_many(paths)
        return {path: node[0] for path, node in zip(paths, found, strict=True) if node is not None}

    async def read_admin_node(self, path: str) -> bytes | None:
        """Data of a legacy admin node, None when it is not there; sets the watch for its creation."""
        if await self.exists(path, watch=True) is None:
            return None
        try:
            data, _ = await self.get(path)
        except NoNode:
            return None
        return data
