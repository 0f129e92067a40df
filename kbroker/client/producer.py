"""The asyncio producer: records in, acknowledgements out.

async with Producer("127.0.0.1:9092", linger_ms=5, compression="zstd") as producer:
    delivery = await producer.send("flights", value=b"…", key=b"UA")     # waits only while the buffer is full
    metadata = await delivery                                            # topic, partition, offset, timestamp
async with Producer("127.0.0.1:9092", transactional_id="etl-1") as producer:
    async with producer.transaction():                                   # commits, or aborts when something is raised
        await producer.send("out", value=b"…")
        await producer.send_offsets(consumer)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from kbroker.client.accumulator import OnDelivery
from kbroker.client.client_config import ProducerConfig
from kbroker.client.closing import Closing
from kbroker.client.cluster import Cluster
from kbroker.client.delivery import Delivery
from kbroker.client.errors import (
    BrokerError,
    BufferFull,
    ClientClosed,
    ConfigurationError,
    TimedOut,
    UnknownTopicOrPartitionError,
)
from kbroker.client.group.commits import checked_offsets
from kbroker.client.partition_names import Key
from kbroker.client.partitioners import Choosing
from kbroker.client.sender import Sender
from kbroker.client.serializers import RecordSerializer
from kbroker.client.table_delivery import TableDelivery
from kbroker.client.table_sender import PAUSE_S, TableJob
from kbroker.client.transactions import Transactions
from kbroker.client.types import GroupMetadata, OffsetAndMetadata, RecordMetadata
from kbroker.protocol.records.builder import Headers

if TYPE_CHECKING:
    import pyarrow

    from kbroker.client.consumer import Consumer

log = logging.getLogger(__name__)


class Producer:
    """Arguments are those of ProducerConfig; make it inside a running event loop."""

    def __init__(self, bootstrap: str, **arguments: Any) -> None:
        self.config = ProducerConfig.read({"bootstrap": bootstrap, **arguments})
        self.cluster = Cluster(self.config)
        self.sender = Sender(self.config, self.cluster)
        self.accumulator = self.sender.accumulator
        self.append: Callable[..., Delivery | None] = self.accumulator.append
        if callable(self.config.partitioner):
            self.append = Choosing(self.accumulator, self.config.partitioner)
        if self.config.tracing:
            from kbroker.client.tracing import Sending

            self.append = Sending(self.append, self.config.client_id)
        self.serializer: RecordSerializer | None = None
        if self.config.key_serializer is not None or self.config.value_serializer is not None:
            self.serializer = RecordSerializer(self.config.key_serializer, self.config.value_serializer)
        self._closing = Closing(self._close)

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Put a record into its partition's batch and return its future.

        Key and value are bytes (or None), unless serializers make them of something else.
        Returns at once, but for a topic that is new here or a full buffer: for these it waits up to max_block_ms.
        Raises what is wrong with the record itself: types, partition, size.
        """
        if self.serializer is not None:
            key, value = self.serializer.serialize(topic, key, value)
        is_new = False
        while True:
            self._check()
            try:
                delivery = self.append(topic, value, key, partition, timestamp_ms, headers, on_delivery)
            except UnknownTopicOrPartitionError:
                if is_new:
                    raise
                is_new = True
                await self.learn(topic)
                continue
            if delivery is not None:
                return delivery
            await self.prepare(topic)

    def _check(self) -> None:
        self.cluster.check_process()
        if self.accumulator.refuses is not None:
            raise self.accumulator.refuses()

    async def send_and_wait(self, topic: str, value: Any = None, **arguments: Any) -> RecordMetadata:
        """Send a record and wait until it is acknowledged."""
        return await (await self.send(topic, value, **arguments))

    async def send_arrow(
        self,
        topic: str,
        table: pyarrow.Table | pyarrow.RecordBatch,
        *,
        key: str | None = None,
        value: str | None = None,
        headers: str | Sequence[tuple[str, bytes | None]] | None = None,
        partition: str | int | None = None,
        timestamp: str | int | None = None,
    ) -> TableDelivery:
        """Send each row of a pyarrow table as a record, without an object per row; returns one future for all.

        `key`, `value`: names of columns of bytes or text; value="json" sends each row as a JSON object (of all columns
        but those named for headers, partition and timestamp). `headers`: a column like that of the consumer's batches,
        or the same pairs for each row. `partition`, `timestamp` (ms): a column or one for all. Rows without a partition
        (null in the column, or no column) go where send() would send them. Returns when all rows are queued; waits
        while the buffer is full.
        """
        from kbroker.client.arrow import TableRows

        # Encoding and compressing would hold up the loop: both are done in a thread.
        rows = await asyncio.to_thread(TableRows, table, key, value, headers, partition, timestamp)
        self._check()
        while not isinstance(topic, str) or not self.accumulator.keeps(topic):
            await self.prepare(topic)
        job = await asyncio.to_thread(TableJob, self.accumulator, self.config, topic, rows)
        try:
            while await asyncio.to_thread(job.step):
                if job.is_far_ahead:
                    await asyncio.sleep(PAUSE_S / 10)
                while self.accumulator.used >= self.config.buffer_memory:  # each batch that leaves wakes all who wait
                    self._check()
                    await self.prepare(topic)
        except (BufferFull, ClientClosed) as error:
            job.stop(error)
        except asyncio.CancelledError:
            # The thread may be in the middle of a step: stopping waits for that.
            asyncio.get_running_loop().run_in_executor(None, job.stop, ClientClosed("send_arrow was cancelled"))
            raise
        return job.delivery

    async def prepare(self, topic: str) -> None:
        """Wait until the topic is known and the buffer has room, up to max_block_ms."""
        if not isinstance(topic, str):
            raise TypeError(f"a topic is a text, not {topic!r}")
        if topic not in self.accumulator.topics:
            await self.learn(topic)
            return
        loop = asyncio.get_running_loop()
        room = loop.create_future()
        with self.accumulator.lock:
            if self.accumulator.used < self.config.buffer_memory:
                return
            self.accumulator.room_listeners.append(lambda: None if room.done() else room.set_result(None))
            self.accumulator.waiting_for_room += 1
        self.sender.wake()
        try:
            async with asyncio.timeout(self.config.max_block_ms / 1000):
                await room
        except TimeoutError:
            raise BufferFull(self.buffer_full_text()) from None
        finally:
            with self.accumulator.lock:
                self.accumulator.waiting_for_room -= 1

    def buffer_full_text(self) -> str:
        """Say what BufferFull says."""
        memory, waited = self.config.buffer_memory, self.config.max_block_ms
        advice = "send less at a time, or raise one of them"
        return f"buffer_memory={memory} is used up, and no room came within max_block_ms={waited}: {advice}"

    async def learn(self, topic: str) -> None:
        """Find a topic's partitions (it is created where the broker does so), or what it has got besides."""
        if topic in self.accumulator.topics:
            await self.cluster.refresh([topic])
            return
        await self.cluster.topic(topic, self.config.max_block_ms)
        self.sender.learn(topic)

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the topic's partitions."""
        return sorted((await self.cluster.topic(topic, self.config.max_block_ms)).partitions)

    async def flush(self, timeout: float | None = None) -> None:
        """Send everything now and wait until each record is acknowledged or given up."""
        self.cluster.check_process()
        try:
            async with asyncio.timeout(timeout):
                await self.sender.flush()
        except TimeoutError:
            left = self.accumulator.used
            raise TimedOut(f"{left} bytes are not acknowledged after {timeout:g} s; they may still be") from None

    # --- transactions -----------------------------------------------------------------------------------------

    @property
    def transactions(self) -> Transactions:
        """What a transactional_id brings with it."""
        if self.sender.transactions is None:
            raise ConfigurationError("this producer has no transactional_id, so it has no transactions")
        return self.sender.transactions

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Producer]:
        """Begin a transaction; commit it at the end of the block, or abort it when an exception leads out of that."""
        await self.begin()
        number = self.transactions.number
        try:
            yield self
        except BaseException as error:
            await self.transactions.leave(number, error)
            raise
        await self.transactions.leave(number, None)

    async def begin(self) -> None:
        """Begin a transaction: what is sent from now on is committed or aborted as one.

        The first one ends what another producer of the same transactional_id has left open, and shuts that one out.
        """
        self._check_alive()
        await self.transactions.begin()

    async def commit(self) -> None:
        """Wait until everything is delivered, then commit.

        Raises AbortableError when something is not delivered or the coordinator refuses: abort() then. FencedError:
        another producer has taken over. OutcomeUnknown: no answer within delivery_timeout_ms; commit() asks again.
        """
        self._check_alive()
        await self.transactions.commit()

    async def abort(self) -> None:
        """Abort: what is not sent yet is given up, and who reads what is committed reads nothing of it."""
        self._check_alive()
        await self.transactions.abort()

    async def hand_over(self) -> tuple[int, int] | None:
        """Wait until everything is delivered, and leave the transaction open for somebody else to commit or abort.

        Returns the producer id and epoch that end it, with the transactional id; None where nothing was sent in it.
        This producer must not begin another one before that is done: it would abort this one.
        """
        self._check_alive()
        return await self.transactions.hand_over()

    async def send_offsets(
        self,
        offsets: Consumer | Mapping[Key, int | OffsetAndMetadata],
        group: str | GroupMetadata | None = None,
    ) -> None:
        """Commit, as part of the transaction, a consumer's positions in its group, or given offsets of a group.

        Of a consumer: it is still the group's member, else the transaction fails. A group given by its name alone must
        have no members; `consumer.group_metadata()` says as which member to commit.
        """
        self._check_alive()
        if isinstance(offsets, Mapping):
            await self.transactions.send_offsets(checked_offsets(offsets), group_of(group))
            return
        if group is not None:
            raise TypeError("a consumer knows its group")
        try:
            progress = offsets.progress()
        except BrokerError as error:
            raise self.transactions.fail(error) from error
        await self.transactions.send_offsets(*progress)

    def _check_alive(self) -> None:
        self.cluster.check_process()
        if self.accumulator.closed is not None:
            raise self.accumulator.refusal()

    # --- the rest ---------------------------------------------------------------------------------------------

    def statistics(self) -> dict[str, float]:
        """Return what was counted since the producer was made, under the names of Java's metrics where it has one.

        Of Java's own: record-send-total, record-retry-total, record-error-total, byte-total, batch-size-avg and -max,
        batch-split-total, compression-rate-avg, records-per-request-avg, record-queue-time-avg and -max,
        request-total, response-total, request-latency-avg and -max, requests-in-flight, produce-throttle-time-avg and
        -max, buffer-total-bytes, buffer-available-bytes, waiting-threads, connection-count, metadata-age (s). Others:
        record-acknowledged-total, byte-acknowledged-total, batch-total. Times are milliseconds; requests are those of
        Produce; averages are over the whole time.
        """
        memory = self.config.buffer_memory
        return self.sender.statistics.metrics() | {
            "requests-in-flight": self.sender.requests_in_flight,
            "buffer-total-bytes": memory,
            "buffer-available-bytes": memory - self.accumulator.used,
            "waiting-threads": self.accumulator.waiting_for_room,
            "connection-count": self.cluster.connection_count,
            "metadata-age": self.cluster.metadata_age,
        }

    metrics = statistics

    async def close(self, timeout: float | None = 30.0) -> None:
        """Send what is there for at most `timeout` s, give up the rest, close all connections.

        A transaction that is open is aborted. Cancelled, it goes on behind the scenes; whoever calls it again, or
        while it is being closed, waits for the end of that.
        """
        if not self.cluster.is_forked:
            await self._closing.run(timeout)

    async def _close(self, timeout: float | None) -> None:
        if self.sender.transactions is not None:
            timeout = await self._abort_within(timeout)
        await self.sender.close(timeout)

    async def _abort_within(self, timeout: float | None) -> float | None:
        """Abort what is open; returns how much time is left."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(timeout):
                await self.transactions.close()
        except TimeoutError:
            log.warning("the producer was closed before its transaction was aborted")
        return None if timeout is None else max(0.0, timeout - (loop.time() - began))


def group_of(group: str | GroupMetadata | None) -> GroupMetadata:
    """Read who commits offsets."""
    if isinstance(group, str):
        return GroupMetadata(group)
    if not isinstance(group, GroupMetadata):
        raise TypeError(f"offsets are a group's: its name, or a consumer's group_metadata(), not {group!r}")
    return group
