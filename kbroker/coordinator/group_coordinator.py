"""The coordinator of the groups whose partition of __consumer_offsets this broker leads.

What requests mean to a group: of the classic protocol (group.py, pure) or of the newer one with members of both
(mixed_group.py, pure). Finding groups and doing what they ask for is in group_keeper.py, which this builds on.

    handlers --> join, sync, heartbeat, leave, commit, …  --> Group --> instructions for GroupKeeper
                 the same, and consumer_heartbeat  --> MixedGroup --> an answer, and records to be written before it
    replica manager --> leadership_changed (GroupKeeper), partitions_removed

What a request gets before its group is asked: 15 this coordinator does not run, 14 it is still reading the partition,
16 another broker leads it. A method that answers at once returns its answer; one that must wait returns a future.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kbroker.cluster.topic_names import OFFSETS_TOPIC
from kbroker.cluster.transaction_verifier import Transaction
from kbroker.coordinator.any_group import AnyGroup
from kbroker.coordinator.append_errors import commit_error, consumer_group_error, group_error
from kbroker.coordinator.consumer_group import ConsumerAnswer, ConsumerHeartbeat
from kbroker.coordinator.consumer_member import JOIN_EPOCH
from kbroker.coordinator.group import Group
from kbroker.coordinator.group_events import (
    JoinAnswer,
    JoinRequest,
    Leaving,
    SyncAnswer,
)
from kbroker.coordinator.group_keeper import GroupKeeper, GroupsPartition
from kbroker.coordinator.group_offsets import CommittedOffset
from kbroker.coordinator.group_sentences import MIGRATED
from kbroker.coordinator.mixed_group import MixedGroup
from kbroker.coordinator.offsets_records import commit_key, commit_value
from kbroker.coordinator.topic_log import Record, Records
from kbroker.coordinator.topic_once import TopicOnce
from kbroker.coordinator.topic_patterns import TopicPattern
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.grouping import Key
from kbroker.replica.clocks import steady_ms
from kbroker.replica.turns import finished

if TYPE_CHECKING:
    from kbroker.config.broker_config import BrokerConfig
    from kbroker.replica.replica_manager import ReplicaManager

log = logging.getLogger(__name__)

TOMBSTONES_AT_ONCE = 1000
GROUPS_AT_ONCE = 500
"""Groups looked at before others get their turn."""
MOST_UNSEEN = 10
"""Topics that a member's expression is tried on at once."""
MS_PER_MINUTE = 60_000
MOST_UNWEIGHED = 2_000
"""Offsets in one commit for which records are made whether they fit a batch or not."""
SMALLEST_COMMIT_BYTES = 41
"""Of a commit's record, besides the group's id: of a topic without a name, without metadata."""

T = TypeVar("T")


class GroupCoordinator(GroupKeeper):
    """See the module. `start` before the first leadership comes, `stop` before the log closes."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        executor: Executor | None = None,
        clock: Callable[[], int] = steady_ms,
    ) -> None:
        super().__init__(config, replicas, executor, clock)
        self._chores: set[asyncio.Task[None]] = set()
        self._looks: dict[TopicPattern, asyncio.Future[None]] = {}
        """Expressions that a thread tries on names it has not seen."""
        self._line = asyncio.Lock()
        self.topic = TopicOnce(OFFSETS_TOPIC)

    # --- life -------------------------------------------------------------------------------------------------

    def start(self, partition_count: int | None = None) -> None:
        """Begin to coordinate. `partition_count`: of __consumer_offsets, when the topic exists already."""
        if partition_count is not None:
            self._owned.count = partition_count
        self._owned.is_active = True
        self._spawn(self._expire_regularly())

    async def stop(self) -> None:
        """Answer whoever waits and give up all partitions."""
        self._owned.resign_all()
        self._timers.close()
        self.topic.cancel()
        for task in list(self._chores):
            task.cancel()
        if self._chores:
            await asyncio.wait(self._chores)
        await self._owned.finish()

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    def transaction_ended(self, partition: int, producer_id: int, is_commit: bool) -> None:
        """A marker was written to a partition of __consumer_offsets: the offsets of that transaction are decided."""
        owned = self._owned.by_number.get(partition)
        if owned is not None:
            owned.end_transaction(producer_id, is_commit)

    def partitions_removed(self, removed: Sequence[Key]) -> None:
        """Topics were deleted: so are the offsets committed for them."""
        if self._groups:
            self._spawn(self._forget_partitions(frozenset(removed)))

    async def _forget_partitions(self, removed: frozenset[Key]) -> None:
        async for group in self._each_group():
            found = [key for key in group.offsets.all_keys() if key in removed]
            if found:
                self._remove(group, found)

    async def _each_group(self) -> AsyncIterator[AnyGroup]:
        """Yield the groups there are, one after the other; now and then everybody else gets their turn."""
        for number, group_id in enumerate(list(self._groups)):
            group = self._groups.get(group_id)
            if group is not None:
                yield group
            if number % GROUPS_AT_ONCE == GROUPS_AT_ONCE - 1:
                await asyncio.sleep(0)

    # --- classic members --------------------------------------------------------------------------------------

    def join(self, group_id: str, request: JoinRequest) -> JoinAnswer | Awaitable[JoinAnswer]:
        """JoinGroup; the id for a new member is made here."""
        group, error = self._find(group_id)
        if error is ErrorCode.NONE and not self._is_session_allowed(request.session_timeout_ms):
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error is ErrorCode.NONE and group is None and request.member_id:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE:
            return JoinAnswer(error, request.member_id)
        if group is None:
            group = self._create(group_id)
        elif isinstance(group, MixedGroup):
            if group.members:
                return self._join_mixed(group, request)
            former, group = group, self._maker.classic(group_id, self._clock(), group.partition)
            self._turn_into(former, group)
        future: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        self._carry_out(group, group.join(request, future, self._clock()))
        return future.result() if future.done() else future

    def _join_mixed(self, group: MixedGroup, request: JoinRequest) -> JoinAnswer | Awaitable[JoinAnswer]:
        try:
            answer = group.join_classic(request, self._clock())
        except KafkaError as error:
            return JoinAnswer(error.code, request.member_id)
        written = self._write_changes(group)
        if written is None:
            return answer
        return _when_written(
            written,
            lambda error: answer if error is ErrorCode.NONE else JoinAnswer(group_error(error), answer.member_id),
        )

    def _is_session_allowed(self, session_timeout_ms: int) -> bool:
        config = self.config
        return config.group_min_session_timeout_ms <= session_timeout_ms <= config.group_max_session_timeout_ms

    def sync(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
    ) -> SyncAnswer | asyncio.Future[SyncAnswer]:
        """SyncGroup; `protocol` is (type, name)."""
        group, error = self._find(group_id)
        if isinstance(group, MixedGroup):
            try:
                return group.sync_classic(member_id, group_instance_id, generation_id, protocol)
            except KafkaError as refusal:
                return SyncAnswer(refusal.code)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The client joins again and finds the members that were read.
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is ErrorCode.NONE and group is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if group is None:
            return SyncAnswer(error)
        future: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        now = self._clock()
        self._carry_out(
            group, group.sync(member_id, group_instance_id, generation_id, protocol, assignments, future, now)
        )
        return future.result() if future.done() else future

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """Heartbeat."""
        group, error = self._find(group_id)
        if isinstance(group, MixedGroup):
            try:
                return group.heartbeat_classic(member_id, group_instance_id, generation_id, self._clock())
            except KafkaError as refusal:
                return refusal.code
        if group is None:
            if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return ErrorCode.NONE  # the sessions begin anew when the group has been read
            return ErrorCode.UNKNOWN_MEMBER_ID if error is ErrorCode.NONE else error
        return group.heartbeat(member_id, group_instance_id, generation_id, self._clock())

    def leave(self, group_id: str, leaving: Sequence[Leaving]) -> tuple[ErrorCode, list[ErrorCode]]:
        """LeaveGroup: the whole request's error, and each member's."""
        group, error = self._find(group_id)
        if error is not ErrorCode.NONE:
            return error, []
        if group is None:
            return ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
        if isinstance(group, MixedGroup):
            errors = [group.leave_classic(each, self._clock()) for each in leaving]
            self._write_changes(group)
            return ErrorCode.NONE, errors
        errors, instructions = group.leave(leaving, self._clock())
        self._carry_out(group, instructions)
        return ErrorCode.NONE, errors

    # --- groups of the newer protocol -------------------------------------------------------------------------

    def consumer_heartbeat(
        self, group_id: str, request: ConsumerHeartbeat
    ) -> ConsumerAnswer | Awaitable[ConsumerAnswer]:
        """ConsumerGroupHeartbeat; a future when records have to be written first. Raises KafkaError."""
        group, error = self._find(group_id)
        if error is not ErrorCode.NONE:
            raise KafkaError(error)
        begins = not isinstance(group, MixedGroup) or group.is_empty
        if begins and self.brokers_without_newer_protocol:
            lacking = ", ".join(map(str, sorted(self.brokers_without_newer_protocol)))
            message = f"brokers {lacking} of this cluster have the classic group protocol only"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{message}: use group.protocol=classic")
        regex = request.topic_regex
        known = group.subscribed.patterns if isinstance(group, MixedGroup) else ()
        if regex and request.pattern is None and regex not in known:
            return self._heartbeat_with_pattern(group_id, request, regex)
        if isinstance(group, MixedGroup) and (behind := self._behind(group)):
            return self._heartbeat_after_a_look(group_id, request, behind)
        if not isinstance(group, MixedGroup):
            group = self._newer_group(group_id, group, request)
        return self._hear_in_line(group_id, request) if group.takes_long(request) else self._hear(group, request)

    def _hear(self, group: MixedGroup, request: ConsumerHeartbeat) -> ConsumerAnswer | Awaitable[ConsumerAnswer]:
        answer = group.heartbeat(request, self._clock())
        written = self._write_changes(group)
        return answer if written is None else _when_written(written, lambda error: _answer_or_raise(answer, error))

    async def _hear_in_line(self, group_id: str, request: ConsumerHeartbeat) -> ConsumerAnswer:
        """Hear no more than one such member, of all groups, in a turn of the loop."""
        async with self._line:
            group, error = self._find(group_id)
            if not isinstance(group, MixedGroup):
                raise KafkaError(error or ErrorCode.COORDINATOR_NOT_AVAILABLE)
            answer = self._hear(group, request)
            await asyncio.sleep(0)
        return await finished(answer)

    async def _heartbeat_with_pattern(self, group_id: str, request: ConsumerHeartbeat, regex: str) -> ConsumerAnswer:
        """Have a thread look at all topics there are before the member's event."""
        pattern = await self._try_expression(TopicPattern, regex, list(self._replicas.metadata.topics))
        return await finished(self.consumer_heartbeat(group_id, replace(request, pattern=pattern)))

    def _behind(self, group: MixedGroup) -> list[TopicPattern]:
        """Return expressions with many names yet to be tried on, as after a coordinator change: the log keeps none."""
        topics = self._replicas.metadata
        return [pattern for pattern in group.subscribed.patterns.values() if len(pattern.unseen(topics)) > MOST_UNSEEN]

    async def _heartbeat_after_a_look(
        self, group_id: str, request: ConsumerHeartbeat, behind: Sequence[TopicPattern]
    ) -> ConsumerAnswer:
        """Have a thread try the expressions; other members, whose heartbeats come meanwhile, wait for the same look."""
        for pattern in behind:
            look = self._looks.get(pattern)
            if look is None:
                look = self._looks[pattern] = asyncio.ensure_future(self._look(pattern))
            await asyncio.shield(look)
        return await finished(self.consumer_heartbeat(group_id, request))

    async def _look(self, pattern: TopicPattern) -> None:
        try:
            pattern.learn(await self._try_expression(pattern.look_at, pattern.unseen(self._replicas.metadata)))
        finally:
            del self._looks[pattern]

    def _try_expression(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._replicas.workers.expressions, function, *arguments)

    def _newer_group(self, group_id: str, former: Group | None, request: ConsumerHeartbeat) -> MixedGroup:
        """Return the group that a member of the newer protocol joins; a classic one is turned into it."""
        if request.epoch != JOIN_EPOCH:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} is not one of the newer protocol")
        group = self._maker.consumer(group_id, self.partition_for(group_id))
        if former is None:
            self._keep(group)
            return group
        if former.members:
            if self.config.group_consumer_migration_policy not in ("upgrade", "bidirectional"):
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} is a classic group with members")
            group.take_over(former)
            group.start(self._clock())
            group.story.note(self._clock(), MIGRATED)
            log.info("group %s: its %d members go on in the newer protocol", group_id, len(group.members))
            self._carry_out(former, former.dissolve(self._clock()))
        self._turn_into(former, group)
        return group

    # --- offsets ----------------------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        offsets: Sequence[tuple[Key, CommittedOffset]],
        answer: Callable[[ErrorCode], Any] = lambda error: error,
    ) -> ErrorCode | asyncio.Future[Any]:
        """Store offsets. An error that comes at once is about the member; one about the append comes by a future.

        Its result is what `answer` makes of that error: a caller that had to wait would need a task for each commit.
        """
        group = self._groups.get(group_id)
        if group is None:
            error = self._find(group_id, empty_is_valid=True)[1]
            if error is ErrorCode.NONE and generation_id >= 0:
                error = ErrorCode.ILLEGAL_GENERATION
            if error is not ErrorCode.NONE:
                return error
            group = self._create(group_id)
        error = group.commit_error(member_id, group_instance_id, generation_id, self._clock())
        if error is not ErrorCode.NONE or not offsets:
            return error
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._fit_no_batch(group, len(offsets)):
            future.set_result(answer(ErrorCode.INVALID_COMMIT_OFFSET_SIZE))
            return future
        records = [(commit_key(group_id, key[0], key[1]), commit_value(committed)) for key, committed in offsets]
        committing = group.offsets
        committing.begin([key for key, _ in offsets])

        def done(error: ErrorCode, record_offset: int) -> None:
            if error is ErrorCode.NONE:
                self.counts.commits += 1
                for key, committed in offsets:
                    committing.stored(key, committed, record_offset)
                    record_offset += 1
            else:
                committing.failed([key for key, _ in offsets])
            if not future.done():
                future.set_result(answer(commit_error(error)))

        self._owned.by_number[group.partition].log.append(records, done)
        return future

    def _fit_no_batch(self, group: AnyGroup, offsets: int) -> bool:
        """Whether so many commits are more than a batch takes: before records of tens of thousands are made in vain."""
        if offsets < MOST_UNWEIGHED or self.config.offsets_topic_compression_codec:
            return False
        smallest = SMALLEST_COMMIT_BYTES + len(group.group_id.encode())
        most = self._replicas.max_batch_bytes(OFFSETS_TOPIC, group.partition)
        return 0 < most < offsets * smallest

    async def commit_in_transaction(
        self,
        transaction: Transaction,
        group_id: str,
        member: tuple[str, str | None, int],
        offsets: Sequence[tuple[Key, CommittedOffset]],
        adds: bool,
    ) -> ErrorCode:
        """Store offsets that count when the transaction is committed; return how the append went.

        `member`: its id, its instance id, the generation. `adds`: the group takes part in the transaction by that.
        Raises KafkaError about the member, or the transaction.
        """
        self._require(group_id)
        try:
            verified = await self._replicas.verify(OFFSETS_TOPIC, self.partition_for(group_id), transaction, adds)
        except KafkaError as refusal:
            raise KafkaError(commit_error(refusal.code), refusal.message) from None
        group = self._require(group_id) or self._maker.classic(group_id, self._clock(), self.partition_for(group_id))
        error = group.commit_error(*member, self._clock(), is_transactional=True)
        if error is ErrorCode.STALE_MEMBER_EPOCH:  # producers know nothing of it, and would be at their end
            error = ErrorCode.ILLEGAL_GENERATION
        if error is not ErrorCode.NONE:
            raise KafkaError(error)
        if not offsets:
            return ErrorCode.NONE
        if self._fit_no_batch(group, len(offsets)):
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        self._keep(group)
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        committing, owned = group.offsets, self._owned.by_number[group.partition]
        committing.begin([key for key, _ in offsets])

        def done(error: ErrorCode, record_offset: int) -> None:
            if error is ErrorCode.NONE:
                for number, (key, committed) in enumerate(offsets):
                    committing.stored_in_transaction(transaction.producer_id, key, committed, record_offset + number)
                owned.in_transactions.setdefault(transaction.producer_id, set()).add(group_id)
            else:
                committing.failed([key for key, _ in offsets])
            future.set_result(commit_error(error))

        records = [(commit_key(group_id, key[0], key[1]), commit_value(committed)) for key, committed in offsets]
        owned.log.append_in_transaction(records, transaction[1:], verified, done)
        return await asyncio.shield(future)

    def _require(self, group_id: str) -> AnyGroup | None:
        """Return the group, None when this broker would have it if it existed; raises KafkaError."""
        group, error = self._find(group_id)
        if error is not ErrorCode.NONE:
            raise KafkaError(error)
        return group

    def committed(self, group_id: str) -> tuple[AnyGroup | None, ErrorCode]:
        """Return the group for its offsets: None when it has none, and why nothing can be said about them."""
        return self._find(group_id, empty_is_valid=True)

    def read_error(self, group_id: str, member_id: str, epoch: int) -> ErrorCode:
        """Return why a member of a consumer group that tells its epoch may not read offsets: 25, 113, or NONE."""
        group = self._groups.get(group_id)
        return group.read_error(member_id, None, epoch) if isinstance(group, MixedGroup) else ErrorCode.NONE

    async def delete_offsets(self, group_id: str, keys: Sequence[Key]) -> tuple[ErrorCode, dict[Key, ErrorCode]]:
        """OffsetDelete: the whole request's error, and those of partitions."""
        group, error = self._find(group_id)
        if error is not ErrorCode.NONE:
            return error, {}
        if group is None or group.is_dead:
            return ErrorCode.GROUP_ID_NOT_FOUND, {}
        refused: dict[Key, ErrorCode] = {}
        if not group.is_empty:
            if not group.is_consumer_group:
                return ErrorCode.NON_EMPTY_GROUP, {}
            refused = {key: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC for key in keys if group.has_subscribed(key[0])}
        removed = [key for key in keys if key not in refused]
        self.counts.deleted_offsets += sum(key in group.offsets.committed for key in removed)
        error = commit_error(await self._remove(group, removed))
        return ErrorCode.NONE, refused | {key: error for key in keys if key not in refused}

    def _remove(self, group: AnyGroup, keys: Sequence[Key]) -> asyncio.Future[ErrorCode]:
        """Remove offsets, and a group that nobody is in with the last of them."""
        if self._is_over_without(group, keys):
            return self._bury(group, [*keys, *group.offsets.owed_removals()])
        return self._remove_offsets(group, keys)

    def _remove_offsets(self, group: AnyGroup, keys: Iterable[Key]) -> asyncio.Future[ErrorCode]:
        """Forget offsets and write their tombstones; the future tells how that went."""
        removed = group.offsets.remove(keys)
        records = [(commit_key(group.group_id, topic, partition), None) for topic, partition in removed]
        return self._append_tombstones(group, records, removed)

    def _append_tombstones(
        self, group: AnyGroup, records: Records, keys: Sequence[Key] = ()
    ) -> asyncio.Future[ErrorCode]:
        """Append them; `keys` are the partitions whose offsets the first of them remove."""
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        starts = range(0, len(records), TOMBSTONES_AT_ONCE)
        owned = self._owned.by_number.get(group.partition)
        if owned is None or not starts:
            future.set_result(ErrorCode.NONE if owned is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return future
        left = len(starts)

        def done(start: int, error: ErrorCode, offset: int) -> None:
            nonlocal left
            left -= 1
            if error is ErrorCode.NONE:
                for number, key in enumerate(keys[start : start + TOMBSTONES_AT_ONCE]):
                    group.offsets.removal_stored(key, offset + number)
            if not future.done() and (left == 0 or error is not ErrorCode.NONE):
                future.set_result(error)

        for start in starts:
            owned.log.append(records[start : start + TOMBSTONES_AT_ONCE], partial(done, start))
        return future

    # --- groups as a whole ------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> tuple[AnyGroup | None, ErrorCode]:
        """Return a group as it stands, None for one that does not exist, and why nothing can be said about it."""
        return self._find(group_id, empty_is_valid=True)

    def groups(self) -> tuple[list[AnyGroup], ErrorCode]:
        """Return all groups that are here; 14 when some are still being read, 15 when the coordinator is stopped."""
        if not self._owned.is_active:
            return [], ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._owned.is_loading else ErrorCode.NONE
        return list(self._groups.values()), error

    async def delete_groups(self, group_ids: Sequence[str]) -> dict[str, ErrorCode]:
        """DeleteGroups: groups without members go, with all their offsets."""
        written: dict[str, asyncio.Future[ErrorCode]] = {}
        errors: dict[str, ErrorCode] = {}
        for group_id in dict.fromkeys(group_ids):
            group, error = self._find(group_id, empty_is_valid=True)
            if error is not ErrorCode.NONE:
                errors[group_id] = error
            elif group is None or group.is_dead:
                errors[group_id] = ErrorCode.GROUP_ID_NOT_FOUND
            elif not group.is_empty:
                errors[group_id] = ErrorCode.NON_EMPTY_GROUP
            elif group.offsets.pending_keys():  # what comes of those is still to be seen: the group stays for them
                written[group_id] = self._remove_offsets(group, group.offsets.all_keys())
            else:
                written[group_id] = self._bury(group, group.offsets.all_keys())
        for group_id, future in written.items():
            errors[group_id] = commit_error(await asyncio.shield(future))
        return {group_id: errors[group_id] for group_id in group_ids}

    def _bury(self, group: AnyGroup, keys: Iterable[Key]) -> asyncio.Future[ErrorCode]:
        """Remove an Empty group and these offsets of it, with tombstones; it is back when they cannot be written."""
        removed = group.offsets.remove(keys)
        records: list[Record] = [(commit_key(group.group_id, topic, partition), None) for topic, partition in removed]
        self._groups.pop(group.group_id, None)
        owned = self._owned.by_number.get(group.partition)
        if owned is not None:
            owned.groups.pop(group.group_id, None)
        written = self._append_tombstones(group, records + group.tombstones(), removed)
        written.add_done_callback(partial(self._buried, group, owned))
        return written

    def _buried(self, group: AnyGroup, owned: GroupsPartition | None, written: asyncio.Future[ErrorCode]) -> None:
        if written.result() is not ErrorCode.NONE and owned is not None and self._owned.is_current(owned):
            present = self._groups.get(group.group_id)
            if present is None:
                self._keep(group)
                return
            present.offsets.take_over_removals(group.offsets)
        self._end(group, self._clock())

    # --- expiry -----------------------------------------------------------------------------------------------

    async def _expire_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.config.offsets_retention_check_interval_ms / 1000)
            try:
                await self.expire_offsets()
            except Exception:
                log.exception("expiring offsets failed; it is tried again later")

    async def expire_offsets(self) -> None:
        """Forget the offsets whose retention is over by both clocks, and Empty groups that have none left.

        Removals that could not be written are written again.
        """
        async for group in self._each_group():
            self._expire_group(group, min(self._clock(), self._replicas.clock()))

    def _expire_group(self, group: AnyGroup, now: int) -> None:
        expired = group.expired_offsets(now, self.config.offsets_retention_minutes * MS_PER_MINUTE)
        removed = expired + group.offsets.owed_removals()
        self.counts.expired_offsets += len(expired)
        if self._is_over_without(group, expired):
            self._bury(group, removed)
            log.info("group %s is forgotten: nobody is in it and it has no offsets", group.group_id)
        elif removed:
            self._remove_offsets(group, removed)
            log.info("group %s: %d offsets have expired or were removed before", group.group_id, len(removed))

    @staticmethod
    def _is_over_without(group: AnyGroup, keys: Iterable[Key]) -> bool:
        """Whether nobody is in a group, and these are all its offsets: it goes with them."""
        is_left = group.is_empty and not group.is_expected and not group.offsets.is_waiting
        return is_left and group.offsets.committed.keys() <= set(keys)


def new_member_id(client_id: str, group_instance_id: str | None) -> str:
    """Return an id nobody has: Kafka's form, which tools show and which names the client."""
    return f"{client_id if group_instance_id is None else group_instance_id}-{uuid.uuid4()}"


async def _when_written(written: asyncio.Future[ErrorCode], answer: Callable[[ErrorCode], T]) -> T:
    return answer(await written)


def _answer_or_raise(answer: ConsumerAnswer, error: ErrorCode) -> ConsumerAnswer:
    if error is not ErrorCode.NONE:
        raise KafkaError(consumer_group_error(error))
    return answer
