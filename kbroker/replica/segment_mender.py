"""Mends damaged segments from in-sync replicas: the leader's first, then the others', one segment after the other.

What they have is read as a consumer reads it, so nobody's place in the ISR is touched, and leadership stays where it
is; where there are ACLs, brokers need no more than CLUSTER_ACTION for it (Kafka's brokers ask for READ). What cannot be
mended (this is the only copy, or the others do not answer) stays as it is: the log says so, readers get what lies
before the damage and, when they ask for it, what lies behind it, and the next round tries again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.replica.fetching import MENDING
from kbroker.segment.scrubber import Damage
from kbroker.segment.segment_mending import NotMendable, SegmentMending

if TYPE_CHECKING:
    from kbroker.client.connection import Connection
    from kbroker.cluster.metadata_cache import MetadataCache
    from kbroker.cluster.setup_timeout import ConnectionSetup
    from kbroker.replica.workers import Workers
    from kbroker.segment.log_segment import LogSegment

log = logging.getLogger(__name__)

Result = TypeVar("Result")

VERSION = 12
"""Of Fetch: the last that names topics; followers serve it, too (KIP-392)."""
FETCH_BYTES = 4 << 20
MAX_WAIT_MS = 500
MOST_DAMAGES = 100
"""That wait to be mended; more are found again by the next round."""


class SegmentMender:
    """`tell` it of damage from any thread; it works on the loop that made it, and blocks in threads of `workers`."""

    def __init__(
        self,
        broker_id: int,
        metadata: MetadataCache,
        listener: str,
        timeout_ms: int,
        connections: ConnectionSetup,
        workers: Workers,
    ) -> None:
        self.mended = 0
        """How many segments."""
        self.busy_with: set[LogSegment] = set()
        """Those that are being mended, or wait for it. Any thread may look."""
        self._broker_id = broker_id
        self._metadata = metadata
        self._listener = listener
        self._timeout_s = timeout_ms / 1000
        self._connections = connections
        self._workers = workers
        self._loop = asyncio.get_running_loop()
        self._damages: asyncio.Queue[Damage] = asyncio.Queue(MOST_DAMAGES)
        self._task = self._loop.create_task(self._run(), name="segment mender")

    def tell(self, damage: Damage) -> None:
        """Have it mended soon."""
        if damage.segment not in self.busy_with:
            self.busy_with.add(damage.segment)
            self._loop.call_soon_threadsafe(self._put, damage)

    def _put(self, damage: Damage) -> None:
        if self._damages.full():
            self.busy_with.discard(damage.segment)
        else:
            self._damages.put_nowait(damage)

    async def close(self) -> None:
        """Give up what is under way."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            damage = await self._damages.get()
            try:
                await self._mend(damage)
            except Exception:
                log.exception("%s: mending it failed", damage.segment.place)
            finally:
                self.busy_with.discard(damage.segment)

    def _others(self, damage: Damage) -> tuple[int, list[int]]:
        """The leader epoch, and the brokers that have all of the partition, its leader first.

        Nobody where this broker has heard less than its log has: a broker that was deposed may not know it yet.
        """
        known = self._metadata.partition(damage.log.topic, damage.log.partition)
        if known is None or known.leader_epoch < damage.log.latest_epoch:
            return -1, []
        others = sorted(known.isr, key=lambda each: each != known.leader)
        alive = [each for each in others if each != self._broker_id and self._metadata.is_alive(each)]
        return known.leader_epoch, alive

    async def _mend(self, damage: Damage) -> None:
        place = damage.segment.place  # a segment that was replaced has another name
        epoch, others = self._others(damage)
        for other in others:
            try:
                is_mended = await self._mend_from(other, epoch, damage)
            except NotMendable as error:
                log.error("%s stays damaged: %s", place, error.message)
                return
            except (OSError, KafkaError) as error:
                log.warning("%s was not mended from broker %d: %s", place, other, error)
            else:
                if is_mended:
                    self.mended += 1
                    log.info("mended %s from broker %d", place, other)
                else:
                    log.warning("%s was not mended: its log was changed meanwhile", place)
                return
        reason = "no other replica is in sync" if not others else "no other replica could help"
        log.error("%s stays damaged: %s; it is looked at again in the next round", place, reason)

    async def _mend_from(self, other: int, epoch: int, damage: Damage) -> bool:
        """Whether it is mended; False when the log has gone its way meanwhile. Raises OSError and KafkaError."""
        address = self._metadata.endpoint(other, self._listener)
        if address is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"it has no listener {self._listener}")
        connection = await self._connections.of_peer().connect(
            address, client_id=f"broker-{self._broker_id}-mender", max_frame=FETCH_BYTES + (16 << 20)
        )
        try:
            mending = await self._off_loop(SegmentMending, damage)
            try:
                while not mending.is_whole:
                    records = await self._fetch(connection, damage, epoch, mending.next_offset)
                    if not await self._off_loop(mending.add, records):
                        raise KafkaError(
                            ErrorCode.OFFSET_NOT_AVAILABLE, f"it has nothing from {mending.next_offset} on"
                        )
                return await self._off_loop(mending.swap_in)
            except BaseException:
                await asyncio.shield(self._off_loop(mending.discard))
                raise
        finally:
            await connection.close()

    def _off_loop(self, work: Callable[..., Result], *arguments: object) -> asyncio.Future[Result]:
        return self._loop.run_in_executor(self._workers.upkeep, lambda: work(*arguments))

    async def _fetch(self, connection: Connection, damage: Damage, epoch: int, offset: int) -> memoryview:
        partition = FetchRequest.FetchPartition(
            partition=damage.log.partition,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            partition_max_bytes=FETCH_BYTES,
        )
        request = FetchRequest(
            replica_id=MENDING,
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            topics=[FetchRequest.FetchTopic(topic=damage.log.topic, partitions=[partition])],
        )
        response = await connection.request(request, VERSION, timeout=self._timeout_s)
        if response.error_code:
            raise KafkaError(response.error_code, "its answer to Fetch")
        (answer,) = response.responses[0].partitions
        if answer.error_code:
            raise KafkaError(answer.error_code, f"its answer to Fetch from offset {offset}")
        return memoryview(answer.records or b"")
