"""What the controller orders: lead, follow, stop, delete. One such request at a time.

Making thousands of logs takes worker threads and small portions, so that the loop goes on serving meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from kbroker.cluster.topic_names import name_problem
from kbroker.controller.wording import count, few
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.grouping import Key
from kbroker.protocol.messages.replication import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
)
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.replica.hosted import HostedPartition
from kbroker.replica.partition import Assignment, Partition
from kbroker.replica.turns import Turn, finished, in_turns
from kbroker.segment.log import Log

if TYPE_CHECKING:
    from kbroker.replica.replica_manager import ReplicaManager

log = logging.getLogger(__name__)

PORTION = 100
"""Logs made or removed, or transitions done, before others get their turn."""
PORTIONS_PER_FREEZE = 10
"""Partitions stay: the garbage collector need not walk through thousands of them, which would stop the loop."""
DELETED_TOPIC_EPOCH = -2
UNKNOWN_EPOCH = -1

Item = TypeVar("Item")
PartitionState = LeaderAndIsrRequest.LeaderAndIsrPartitionState


@dataclass(slots=True)
class _Order:
    """One entry of a LeaderAndIsr request on its way."""

    topic: str
    topic_id: bytes
    partition: int
    assignment: Assignment
    error: ErrorCode = ErrorCode.NONE
    done: bool = False
    """The entry asks for nothing more: it brought a topic id, which is stored, or is older than what is known."""
    created: Log | None = None
    is_missed: bool = False
    """Whether a log should have been here, and there was none."""


@dataclass(slots=True)
class Changes:
    """Which partitions this broker began and ceased to lead."""

    elected: list[Key] = field(default_factory=list)
    resigned: list[Key] = field(default_factory=list)
    begun_empty: list[str] = field(default_factory=list)
    """Of those elected whose log is gone."""


class Leadership:
    """Carries out LeaderAndIsr and StopReplica on the partitions of a replica manager."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        self.lock = asyncio.Lock()
        """Held by whoever makes or removes replicas."""
        self.controller_epoch = 0
        """The highest seen; orders of an older controller are refused."""
        self.ordered_epoch = -1

    def check_controller(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        """Return why an order is refused as a whole: 77 (meant for an earlier life of this broker), 11, or NONE."""
        if 0 <= broker_epoch < self._manager.broker_epoch():
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE

    # --- LeaderAndIsr -----------------------------------------------------------------------------------------

    async def become_leader_or_follower(self, request: LeaderAndIsrRequest, version: int) -> LeaderAndIsrResponse:
        """Create logs, become leader or follower; each partition has its own error."""
        async with self.lock:
            refused = self.check_controller(request.controller_epoch, request.broker_epoch)
            if refused is not ErrorCode.NONE:
                return LeaderAndIsrResponse(error_code=refused)
            orders: list[_Order] = []
            for order in _orders(request):
                order.error = self._judge(order)
                orders.append(order)
                if len(orders) % PORTION == 0:
                    await asyncio.sleep(0)
            accepted = [order for order in orders if order.error is ErrorCode.NONE and not order.done]
            quick: list[_Order] = []
            slow: list[_Order] = []
            for order in accepted:
                (slow if self._may_wait(order) else quick).append(order)
            for those in (quick, slow):  # a disk that hangs keeps no others from their leaders
                changes = Changes()
                try:
                    await self._carry_out_all(those, changes)
                finally:
                    self._announce(changes)  # of what was done nobody will tell again
            self.ordered_epoch = max(self.ordered_epoch, request.broker_epoch)
            return await finished(in_turns(_leader_and_isr_response(orders, version)))

    def _may_wait(self, order: _Order) -> bool:
        hosted = self._manager.replica(order.topic, order.partition)
        if hosted is not None:
            return hosted.is_slow or hosted.write is not None
        existing = self._manager.logs.get(order.topic, order.partition)  # of an earlier life: made ready in a thread
        return existing is not None and existing.disk.pool.pace.is_slow

    async def _carry_out_all(self, orders: Sequence[_Order], changes: Changes) -> None:
        for number, portion in enumerate(_portions(orders), start=1):
            await self._make_logs(portion)
            async with self._manager.quiet((order.topic, order.partition) for order in portion):
                for order in portion:
                    if order.error is ErrorCode.NONE:
                        order.error = self._try(order, changes)
            if number % PORTIONS_PER_FREEZE == 0:
                gc.freeze()
            await asyncio.sleep(0)

    def _judge(self, order: _Order) -> ErrorCode:
        """Return why an entry is refused before anything is done, or NONE."""
        manager = self._manager
        if manager.logs.is_offline(order.topic, order.partition):
            return ErrorCode.KAFKA_STORAGE_ERROR
        hosted = manager.replica(order.topic, order.partition)
        existing = hosted.log if hosted is not None else manager.logs.get(order.topic, order.partition)
        known_id = ZERO_UUID if existing is None else existing.topic_id
        if ZERO_UUID not in (known_id, order.topic_id) and known_id != order.topic_id:
            log.error("%s-%d: the controller's topic id is not that of the log here", order.topic, order.partition)
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if hosted is None:
            if name_problem(order.topic) is not None or order.partition < 0:
                log.error("%.250s-%d: ordered by the controller, and no partition's name", order.topic, order.partition)
                return ErrorCode.INVALID_TOPIC_EXCEPTION
            fresh = Partition(order.topic, order.partition, manager.broker_id)
            return fresh.assignment_error(order.assignment)
        error = hosted.state.assignment_error(order.assignment)
        same_epoch = order.assignment.leader_epoch == hosted.state.leader_epoch
        if error is ErrorCode.STALE_CONTROLLER_EPOCH and same_epoch and known_id == ZERO_UUID != order.topic_id:
            hosted.log.set_topic_id(order.topic_id)
            hosted.topic_id = order.topic_id
            order.done = True
            return ErrorCode.NONE
        if error is ErrorCode.NONE and order.assignment.partition_epoch < hosted.state.partition_epoch:
            order.done = True
        return error

    async def _make_logs(self, portion: Sequence[_Order]) -> None:
        manager = self._manager
        missing = [order for order in portion if manager.replica(order.topic, order.partition) is None]
        if missing:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(manager.workers.upkeep, self._make_logs_in_thread, missing)

    def _make_logs_in_thread(self, orders: Sequence[_Order]) -> None:
        manager = self._manager
        for order in orders:
            existing = manager.logs.get(order.topic, order.partition)
            order.is_missed = existing is None and not order.assignment.is_new
            if order.is_missed and manager.logs.offline_dirs:
                # The log may lie in the directory that is offline: a new, empty one would lose what was acknowledged.
                order.error = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            try:
                config = manager.topic_config(order.topic)
                created = order.created = manager.logs.create(order.topic, order.partition, order.topic_id, config)
                while (by_now := manager.topic_config(order.topic)) is not config:  # who changed it saw no log yet
                    config = by_now
                    created.apply_config(config)
                if created.log_end_offset - created.disk.flushed_to >= created.config.flush_messages:
                    created.flush()  # what a crash has left in memory is about to count
            except KafkaError as error:
                log.error("%s-%d: %s", order.topic, order.partition, error)
                order.error = error.code

    def _try(self, order: _Order, changes: Changes) -> ErrorCode:
        try:
            return self._carry_out(order, changes)
        except KafkaError as error:  # its disk has failed: the other partitions are not to suffer
            log.error("%s-%d: %s", order.topic, order.partition, error)
            return error.code

    def _carry_out(self, order: _Order, changes: Changes) -> ErrorCode:
        manager = self._manager
        hosted = manager.replica(order.topic, order.partition)
        if hosted is None:
            if order.created is None or order.created.failure is not None:
                return ErrorCode.KAFKA_STORAGE_ERROR
            hosted = manager.host(order.topic, order.partition, order.created)
        elif order.topic_id != ZERO_UUID:
            hosted.topic_id = order.topic_id
        was_leader = hosted.state.is_leader
        key = (order.topic, order.partition)
        if order.assignment.leader == manager.broker_id:
            self._lead(hosted, order.assignment)
            changes.elected.append(key)
            if order.is_missed:
                changes.begun_empty.append(hosted.log.name)
        else:
            if was_leader:
                changes.resigned.append(key)
            self._follow(hosted, order.assignment)
        return ErrorCode.NONE

    def _lead(self, hosted: HostedPartition, assignment: Assignment) -> None:
        manager = self._manager
        partition_log, counted_to = hosted.log, None
        if hosted.needs_flush():  # what it has appended as the leader before: that counts no sooner for a new epoch
            counted_to = partition_log.disk.flushed_to
            manager.flusher.add(hosted)
        instructions = hosted.state.become_leader(
            assignment, partition_log.log_end_offset, manager.steady(), manager.metadata.brokers, counted_to
        )
        hosted.begin_to_count()
        manager.carry_out(hosted, instructions)
        hosted.changed()

    def _follow(self, hosted: HostedPartition, assignment: Assignment) -> None:
        manager = self._manager
        hosted.settle_traffic()
        manager.carry_out(hosted, hosted.state.become_follower(assignment))
        hosted.fail_acks(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        hosted.changed()

    def _announce(self, changes: Changes) -> None:
        if changes.elected or changes.resigned:
            log.info("leading %d more partition(s), %d fewer", len(changes.elected), len(changes.resigned))
            self._manager.on_leadership_change(changes.elected, changes.resigned)
        if changes.begun_empty:  # a follower's is filled by its leader
            log.error(
                "leading %s that had no log here and so begin empty (%s): if a disk of log.dirs is not mounted, stop"
                " this broker and mount it before more is written",
                count(len(changes.begun_empty), "partition"),
                few(changes.begun_empty),
            )
        if changes.elected:
            self._manager.expect_followers()

    # --- StopReplica ------------------------------------------------------------------------------------------

    async def stop_replicas(self, request: StopReplicaRequest, version: int) -> StopReplicaResponse:
        """Stop replicas, and delete those marked so."""
        async with self.lock:
            refused = self.check_controller(request.controller_epoch, request.broker_epoch)
            if refused is not ErrorCode.NONE:
                return StopReplicaResponse(error_code=refused, partition_errors=[])
            errors: list[tuple[Key, ErrorCode]] = []
            changes = Changes()
            doomed: list[Key] = []
            stops = list(_stops(request, version))
            may_stop = [key for key, leader_epoch, _ in stops if self._may_stop(key, leader_epoch)]
            turn = Turn()
            try:
                async with self._manager.quiet(may_stop):
                    for key, leader_epoch, delete in stops:
                        await turn.end_if_over()
                        error = self._stop(key, leader_epoch, changes)
                        errors.append((key, error))
                        if delete and error is ErrorCode.NONE:
                            doomed.append(key)
                failed = await self._delete(doomed)
            finally:
                self._announce(changes)
            return _stop_replica_response([(key, failed.get(key, error)) for key, error in errors])

    def _stop(self, key: Key, leader_epoch: int, changes: Changes) -> ErrorCode:
        manager = self._manager
        if manager.logs.is_offline(*key):
            return ErrorCode.KAFKA_STORAGE_ERROR
        hosted = manager.replica(*key)
        if hosted is None:
            return ErrorCode.NONE
        if not self._may_stop(key, leader_epoch):
            return ErrorCode.FENCED_LEADER_EPOCH
        if hosted.state.is_leader:
            changes.resigned.append(key)
        manager.drop(key, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return ErrorCode.NONE

    def _may_stop(self, key: Key, leader_epoch: int) -> bool:
        hosted = self._manager.replica(*key)
        if hosted is None or leader_epoch in (DELETED_TOPIC_EPOCH, UNKNOWN_EPOCH):
            return True
        return leader_epoch >= hosted.state.leader_epoch

    async def _delete(self, doomed: Sequence[Key]) -> dict[Key, ErrorCode]:
        loop = asyncio.get_running_loop()
        failed: dict[Key, ErrorCode] = {}
        for portion in _portions(doomed):
            errors = await loop.run_in_executor(self._manager.workers.upkeep, self._manager.logs.delete, portion)
            for key, error in errors.items():
                log.error("%s-%d: %s", *key, error)
                failed[key] = error.code
        return failed


def _portions(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), PORTION):
        yield items[start : start + PORTION]


def _orders(request: LeaderAndIsrRequest) -> Iterator[_Order]:
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield _Order(topic.topic_name, bytes(topic.topic_id), state.partition_index, _assignment(state))
    for state in request.ungrouped_partition_states:
        yield _Order(state.topic_name, ZERO_UUID, state.partition_index, _assignment(state))


def _assignment(state: PartitionState) -> Assignment:
    return Assignment(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=tuple(state.isr),
        partition_epoch=state.partition_epoch,
        replicas=tuple(state.replicas),
        adding_replicas=tuple(state.adding_replicas),
        removing_replicas=tuple(state.removing_replicas),
        is_new=state.is_new,
    )


def _leader_and_isr_response(orders: Sequence[_Order], version: int) -> Generator[None, None, LeaderAndIsrResponse]:
    """List the errors: by topic name up to version 4, by topic id from 5 on."""
    make = LeaderAndIsrResponse.LeaderAndIsrPartitionError
    by_name: list[LeaderAndIsrResponse.LeaderAndIsrPartitionError] = []
    topics: dict[bytes, list[LeaderAndIsrResponse.LeaderAndIsrPartitionError]] = {}
    for order in orders:
        index, code = order.partition, order.error
        if version < 5:
            by_name.append(make(topic_name=order.topic, partition_index=index, error_code=code))
        else:
            topics.setdefault(order.topic_id, []).append(make(partition_index=index, error_code=code))
        yield
    if version < 5:
        return LeaderAndIsrResponse(error_code=ErrorCode.NONE, partition_errors=by_name)
    return LeaderAndIsrResponse(
        error_code=ErrorCode.NONE,
        topics=[
            LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=errors)
            for topic_id, errors in topics.items()
        ],
    )


def _stops(request: StopReplicaRequest, version: int) -> Iterator[tuple[Key, int, bool]]:
    """Yield (partition, leader epoch, delete) from the form this version has."""
    if version >= 3:
        for topic in request.topic_states:
            for state in topic.partition_states:
                yield (topic.topic_name, state.partition_index), state.leader_epoch, state.delete_partition
    elif version >= 1:
        for old in request.topics:
            for partition in old.partition_indexes:
                yield (old.name, partition), UNKNOWN_EPOCH, request.delete_partitions
    else:
        for single in request.ungrouped_partitions:
            yield (single.topic_name, single.partition_index), UNKNOWN_EPOCH, request.delete_partitions


def _stop_replica_response(errors: Sequence[tuple[Key, ErrorCode]]) -> StopReplicaResponse:
    return StopReplicaResponse(
        error_code=ErrorCode.NONE,
        partition_errors=[
            StopReplicaResponse.StopReplicaPartitionError(topic_name=topic, partition_index=partition, error_code=error)
            for (topic, partition), error in errors
        ],
    )
