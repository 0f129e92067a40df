"""The partitions of a coordinator's topic that this broker leads: read when it begins to, given up when it ceases.

Shared by the coordinators of groups (__consumer_offsets) and of transactions (__transaction_state); each says how its
partitions are read. Reading goes on in a worker thread, one partition after the other; until it is done, whoever asks
is answered COORDINATOR_LOAD_IN_PROGRESS. A partition that is lost meanwhile is forgotten at once.

A log is read to its end, and what lies above the high watermark may still be lost, with this broker. Where decisions
hang on it (`only_committed`) the partition counts as being read until all that was read is committed: else somebody
could be told, or a marker be written, of what the next coordinator does not know.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from kbroker.coordinator.topic_log import TopicLog
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.java_hash import partition_for
from kbroker.replica.delayed import DelayedAnswer
from kbroker.segment.log import Log

if TYPE_CHECKING:
    from kbroker.replica.replica_manager import ReplicaManager

log = logging.getLogger(__name__)

FOR_EVER_MS = 1 << 40
TOLD_S = 0.01
"""Who leads a partition no more is told so a moment later."""
FIRST_AGAIN_S, LONGEST_AGAIN_S = 1.0, 60.0
"""After a partition that could not be read: twice the pause each time."""


@dataclass(slots=True, eq=False)
class OwnedPartition:
    """One partition; a coordinator adds what it keeps there."""

    partition: int
    leader_epoch: int
    log: TopicLog
    is_loading: bool = True
    committing: asyncio.Future[None] | None = None
    """Done when all that was read is committed."""


P = TypeVar("P", bound=OwnedPartition)


class OwnedPartitions(Generic[P]):
    """All of them, by number: `owned.by_number[3]`."""

    def __init__(
        self,
        topic: str,
        partition_count: int,
        replicas: ReplicaManager,
        executor: Executor | None,
        make: Callable[[int, int], P],
        read: Callable[[P, Log, Callable[[], bool]], str],
        started: Callable[[P], None],
        resigned: Callable[[P], None],
        only_committed: bool = False,
    ) -> None:
        """What a coordinator does with its partitions.

        Args:
            topic: where they are.
            partition_count: how many the topic has; `count` may be corrected before it begins.
            replicas: tells who leads.
            executor: for reading.
            make: of a partition and its leader epoch.
            read: fills one from the log, in a thread; stops early when the function it is given says no; returns what
                it has found, as text.
            started: called on the loop when one has been read.
            resigned: called on the loop when one is given up.
            only_committed: whether to wait until all that was read is committed.
        """
        self.topic = topic
        self.count = partition_count
        """Fixed for the life of the process, whatever is added to the topic."""
        self.is_active = False
        """Whether the coordinator runs."""
        self.by_number: dict[int, P] = {}
        self._replicas = replicas
        self._executor = executor
        self._make = make
        self._read = read
        self._started = started
        self._resigned = resigned
        self._only_committed = only_committed
        self._one_at_a_time = asyncio.Lock()
        self._loads: set[asyncio.Task[None]] = set()
        self._pauses_s: dict[int, float] = {}
        """Of the partitions that could not be read."""

    # --- questions --------------------------------------------------------------------------------------------

    @property
    def is_loading(self) -> bool:
        """Whether some partition is still being read."""
        return any(owned.is_loading for owned in self.by_number.values())

    def partition_for(self, key: str) -> int:
        """Return the partition that holds a group, or a transactional id."""
        return partition_for(key, self.count)

    def find(self, key: str) -> tuple[P | None, ErrorCode]:
        """Return the partition that holds the key; else why this broker cannot speak for it now (15, 14, 16)."""
        if not self.is_active:
            return None, ErrorCode.COORDINATOR_NOT_AVAILABLE
        owned = self.by_number.get(self.partition_for(key))
        if owned is None:
            return None, ErrorCode.NOT_COORDINATOR
        if owned.is_loading:
            return None, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return owned, ErrorCode.NONE

    def is_current(self, owned: P) -> bool:
        """Whether the partition has not been given up since."""
        return self.by_number.get(owned.partition) is owned

    # --- leadership -------------------------------------------------------------------------------------------

    def leadership_changed(self, elected: Sequence[tuple[str, int]], resigned: Sequence[tuple[str, int]]) -> None:
        """This broker began and ceased to lead partitions; those of other topics are none of our business."""
        for topic, partition in resigned:
            if topic == self.topic:
                self.resign(partition)
        for topic, partition in elected:
            if topic == self.topic:
                hosted = self._replicas.replica(topic, partition)
                if hosted is not None and hosted.state.is_leader:
                    self.take(partition, hosted.state.leader_epoch, hosted.log)

    def take(self, partition: int, leader_epoch: int, partition_log: Log) -> None:
        """This broker leads the partition (again, when it is known already)."""
        known = self.by_number.get(partition)
        if known is not None:
            known.leader_epoch = max(known.leader_epoch, leader_epoch)
            return
        owned = self.by_number[partition] = self._make(partition, leader_epoch)
        if partition_log.log_start_offset == partition_log.log_end_offset:
            owned.is_loading = False
            return
        task = asyncio.create_task(self._load(owned, partition_log), name=f"load-{partition_log.name}")
        self._loads.add(task)
        task.add_done_callback(self._loads.discard)

    def resign(self, partition: int) -> None:
        """This broker does not lead the partition any more."""
        owned = self.by_number.pop(partition, None)
        if owned is not None:
            if owned.committing is not None:
                owned.committing.cancel()
            self._resigned(owned)

    def resign_all(self) -> None:
        """The coordinator stops: give up all partitions, take none any more."""
        self.is_active = False
        for partition in list(self.by_number):
            self.resign(partition)

    async def finish(self) -> None:
        """Wait until what is being read has been read."""
        if self._loads:
            await asyncio.wait(self._loads)

    # --- reading ----------------------------------------------------------------------------------------------

    async def _load(self, owned: P, partition_log: Log) -> None:
        begun = time.monotonic()
        async with self._one_at_a_time:
            if not self.is_current(owned):
                return
            try:
                found = await asyncio.get_running_loop().run_in_executor(
                    self._executor, self._read, owned, partition_log, lambda: self.is_current(owned)
                )
            except Exception:
                log.exception("%s cannot be read: nobody coordinates what it holds until it can", partition_log.name)
                if self.is_current(owned):
                    del self.by_number[owned.partition]
                    self._take_later(owned.partition)
                return
        self._pauses_s.pop(owned.partition, None)
        if self._only_committed:
            await self._until_committed(owned, partition_log.log_end_offset)
        if not self.is_current(owned):
            return
        owned.is_loading = False
        log.info("%s: %s in %.0f ms", partition_log.name, found, (time.monotonic() - begun) * 1000)
        self._started(owned)

    def _take_later(self, partition: int) -> None:
        """What kept it from being read may pass; as long as this broker leads it nobody else would read it."""
        pause_s = self._pauses_s.get(partition, FIRST_AGAIN_S)
        self._pauses_s[partition] = min(2 * pause_s, LONGEST_AGAIN_S)
        asyncio.get_running_loop().call_later(pause_s, self._take_again, partition)

    def _take_again(self, partition: int) -> None:
        hosted = self._replicas.replica(self.topic, partition)
        if self.is_active and partition not in self.by_number and hosted is not None and hosted.state.is_leader:
            self.take(partition, hosted.state.leader_epoch, hosted.log)

    async def _until_committed(self, owned: P, end_offset: int) -> None:
        """Return when the high watermark has reached the offset, or the partition was given up."""
        while self.is_current(owned):
            hosted = self._replicas.replica(self.topic, owned.partition)
            if hosted is not None and hosted.state.high_watermark >= end_offset:
                return
            if hosted is None or not hosted.state.is_leader:
                await asyncio.sleep(TOLD_S)
                continue
            answer = DelayedAnswer(FOR_EVER_MS, lambda results: None)
            answer.results.append(None)
            answer.wait_for(0, hosted.acks, end_offset)
            assert answer.future is not None
            owned.committing = answer.future
            await asyncio.wait([answer.future])
