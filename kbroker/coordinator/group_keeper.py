"""The groups whose partition of __consumer_offsets this broker leads: found, made, ended, and what they ask for done.

    answers to the futures that wait · records to the log · deadlines to the timers

Everything runs on the broker's event loop. What requests mean is in group_coordinator.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbroker.cluster.topic_names import OFFSETS_TOPIC
from kbroker.coordinator.any_group import AnyGroup, GroupMaker
from kbroker.coordinator.append_errors import group_error
from kbroker.coordinator.consumer_group import ConsumerSettings
from kbroker.coordinator.group import Group
from kbroker.coordinator.group_events import AnswerJoin, AnswerSync, GroupSettings, Instruction, WriteGroup
from kbroker.coordinator.group_sentences import CAME_HERE, MOVED_AWAY
from kbroker.coordinator.group_story import GroupStories, Rebalance
from kbroker.coordinator.group_timers import GroupTimers
from kbroker.coordinator.loading import load, make_groups
from kbroker.coordinator.mixed_group import MixedGroup
from kbroker.coordinator.offsets_records import group_key, group_value
from kbroker.coordinator.owned_partitions import OwnedPartition, OwnedPartitions
from kbroker.coordinator.topic_log import Records, TopicLog
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.grouping import Key
from kbroker.replica.clocks import steady_ms
from kbroker.segment.log import Log

if TYPE_CHECKING:
    from kbroker.config.broker_config import BrokerConfig
    from kbroker.replica.replica_manager import ReplicaManager

log = logging.getLogger(__name__)
SAME_MS = 1_000
"""Clocks told in whole milliseconds are one more or less apart at each look; what was told once keeps its time."""


@dataclass(slots=True, eq=False)
class GroupsPartition(OwnedPartition):
    """One partition of __consumer_offsets with its groups."""

    groups: dict[str, AnyGroup] = field(default_factory=dict)
    ended: list[tuple[int, bool]] = field(default_factory=list)
    """Transactions that ended while the partition was being read: producer id, and whether they count."""
    in_transactions: dict[int, set[str]] = field(default_factory=dict)
    """Producer id -> the groups of which offsets wait for the end of its transaction."""

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        """The producer's offsets of this partition count from now on, or are forgotten."""
        if self.is_loading:
            self.ended.append((producer_id, is_commit))
            return
        for group_id in self.in_transactions.pop(producer_id, ()):
            group = self.groups.get(group_id)
            if group is not None:
                group.offsets.end_transaction(producer_id, is_commit)


@dataclass(slots=True)
class GroupCounts:
    """What a coordinator has done."""

    commits: int = 0
    """Commit requests that were written."""
    expired_offsets: int = 0
    deleted_offsets: int = 0
    """By who asked for it."""


class GroupKeeper:
    """Holds the groups; the coordinator builds on it."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        executor: Executor | None = None,
        clock: Callable[[], int] = steady_ms,
    ) -> None:
        self.config = config
        self.settings = GroupSettings(config.group_initial_rebalance_delay_ms, config.group_max_size)
        self.brokers_without_newer_protocol: frozenset[int] = frozenset()
        """Live brokers that could not go on with a group of the newer protocol: Java's of 3.9."""
        self._replicas = replicas
        self._clock = clock
        consumer_settings = ConsumerSettings(
            config.group_consumer_session_timeout_ms,
            config.group_consumer_heartbeat_interval_ms,
            config.group_consumer_max_size,
        )
        self.counts = GroupCounts()
        self._stories = GroupStories(config.group_history_size)
        self._behind_ms = 0
        """How far the coordinator's clock was behind the wall's when that was last set."""
        self._maker = GroupMaker(self.settings, consumer_settings, replicas.metadata, self._stories)
        self._groups: dict[str, AnyGroup] = {}
        """Of all owned partitions."""
        self._timers: GroupTimers[AnyGroup] = GroupTimers(clock, self._tick)
        self._owned = OwnedPartitions(
            OFFSETS_TOPIC,
            config.offsets_topic_num_partitions,
            replicas,
            executor,
            lambda partition, leader_epoch: GroupsPartition(partition, leader_epoch, self._make_log(partition)),
            self._read_groups,
            self._partition_started,
            self._partition_resigned,
        )

    def _make_log(self, partition: int) -> TopicLog:
        config = self.config
        return TopicLog(
            self._replicas,
            OFFSETS_TOPIC,
            partition,
            self._replicas.clock,
            config.offsets_commit_required_acks,
            config.offsets_commit_timeout_ms,
            config.offsets_topic_compression_codec,
        )

    # --- leadership -------------------------------------------------------------------------------------------

    def leadership_changed(self, elected: Sequence[Key], resigned: Sequence[Key]) -> None:
        """This broker began and ceased to lead partitions."""
        self._owned.leadership_changed(elected, resigned)

    def _read_groups(self, owned: GroupsPartition, partition_log: Log, is_wanted: Callable[[], bool]) -> str:
        loaded = load(partition_log, self.config.offsets_load_buffer_size, is_wanted)
        owned.groups = make_groups(loaded, self._maker, self._clock(), owned.partition)
        return f"{len(owned.groups)} groups from {loaded.records} records"

    def _partition_started(self, owned: GroupsPartition) -> None:
        for group_id, group in owned.groups.items():
            for producer_id in group.offsets.transactional:
                owned.in_transactions.setdefault(producer_id, set()).add(group_id)
        for ended in owned.ended:
            owned.end_transaction(*ended)
        now = self._clock()
        self._groups.update(owned.groups)
        for group in owned.groups.values():
            if group.story.rebalances:
                group.story.note(now, CAME_HERE, outcome="")
            if isinstance(group, MixedGroup):
                group.start(now)
                self._timers.schedule(group)
            else:
                self._carry_out(group, group.start(now))

    def _partition_resigned(self, owned: GroupsPartition) -> None:
        now = self._clock()
        for group_id, group in owned.groups.items():
            if self._groups.get(group_id) is group:
                del self._groups[group_id]
            group.story.moved_away(now, MOVED_AWAY)
            self._end(group, now)

    # --- finding a group --------------------------------------------------------------------------------------

    def partition_for(self, group_id: str) -> int:
        """Return the partition of __consumer_offsets that holds the group."""
        return self._owned.partition_for(group_id)

    def status(self, group_id: str) -> ErrorCode:
        """Return why this broker cannot speak for the group now (15, 14, 16), or NONE."""
        return self._owned.find(group_id)[1]

    @property
    def rebalances(self) -> int:
        """How many have ended, of all groups."""
        return self._stories.ended

    def history(self, group_id: str) -> tuple[list[Rebalance], int]:
        """Return what this broker tells of a group's rebalances, and how far its clock is behind the wall's."""
        behind_ms = self._replicas.clock() - self._clock()
        if abs(behind_ms - self._behind_ms) > SAME_MS:
            self._behind_ms = behind_ms
        return self._stories.told(group_id), self._behind_ms

    def _find(self, group_id: str, empty_is_valid: bool = False) -> tuple[AnyGroup | None, ErrorCode]:
        """Return the group if it is here; the error is NONE when this broker would have it if it existed."""
        if not group_id and not empty_is_valid:
            return None, ErrorCode.INVALID_GROUP_ID
        group = self._groups.get(group_id)
        if group is not None:
            return group, ErrorCode.NONE
        return None, self.status(group_id)

    def _create(self, group_id: str) -> Group:
        group = self._maker.classic(group_id, self._clock(), self.partition_for(group_id))
        self._keep(group)
        return group

    def _keep(self, group: AnyGroup) -> None:
        """Hold a group from now on; instead of the one that had its id, if there was one."""
        self._owned.by_number[group.partition].groups[group.group_id] = group
        self._groups[group.group_id] = group

    def _turn_into(self, former: AnyGroup, group: AnyGroup) -> None:
        """Let a group of the other kind go on with the offsets of this one."""
        group.offsets = former.offsets
        self._append(former.partition, former.tombstones())
        self._end(former, self._clock())
        self._keep(group)

    def _end(self, group: AnyGroup, now: int) -> None:
        if isinstance(group, MixedGroup):
            group.die()
        elif not group.is_dead:
            self._carry_out(group, group.die(now))

    # --- what groups ask for ----------------------------------------------------------------------------------

    def _tick(self, group: AnyGroup) -> None:
        now = self._clock()
        if isinstance(group, MixedGroup):
            for line in group.tick(now):
                log.info("group %s: %s", group.group_id, line)
            self._write_changes(group)
        else:
            self._carry_out(group, group.tick(now))

    def _write_changes(self, group: MixedGroup) -> asyncio.Future[ErrorCode] | None:
        """Write what an event changed; None when there is nothing. A group of classic members only becomes one."""
        self._timers.schedule(group)
        records = group.take_records()
        if not records:
            return None
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._append(group.partition, records, lambda error: None if future.done() else future.set_result(error))
        if group.is_all_classic and self.config.group_consumer_migration_policy in ("downgrade", "bidirectional"):
            now = self._clock()
            classic = self._maker.classic(group.group_id, now, group.partition)
            group.hand_over(classic, now)
            log.info("group %s: its %d members go on in the classic protocol", group.group_id, len(group.members))
            self._turn_into(group, classic)
            self._carry_out(classic, [])
        return future

    def _append(self, partition: int, records: Records, done: Callable[[ErrorCode], None] = lambda error: None) -> None:
        """Write what groups of the newer protocol have changed; if that fails they are read anew from the log."""
        owned = self._owned.by_number.get(partition)
        if owned is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if not records:
            done(ErrorCode.NONE)
            return

        def written(error: ErrorCode, offset: int) -> None:
            done(error)
            if error is not ErrorCode.NONE and self._owned.by_number.get(partition) is owned:
                log.warning("group records were not written (%s): partition %d is read anew", error.name, partition)
                self._owned.resign(partition)
                self._owned.leadership_changed([(OFFSETS_TOPIC, partition)], [])

        owned.log.append(records, written)

    def _carry_out(self, group: Group, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, WriteGroup):
                self._write_group(group, instruction)
            else:
                assert isinstance(instruction, AnswerJoin | AnswerSync)
                future: Any = instruction.request
                if not future.done():
                    future.set_result(instruction.answer)
        if group.deadline < group.scheduled_at:
            self._timers.schedule(group)

    def _write_group(self, group: Group, instruction: WriteGroup) -> None:
        def done(error: ErrorCode, offset: int) -> None:
            if error is not ErrorCode.NONE:
                log.warning("group %s: its record was not written: %s", group.group_id, error.name)
            self._carry_out(group, group.written(instruction.ticket, group_error(error), self._clock()))

        owned = self._owned.by_number.get(group.partition)
        if owned is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            return
        value = instruction.value
        if value.current_state_timestamp >= 0:  # who reads it has another clock: a time too early would end offsets
            value.current_state_timestamp += max(self._replicas.clock() - self._clock(), 0)
        owned.log.append([(group_key(group.group_id), group_value(value))], done)
