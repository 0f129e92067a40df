"""What the partitions of this broker ask of other brokers: records of their leaders, changes of ISRs of the controller.

Carries out the instructions of partition.py that reach beyond this broker. There are `num.replica.fetchers` connections
to each leader broker; a partition always takes the same one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from kbroker.replica.fetcher import FetchedPartition
from kbroker.replica.fetcher_loop import FetcherLoop
from kbroker.replica.hosted import HostedPartition
from kbroker.replica.isr_sender import IsrSender, SendToController
from kbroker.replica.partition import Instruction, ProposeIsr, Role, StartFetching, StopFetching

if TYPE_CHECKING:
    from kbroker.replica.replica_manager import ReplicaManager

log = logging.getLogger(__name__)


class Followed(NamedTuple):
    """A replica that follows."""

    hosted: HostedPartition
    leader: int
    fetcher: int
    """Number of the connection to that leader."""
    lag: int | None
    """Messages up to the leader's high watermark, as last heard, that it lacks; None: nothing was heard."""
    is_given_up: bool
    """After an error; it follows nobody any more."""


class Replication:
    """The fetchers of this broker, and its changes of ISRs. Implements replica_manager.ReplicationPort."""

    def __init__(self, manager: ReplicaManager, alter_partition: SendToController) -> None:
        self._manager = manager
        self._fetchers: dict[tuple[int, int], FetcherLoop] = {}
        """By leader and number."""
        self._fetched: dict[HostedPartition, tuple[FetcherLoop, FetchedPartition]] = {}
        self._isr_sender = IsrSender(manager, alter_partition)

    def carry_out(self, hosted: HostedPartition, instruction: Instruction) -> None:
        """Start or stop fetching a partition, or ask the controller for an ISR."""
        if isinstance(instruction, StartFetching):
            self._start(hosted, instruction)
        elif isinstance(instruction, StopFetching):
            self._stop(hosted)
        elif isinstance(instruction, ProposeIsr):
            self._isr_sender.propose(hosted, instruction)

    def _start(self, hosted: HostedPartition, instruction: StartFetching) -> None:
        partition_log = hosted.log
        if partition_log.latest_epoch < 0 and partition_log.failure is None:
            # Without epochs the leader cannot say where the logs diverge: only what is committed counts.
            partition_log.truncate_to(partition_log.high_watermark, self._manager.clock())
        hosted.state.follower_log_changed(
            partition_log.log_end_offset, partition_log.high_watermark, partition_log.log_start_offset
        )
        fetched = FetchedPartition(
            hosted,
            instruction.leader_epoch,
            partition_log.log_end_offset,
            partition_log.latest_epoch,
            partition_log.log_start_offset,
        )
        fetcher = self._fetcher(instruction.leader, hosted)
        self._fetched[hosted] = (fetcher, fetched)
        fetcher.add(fetched)

    def _fetcher(self, leader: int, hosted: HostedPartition) -> FetcherLoop:
        number = crc32(f"{hosted}".encode()) % max(self._manager.config.num_replica_fetchers, 1)
        fetcher = self._fetchers.get((leader, number))
        if fetcher is None:
            fetcher = self._fetchers[leader, number] = FetcherLoop(self._manager, leader, number)
        return fetcher

    def _stop(self, hosted: HostedPartition) -> None:
        known = self._fetched.pop(hosted, None)
        if known is not None:
            known[0].remove(known[1])

    def followed(self) -> list[Followed]:
        """Return what is known of each replica here that follows; may be called by any thread."""
        numbers = {fetcher: number for (_, number), fetcher in list(self._fetchers.items())}
        return [
            Followed(
                hosted,
                fetcher.leader,
                numbers.get(fetcher, 0),
                None if (known := fetched.leader_high_watermark) < 0 else max(known - hosted.log.log_end_offset, 0),
                not fetcher.is_fetched(fetched),
            )
            for hosted, (fetcher, fetched) in list(self._fetched.items())
        ]

    async def release(self, partitions: Iterable[HostedPartition]) -> None:
        """Stop fetching these; returns when no worker thread changes their logs any more."""
        work: set[asyncio.Future[object]] = set()
        for hosted in partitions:
            known = self._fetched.get(hosted)
            if known is None:
                continue
            under_way = known[0].work_on(hosted)
            if under_way is not None:
                work.add(under_way)
            self._stop(hosted)
        if work:
            await asyncio.wait(work)

    async def redistribute(self) -> None:
        """`num.replica.fetchers` has changed: spread the partitions over as many connections."""
        for hosted, (fetcher, fetched) in list(self._fetched.items()):
            if self._fetcher(fetcher.leader, hosted) is fetcher:
                continue
            await self.release([hosted])
            state = hosted.state
            still_follows = state.role is Role.FOLLOWER and state.leader_epoch == fetched.leader_epoch
            if still_follows and hosted not in self._fetched:
                self._start(hosted, StartFetching(fetcher.leader, fetched.leader_epoch))

    async def close(self) -> None:
        """End all; returns when no log is changed any more."""
        await self._isr_sender.close()
        for fetcher in self._fetchers.values():
            await fetcher.close()
        self._fetchers.clear()
        self._fetched.clear()
