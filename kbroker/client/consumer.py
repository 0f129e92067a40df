"""The asyncio consumer: partitions in, records or Arrow columns out. Groups are not there yet.

async with Consumer("127.0.0.1:9092", auto_offset_reset="earliest") as consumer:
    await consumer.subscribe(["flights"])           # all partitions; or assign([("flights", 0)])
    async for record in consumer: ...
    async for batch in consumer.batches(max_rows=100_000): ...          # pyarrow.RecordBatch
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from kbroker.client.client_config import ConsumerConfig
from kbroker.client.cluster import Cluster
from kbroker.client.errors import ClientClosed, error_for
from kbroker.client.fetcher import Chunk, Fetcher, PartitionState
from kbroker.client.offset_lookup import list_offsets
from kbroker.client.types import EARLIEST, LATEST, OffsetAndTimestamp, TopicPartition
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import HEADER_SIZE, read_header
from protocol.records.columns import ColumnDecoder
from protocol.records.record import Record, decode_batch

BATCH_BYTES = 8 << 20
"""Of a record batch, about: what stays in the processor's cache is decoded faster, and memory is used again."""
Partition = TopicPartition | tuple[str, int]


class Consumer:
    """Arguments are those of ConsumerConfig; make it inside a running event loop."""

    def __init__(self, bootstrap: str, **arguments: Any) -> None:
        self.config = ConsumerConfig.read({"bootstrap": bootstrap, **arguments})
        self.cluster = Cluster(self.config)
        self._fetcher = Fetcher(self.config, self.cluster)
        self._decoder: ColumnDecoder | None = None
        self._wrappers: dict[str, Any] = {}
        self._is_closed = False

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Read all partitions of the topics (without a group nobody shares them out), also those added later."""
        if isinstance(topics, str):
            raise TypeError(f"a list of topics is wanted, not the text {topics!r}")
        keys = []
        for name in topics:
            topic = await self.cluster.topic(name, auto_create=False)
            keys += [TopicPartition(name, index) for index in topic.partitions]
        await self.assign(keys)
        self._fetcher.topics = tuple({key.topic for key in keys})

    async def assign(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions: those that are read already go on, others start as auto_offset_reset says."""
        self._check()
        wanted = [TopicPartition(*key) for key in partitions]
        for topic in {key.topic for key in wanted}:
            known = await self.cluster.topic(topic, auto_create=False)
            for key in wanted:
                if key.topic == topic and key.partition not in known.partitions:
                    text = f"the topic has {len(known.partitions)} partitions"
                    raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text, topic=topic, partition=key.partition)
        start = EARLIEST if self.config.auto_offset_reset == "earliest" else LATEST
        states = self._fetcher.states
        self._fetcher.topics = ()
        self._fetcher.states = {key: states.get(key) or PartitionState(reset_to=start) for key in wanted}
        self._fetcher.wake()

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The partitions that are read, with the next offset to deliver (-1: not looked up yet)."""
        return {key: state.offset for key, state in self._fetcher.states.items()}

    def seek(self, partition: Partition, offset: int) -> None:
        """Go on from an offset."""
        if type(offset) is not int or offset < 0:
            raise ValueError(f"an offset is a whole number from 0 on, not {offset!r}")
        self._state(partition).move(offset)
        self._fetcher.wake()

    async def seek_to_beginning(self, *partitions: Partition) -> None:
        """Go back to the first record of these partitions, or all."""
        self._move_to(EARLIEST, partitions)

    async def seek_to_end(self, *partitions: Partition) -> None:
        """Skip to the end of these partitions, or all: the end as it is now."""
        self._move_to(LATEST, partitions)
        await self._fetcher.locate()

    async def seek_to_timestamp(self, timestamp_ms: int, *partitions: Partition) -> None:
        """Go to the first record that is at least so young, else to the end."""
        if timestamp_ms < 0:
            raise ValueError(f"a timestamp is milliseconds since 1970, not {timestamp_ms}")
        self._move_to(timestamp_ms, partitions)

    def _move_to(self, reset_to: int, partitions: Iterable[Partition]) -> None:
        for key in list(partitions) or list(self._fetcher.states):
            self._state(key).move(None, reset_to)
        self._fetcher.wake()

    def pause(self, *partitions: Partition) -> None:
        """Deliver nothing of these partitions until they are resumed."""
        for key in partitions:
            self._state(key).paused = True

    def resume(self, *partitions: Partition) -> None:
        """Deliver them again."""
        for key in partitions:
            self._state(key).paused = False
        self._fetcher.arrived.set()
        self._fetcher.wake()

    def _state(self, partition: Partition) -> PartitionState:
        self._check()
        key = TopicPartition(*partition)
        try:
            return self._fetcher.states[key]
        except KeyError:
            raise ValueError(f"{key} is not assigned to this consumer") from None

    async def position(self, partition: Partition) -> int:
        """Return the offset of the next record to be delivered."""
        state = self._state(partition)
        if state.offset < 0:
            await self._fetcher.locate()
        return state.offset

    async def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return await self._offsets(EARLIEST, partitions)

    async def end_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record of each partition."""
        return await self._offsets(LATEST, partitions)

    async def _offsets(self, wanted: int, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        keys = {TopicPartition(*key): wanted for key in partitions}
        found = await list_offsets(self.cluster, keys, read_committed=self.config.read_committed)
        return {key: found[key].offset for key in keys}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at least so young in each partition; None where there is none."""
        keys = {TopicPartition(*key): timestamp for key, timestamp in timestamps_ms.items()}
        found = await list_offsets(self.cluster, keys, read_committed=self.config.read_committed)
        return {key: found[key] if found[key].offset >= 0 else None for key in keys}

    async def lag(self) -> dict[TopicPartition, int]:
        """Return how many offsets are not delivered yet, per partition."""
        await self._fetcher.locate()
        ends = await self.end_offsets(self._fetcher.states)
        return {key: max(0, end - self._fetcher.states[key].offset) for key, end in ends.items()}

    async def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[Record]:
        """Return up to max_records records of one partition or several; an empty list after `timeout` s without one."""
        limit = self.config.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise ValueError(f"max_records is at least 1, not {limit}")
        records: list[Record] = []
        deadline = asyncio.get_running_loop().time() + timeout
        while not records:
            chunk = await self._next_chunk(deadline)
            if chunk is None:
                break
            while chunk is not None and len(records) < limit:
                try:
                    self._decode_records(chunk, records, limit)
                except KafkaError:
                    if not records:
                        raise
                    break  # what is before the bad batch is delivered first
                chunk = self._ready_chunk()
        self._fetcher.wake()
        return records

    def _decode_records(self, chunk: Chunk, records: list[Record], limit: int) -> None:
        """Decode batches until there are `limit` records; a batch's rest is decoded again in the next call."""
        state = self._fetcher.states[chunk.partition]
        topic, partition = chunk.partition
        data = chunk.records
        while len(records) < limit and len(data) - chunk.position >= HEADER_SIZE:
            offset = state.offset
            try:
                header = read_header(data, chunk.position)
                if header.size > len(data) - chunk.position:
                    break
                hidden = (
                    header.is_control if chunk.aborted is None else chunk.aborted.hides(header, data, chunk.position)
                )
                if not hidden and header.next_offset > offset:
                    found = decode_batch(
                        data, chunk.position, header.size, self.config.check_crcs, offset, topic, partition
                    )
                    room = limit - len(records)
                    if len(found) > room:
                        records += found[:room]
                        state.offset = found[room].offset
                        return
                    records += found
            except KafkaError as error:
                raise self._named(chunk, error) from error
            chunk.position += header.size
            state.offset = max(header.next_offset, offset)
        else:
            if len(records) >= limit and len(data) - chunk.position >= HEADER_SIZE:
                return
        if state.chunks and state.chunks[0] is chunk:
            state.chunks.popleft()

    def _named(self, chunk: Chunk, error: KafkaError) -> KafkaError:
        """Say where a batch is that cannot be read, and how to go on."""
        state = self._fetcher.states[chunk.partition]
        behind = ""
        try:
            header = read_header(chunk.records, chunk.position)
            behind = f"; its batch ends before offset {header.next_offset}, seek there to skip it"
        except KafkaError:
            pass
        text = f"offset {state.offset} cannot be read: {error.message}{behind}"
        topic, partition = chunk.partition
        return error_for(error.code, text, topic=topic, partition=partition)

    def _ready_chunk(self) -> Chunk | None:
        """Return what is to be delivered next, partitions in turn."""
        states = self._fetcher.states
        for key, state in states.items():
            if state.chunks and not state.paused:
                if len(states) > 1:
                    states[key] = states.pop(key)
                return state.chunks[0]
        return None

    async def _next_chunk(self, deadline: float | None) -> Chunk | None:
        """Wait for something to deliver; raises what went wrong in the background."""
        while True:
            self._check()
            if self._fetcher.problems:
                raise self._fetcher.problems.popleft()
            chunk = self._ready_chunk()
            if chunk is not None:
                return chunk
            self._fetcher.arrived.clear()
            self._fetcher.wake()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._fetcher.arrived.wait()
            except TimeoutError:
                return None

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Yield records for ever."""
        while True:
            for record in await self.poll(3600.0):
                yield record

    async def batches(
        self, max_rows: int = 100_000, timeout: float | None = None, *, headers: bool = True
    ) -> AsyncIterator[Any]:
        """Yield pyarrow.RecordBatch, each of one partition; ends after `timeout` s without a record (None: never)."""
        while True:
            batch = await self.next_batch(max_rows, timeout, headers=headers)
            if batch is None:
                return
            yield batch

    async def next_batch(self, max_rows: int = 100_000, timeout: float | None = None, *, headers: bool = True) -> Any:
        """Return the next pyarrow.RecordBatch of 1 to max_rows rows, None after `timeout` s without a record."""
        from kbroker.client.arrow import RecordBatches

        decoder = self._decoder
        if decoder is None or decoder.row_limit != max_rows or decoder.with_headers != headers:
            decoder = self._decoder = ColumnDecoder(max_rows, BATCH_BYTES, headers, self.cluster.pool)
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while True:
            chunk = await self._next_chunk(deadline)
            if chunk is None:
                return None
            self._decode_columns(decoder, chunk)
            self._fetcher.wake()
            if decoder.rows:
                topic = chunk.partition.topic
                if topic not in self._wrappers:
                    self._wrappers[topic] = RecordBatches(topic)
                return self._wrappers[topic].wrap(decoder.finish())

    def _decode_columns(self, decoder: ColumnDecoder, chunk: Chunk) -> None:
        """Decode this chunk, and what is there of its partition behind it, until a limit is met."""
        state = self._fetcher.states[chunk.partition]
        while True:
            try:
                chunk.position = decoder.append(
                    chunk.records, chunk.partition.partition, state.offset, None, chunk.position, chunk.aborted,
                    self.config.check_crcs,
                )  # fmt: skip
            except KafkaError as error:
                state.offset = max(state.offset, decoder.next_offset)
                if decoder.rows:
                    return  # what is before the bad batch is delivered first
                raise self._named(chunk, error) from error
            state.offset = max(state.offset, decoder.next_offset)
            if decoder.full:
                return
            state.chunks.popleft()
            if not state.chunks:
                return
            chunk = state.chunks[0]

    def _check(self) -> None:
        if self._is_closed:
            raise ClientClosed("the consumer is closed")

    async def close(self) -> None:
        """Stop fetching and close all connections."""
        if not self._is_closed:
            self._is_closed = True
            self._fetcher.arrived.set()
            await self._fetcher.close()
            await self.cluster.close()
