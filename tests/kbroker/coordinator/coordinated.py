"""A transaction coordinator on a real replica manager and real logs: the test plays the controller and the clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kbroker.cluster.topic_names import TRANSACTIONS_TOPIC
from kbroker.coordinator.local_markers import LocalMarkers
from kbroker.coordinator.marker_sender import MarkerSender
from kbroker.coordinator.transaction import (
    Answer,
)
from kbroker.coordinator.transaction_coordinator import TransactionCoordinator
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.control import ControlType, read_marker
from tests.fixtures.data_path import TOPIC, Played

PARTITIONS = 4
TOPIC_ID = bytes(range(1, 17))
NONE = ErrorCode.NONE
TIMEOUT = 30.0


class Coordinated:
    """`transactions` is the coordinator of all partitions of __transaction_state."""

    def __init__(self, folder: Path) -> None:
        self.played = Played(folder)
        self.now = 1_000_000
        self.config = SimpleNamespace(
            transaction_state_log_num_partitions=PARTITIONS,
            transaction_state_log_load_buffer_size=5 << 20,
            transaction_max_timeout_ms=900_000,
            request_timeout_ms=30_000,
            transactional_id_expiration_ms=100_000,
            transaction_abort_timed_out_transaction_cleanup_interval_ms=10_000,
            transaction_remove_expired_transaction_cleanup_interval_ms=3_600_000,
        )
        self.producer_ids = SimpleNamespace(next_id=self._next_id)
        self.features = SimpleNamespace(transaction_version=0)
        self.given_ids = 0
        self.no_ids = False
        self.leader_epoch = -1
        self.transactions = self.make_coordinator()

    async def _next_id(self) -> int:
        await asyncio.sleep(0)
        if self.no_ids:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self.given_ids += 1
        return 100 + self.given_ids

    def make_coordinator(self) -> TransactionCoordinator:
        replicas = self.played.replicas
        markers = MarkerSender(
            1, self.played.metadata, "PLAINTEXT", LocalMarkers(replicas, lambda *values: None, 5_000), 5_000
        )
        config: Any = self.config
        producer_ids: Any = self.producer_ids
        made = TransactionCoordinator(config, replicas, producer_ids, markers, self.features, clock=lambda: self.now)
        replicas.on_leadership_change = made.leadership_changed
        return made

    async def lead(self, replicas: tuple[int, ...] = (1,), leader: int = 1, isr: tuple[int, ...] | None = None) -> None:
        """Become leader (or follower) of all partitions, and wait until they are read."""
        self.leader_epoch += 1
        await self.played.lead(
            range(PARTITIONS),
            TRANSACTIONS_TOPIC,
            TOPIC_ID,
            leader=leader,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.leader_epoch,
            replicas=replicas,
            isr=isr,
        )
        await asyncio.wait_for(self.transactions._owned.finish(), TIMEOUT)

    async def move(self) -> None:
        """Another coordinator takes over what the log holds."""
        await self.transactions.stop()
        self.transactions = self.make_coordinator()
        self.transactions.start()
        await self.lead()

    async def close(self) -> None:
        await self.transactions.stop()
        await self.played.close()

    # --- short forms ------------------------------------------------------------------------------------------

    async def init(
        self, transactional_id: str = "id", expected: tuple[int, int] | None = None, timeout_ms: int = 60_000
    ) -> Answer:
        answer = self.transactions.init_producer_id(transactional_id, timeout_ms, expected)
        return await asyncio.wait_for(answer, TIMEOUT)

    async def began(self, transactional_id: str = "id", *partitions: int) -> Answer:
        """A producer with a transaction under way."""
        producer = await self.init(transactional_id)
        assert await self.add(producer, *(partitions or (0,)), transactional_id=transactional_id) is NONE
        return producer

    async def add(self, producer: Answer, *partitions: int, transactional_id: str = "id") -> ErrorCode:
        keys = [(TOPIC, partition) for partition in partitions]
        answer = self.transactions.add_partitions(transactional_id, producer.producer_id, producer.producer_epoch, keys)
        return (await asyncio.wait_for(answer, TIMEOUT)).error

    async def end_each(self, producer: Answer, commit: bool = True) -> Answer:
        """The end of a transaction that has an epoch of its own; waits for the markers of the one before."""
        asked = "id", producer.producer_id, producer.producer_epoch, commit
        answer = await self.transactions.end_each(*asked)
        while answer.error is ErrorCode.CONCURRENT_TRANSACTIONS:
            await asyncio.sleep(0.002)
            answer = await self.transactions.end_each(*asked)
        return replace(answer, request=None)

    async def end(self, producer: Answer, commit: bool = True, transactional_id: str = "id") -> ErrorCode:
        answer = self.transactions.end(transactional_id, producer.producer_id, producer.producer_epoch, commit)
        return (await asyncio.wait_for(answer, TIMEOUT)).error

    def state(self, transactional_id: str = "id") -> Any:
        return self.transactions.describe(transactional_id).state

    async def until_state(self, state: Any, transactional_id: str = "id") -> None:
        async with asyncio.timeout(TIMEOUT):
            while self.state(transactional_id) is not state:  # noqa: ASYNC110 - nobody tells of states
                await asyncio.sleep(0.002)

    def markers(self, partition: int = 0) -> list[tuple[ControlType, int]]:
        """(what, coordinator epoch) of a data partition's markers."""
        partition_log = self.played.logs.get(TOPIC, partition)
        assert partition_log is not None
        return [read_marker(partition_log.read(offset, 1).read()) for offset in range(partition_log.log_end_offset)]


@asynccontextmanager
async def leading(folder: Path) -> AsyncIterator[Coordinated]:
    """It leads all partitions of its topic, and three of a topic that producers write to."""
    made = Coordinated(folder)
    made.transactions.start()
    await made.lead()
    await made.played.lead(range(3))
    yield made
    await made.close()
