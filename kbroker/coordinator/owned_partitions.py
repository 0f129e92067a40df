"""The partitions of __consumer_offsets this broker leads: read when it begins to, given up when it ceases.

Reading goes on in a worker thread, one partition after the other; until it is done, the partition's groups are
answered COORDINATOR_LOAD_IN_PROGRESS. A partition that is lost meanwhile is forgotten at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from kbroker.coordinator.any_group import AnyGroup, GroupMaker
from kbroker.coordinator.loading import LoadedOffsets, load, make_groups
from kbroker.coordinator.offsets_log import OffsetsLog
from kbroker.segment.log import Log

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class OwnedPartition:
    """One partition of __consumer_offsets with its groups."""

    partition: int
    leader_epoch: int
    log: OffsetsLog
    is_loading: bool = True
    groups: dict[str, AnyGroup] = field(default_factory=dict)
    ended: list[tuple[int, bool]] = field(default_factory=list)
    """Transactions that ended while the partition was being read: producer id, and whether they count."""

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        """The producer's offsets of this partition count from now on, or are forgotten."""
        if self.is_loading:
            self.ended.append((producer_id, is_commit))
            return
        for group in self.groups.values():
            group.offsets.end_transaction(producer_id, is_commit)


class OwnedPartitions:
    """All of them, by number: `owned[3]`."""

    def __init__(
        self,
        maker: GroupMaker,
        buffer_bytes: int,
        clock: Callable[[], int],
        executor: Executor | None,
        started: Callable[[OwnedPartition], None],
        make_log: Callable[[int], OffsetsLog],
    ) -> None:
        """`started(owned)` is called when a partition has been read; its groups' timers do not run yet."""
        self.by_number: dict[int, OwnedPartition] = {}
        self._maker = maker
        self._buffer_bytes = buffer_bytes
        self._clock = clock
        self._executor = executor
        self._started = started
        self._make_log = make_log
        self._one_at_a_time = asyncio.Lock()
        self._loads: set[asyncio.Task[None]] = set()

    @property
    def is_loading(self) -> bool:
        """Whether some partition is still being read."""
        return any(owned.is_loading for owned in self.by_number.values())

    def take(self, partition: int, leader_epoch: int, partition_log: Log) -> None:
        """This broker leads the partition (again, when it is known already)."""
        known = self.by_number.get(partition)
        if known is not None:
            known.leader_epoch = max(known.leader_epoch, leader_epoch)
            return
        owned = OwnedPartition(partition, leader_epoch, self._make_log(partition))
        self.by_number[partition] = owned
        if partition_log.log_start_offset == partition_log.log_end_offset:
            owned.is_loading = False
            return
        task = asyncio.create_task(self._load(owned, partition_log), name=f"load-groups-{partition}")
        self._loads.add(task)
        task.add_done_callback(self._loads.discard)

    def give_up(self, partition: int) -> OwnedPartition | None:
        """This broker does not lead the partition any more; returns it with its groups."""
        return self.by_number.pop(partition, None)

    async def finish(self) -> None:
        """Wait for what runs in threads; the partitions have been given up."""
        if self._loads:
            await asyncio.wait(self._loads)

    def _is_current(self, owned: OwnedPartition) -> bool:
        return self.by_number.get(owned.partition) is owned

    async def _load(self, owned: OwnedPartition, partition_log: Log) -> None:
        begun = time.monotonic()
        async with self._one_at_a_time:
            if not self._is_current(owned):
                return
            try:
                loaded, groups = await asyncio.get_running_loop().run_in_executor(
                    self._executor, self._load_in_thread, owned, partition_log
                )
            except Exception:
                log.exception("%s: its groups cannot be read", partition_log.name)
                if self._is_current(owned):
                    del self.by_number[owned.partition]
                return
        if not self._is_current(owned):
            return
        owned.groups = groups
        owned.is_loading = False
        for ended in owned.ended:
            owned.end_transaction(*ended)
        took_ms = (time.monotonic() - begun) * 1000
        log.info("%s: %d groups from %d records in %.0f ms", partition_log.name, len(groups), loaded.records, took_ms)
        self._started(owned)

    def _load_in_thread(self, owned: OwnedPartition, partition_log: Log) -> tuple[LoadedOffsets, dict[str, AnyGroup]]:
        loaded = load(partition_log, self._buffer_bytes, lambda: self._is_current(owned))
        return loaded, make_groups(loaded, self._maker, self._clock(), owned.partition)
