"""Who asks for what no client of ours asks for: every broker must refuse it, or answer as it did before.

Each visit is one connection to a broker that takes itself for a leader: a batch that leaves a hole in its producer's
sequence; one that is sent a second time though it was acknowledged; one that its leader alone has to keep; a Fetch of
a leader epoch that the broker knows to be over, or that nobody has heard of; an order of a controller that is over, or
for an earlier life of the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kbroker.client.connection import Connection
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.replication import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from kbroker.protocol.messages.transactions import InitProducerIdRequest
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.verify.clients import Outcome, Outgoing, split_key
from kbroker.verify.history import FAIL, INFO, INVOKE, OK
from kbroker.verify.workers import told
from tests.simulation.clients import FAILURES, REQUEST_S, Process
from tests.simulation.promises import PromiseBroken

BETWEEN_VISITS_S = 0.4
"""On the average."""
PORT = 9092
FETCH_VERSION = 12
"""The last that names topics."""
NOBODY = -1, -1
"""Who sends without a producer id and its epoch."""
HOLE = 7
FAR = 1000
MOST_BYTES = 1 << 16
GZIP = 1
MANY_DIGITS = 4000
"""A number that begins with so many noughts is compressed to a fraction that a loop does not unpack."""


class Visitor(Process):
    """Visits leaders, one after the other."""

    leader: Callable[[str, int], tuple[str, int] | None] = staticmethod(lambda topic, partition: None)
    """The host of a broker that takes itself for the leader, and the leader epoch that it knows."""
    epochs: Callable[[str], tuple[int, int]] = staticmethod(lambda host: (-1, -1))
    """The controller's epoch and the broker's own that the broker of a host knows."""
    on_acknowledged: Callable[[str, int, int], None] = staticmethod(lambda key, offset, copies: None)
    """Told of each record that so many brokers have to keep."""

    def somewhere(self) -> str:
        """Return the partition whose leader is visited."""
        return self.rng.choice(self.trial.keys)

    def visit(self) -> Callable[[Connection, str], Awaitable[None]]:
        """Return what is done there."""
        raise NotImplementedError

    async def work(self) -> None:
        """Knock."""
        while not self.trial.stop.is_set():
            await asyncio.sleep(self.rng.expovariate(1 / BETWEEN_VISITS_S))
            key = self.somewhere()
            found = self.leader(*split_key(key))
            if found is not None:
                await self.call_on(found[0], key, self.visit())

    async def call_on(self, host: str, key: str, visit: Callable[[Connection, str], Awaitable[None]]) -> None:
        """Make one visit, if the host can be reached."""
        try:
            connection = await Connection.open(host, PORT, timeout=REQUEST_S)
            try:
                await connection.negotiate(REQUEST_S)
                await visit(connection, key)
            finally:
                connection.abort()
        except FAILURES:
            return


class Stranger(Visitor):
    """Comes with what nobody may be served with."""

    def visit(self) -> Callable[[Connection, str], Awaitable[None]]:
        """Return what is done there."""
        return self.rng.choice(
            (self._ask_with_another_epoch, self._send_with_a_hole, self.send_in_haste, self._order_from_the_past)
        )

    async def send_compressed(self, connection: Connection, key: str) -> None:
        """One batch that takes long to be checked: another may lead by then."""
        record = Outgoing(key, self.trial.values())
        self.record(INVOKE, "send", [told(record, Outcome())])
        try:
            await self._produce(connection, record, compression=GZIP)
        finally:
            self.record(INFO, "send", [told(record, Outcome())])
            self.number = self.trial.processes()

    async def _order_from_the_past(self, connection: Connection, key: str) -> None:
        controller_epoch, broker_epoch = self.epochs(connection.address.partition(":")[0])
        if self.rng.random() < 0.5:
            controller_epoch -= 1
        else:
            broker_epoch -= 1
        if min(controller_epoch, broker_epoch) < 0:
            return
        order: dict[str, Any] = {"controller_id": 1, "controller_epoch": controller_epoch, "broker_epoch": broker_epoch}
        request = self.rng.choice(
            (
                UpdateMetadataRequest(**order, live_brokers=[]),
                StopReplicaRequest(**order),
                LeaderAndIsrRequest(**order, live_leaders=[]),
            )
        )
        answer = await connection.request(request, timeout=REQUEST_S)
        if answer.error_code is ErrorCode.NONE:
            raise PromiseBroken(f"{connection.address} obeys {type(request).__name__} with {order}")

    async def _ask_with_another_epoch(self, connection: Connection, key: str) -> None:
        topic, partition = split_key(key)
        known = self.leader(topic, partition)
        if known is None or not connection.address.startswith(f"{known[0]}:"):
            return
        asked = known[1] + self.rng.choice((-1, FAR))
        if asked < 0:
            return
        answer = await fetch(connection, topic, partition, asked)
        if answer.error_code is ErrorCode.NONE and answer.responses[0].partitions[0].error_code is ErrorCode.NONE:
            raise PromiseBroken(f"{key}: {known[0]} knows leader epoch {known[1]} and serves a Fetch of epoch {asked}")

    async def _send_with_a_hole(self, connection: Connection, key: str) -> None:
        """One batch, perhaps once more, and the next but some."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        producer = await connection.request(request, timeout=REQUEST_S)
        if producer.error_code is not ErrorCode.NONE:
            return
        identity = producer.producer_id, producer.producer_epoch
        first = Outgoing(key, self.trial.values())
        offset = await self._send(connection, first, identity, 0)
        if offset is None:
            return
        if self.rng.random() < 0.5:
            again = await self._produce(connection, first, identity, 0)
            if again not in (None, -1, offset):
                raise PromiseBroken(f"{key}: offset {offset} is repeated, and stored once more at {again}")
        if await self._send(connection, Outgoing(key, self.trial.values()), identity, HOLE) is not None:
            raise PromiseBroken(f"{key}: {connection.address} takes sequence {HOLE} after 0")

    async def send_in_haste(self, connection: Connection, key: str) -> None:
        """One batch that counts when its leader has it: the next leader may never hear of it."""
        host, record = connection.address.partition(":")[0], Outgoing(key, self.trial.values())
        before = self._reign(host, key)
        self.record(INVOKE, "send", [told(record, Outcome())])
        try:
            offset = await self._produce(connection, record, acks=1)
        finally:
            self.record(INFO, "send", [told(record, Outcome())])
            self.number = self.trial.processes()
        if offset is not None and before is not None and self._reign(host, key) == before:
            self.on_acknowledged(key, offset, 1)

    def _reign(self, host: str, key: str) -> tuple[int, int] | None:
        """The leader epoch in which a host leads, and the epoch of its life; None when another is said to lead."""
        leader = self.leader(*split_key(key))
        return (leader[1], self.epochs(host)[1]) if leader is not None and leader[0] == host else None

    async def _send(self, connection: Connection, record: Outgoing, identity: tuple[int, int], at: int) -> int | None:
        """Send, as the history has it; the offset where it was acknowledged."""
        self.record(INVOKE, "send", [told(record, Outcome())])
        offset: int | None = None
        kind = INFO
        try:
            offset = await self._produce(connection, record, identity, at)
            kind = OK if offset is not None else FAIL if at else INFO
        finally:
            self.record(kind, "send", [told(record, Outcome(offset))])
            if kind == INFO:
                self.number = self.trial.processes()
        return offset

    async def _produce(
        self,
        connection: Connection,
        record: Outgoing,
        identity: tuple[int, int] = NOBODY,
        at: int = -1,
        acks: int = -1,
        compression: int = 0,
    ) -> int | None:
        """The offset that was answered; None where it was refused."""
        topic, partition = split_key(record.key)
        builder = BatchBuilder(compression=compression)
        builder.append(None, str(record.value).zfill(MANY_DIGITS if compression else 0).encode())
        data = ProduceRequest.PartitionProduceData(index=partition, records=builder.build(*identity, at))
        request = ProduceRequest(
            acks=acks,
            timeout_ms=int(REQUEST_S * 1000),
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
        )
        answer = await connection.request(request, timeout=REQUEST_S)
        (one,) = answer.responses[0].partition_responses
        return one.base_offset if one.error_code is ErrorCode.NONE else None


async def fetch(connection: Connection, topic: str, partition: int, leader_epoch: int, offset: int = 0) -> Any:
    """Ask for what is there, as one who knows of this epoch."""
    one = FetchRequest.FetchPartition(
        partition=partition, current_leader_epoch=leader_epoch, fetch_offset=offset, partition_max_bytes=MOST_BYTES
    )
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=[one])]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)
    return await connection.request(request, FETCH_VERSION, timeout=REQUEST_S)
