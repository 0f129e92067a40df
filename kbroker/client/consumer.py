"""The asyncio consumer: partitions in, records or Arrow columns out; alone or in a group.

async with Consumer("127.0.0.1:9092", group_id="billing", auto_offset_reset="earliest") as consumer:
    await consumer.subscribe(["flights"])           # the group shares them out; or assign([("flights", 0)])
    async for record in consumer: ...
    async for batch in consumer.batches(max_rows=100_000): ...          # pyarrow.RecordBatch

In a group everything happens inside poll (or the iterators): rebalances, listeners, automatic commits. What poll has
returned counts as done when poll is called again.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kbroker.client.chunk_decoder import decode_columns, decode_records
from kbroker.client.client_config import ConsumerConfig
from kbroker.client.cluster import Cluster
from kbroker.client.errors import ClientClosed, ConfigurationError, MalformedValue, error_for
from kbroker.client.fetcher import Fetcher
from kbroker.client.group.group_consumer import GroupConsumer, OnCommit
from kbroker.client.group.listener import RebalanceListener
from kbroker.client.offset_lookup import list_offsets
from kbroker.client.partition_state import COMMITTED, RESETS, Chunk, PartitionState
from kbroker.client.types import (
    EARLIEST,
    LATEST,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.columns import ColumnDecoder
from kbroker.protocol.records.record import Record

if TYPE_CHECKING:
    import pyarrow

    from kbroker.client.typed_values import Malformed, TypedValues, ValueFormat

BATCH_BYTES = 4 << 20
"""Of a record batch, about: what stays in the processor's cache is decoded faster, and memory is used again."""
Partition = TopicPartition | tuple[str, int]


class Consumer:
    """Arguments are those of ConsumerConfig; make it inside a running event loop."""

    def __init__(self, bootstrap: str, **arguments: Any) -> None:
        self.config = ConsumerConfig.read({"bootstrap": bootstrap, **arguments})
        self.cluster = Cluster(self.config)
        self._fetcher = Fetcher(self.config, self.cluster)
        self._group: GroupConsumer | None = None
        if self.config.group_id is not None:
            self._group = GroupConsumer(self.config, self.cluster, self._fetcher, self._delivered, self._drop)
        self._fetcher.give_back = self._forget_ahead
        self._ahead: deque[Record] = deque()
        """Decoded for the iterator and not yielded yet."""
        self._decoder: ColumnDecoder | None = None
        self._wrappers: dict[str, Any] = {}
        self._is_closing = self._is_closed = False
        """While it closes, the listener may still commit."""

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read topics, or all whose names match a pattern from their beginning, also partitions added later.

        In a group the members share them out, and the listener hears of it; without one, this consumer reads them all.
        """
        self._check()
        names = _topic_names(topics)
        if bool(names) == (pattern is not None):
            raise ValueError("either topics or a pattern is wanted; unsubscribe() ends a subscription")
        compiled = re.compile(pattern) if pattern is not None else None
        if self._group is None:
            if listener is not None:
                raise ConfigurationError("a listener hears of a group's rebalances: group_id is needed")
            await self._read_all(names, compiled)
        elif self._fetcher.states and not self._group.is_subscribed:
            raise RuntimeError("partitions are assigned by hand: unsubscribe() first")
        else:
            await self._group.subscribe(names, compiled, listener)

    async def _read_all(self, names: list[str], pattern: re.Pattern[str] | None) -> None:
        """Without a group nobody shares the partitions out."""
        if pattern is not None:
            known = await self.cluster.refresh(None)
            names = [name for name, topic in known.items() if not topic.is_internal and pattern.match(name)]
        keys = []
        for name in names:
            topic = await self.cluster.topic(name, auto_create=False)
            keys += [TopicPartition(name, index) for index in topic.partitions]
        await self.assign(keys)
        self._fetcher.topics, self._fetcher.pattern = tuple({key.topic for key in keys}), pattern

    async def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group (after committing, if that is automatic)."""
        self._check()
        if self._group is not None:
            await self._group.unsubscribe()
        self._fetcher.topics, self._fetcher.pattern = (), None
        self._fetcher.states.clear()
        self._ahead.clear()

    def subscription(self) -> set[str]:
        """Return the topics that are subscribed to."""
        return set(self._group.topics if self._group is not None else self._fetcher.topics)

    async def assign(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions: those that are read already go on, others start where the group's commit, or
        auto_offset_reset, says."""
        self._check()
        if self._group is not None and self._group.is_subscribed:
            raise RuntimeError("the group gives out the partitions: unsubscribe() first")
        wanted = [TopicPartition(*key) for key in partitions]
        for topic in {key.topic for key in wanted}:
            known = await self.cluster.topic(topic, auto_create=False)
            for key in wanted:
                if key.topic == topic and key.partition not in known.partitions:
                    text = f"the topic has {len(known.partitions)} partitions"
                    raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text, topic=topic, partition=key.partition)
        start = RESETS[self.config.auto_offset_reset] if self._group is None else COMMITTED
        states = self._fetcher.states
        self._drop(states.keys() - wanted)
        self._fetcher.topics, self._fetcher.pattern = (), None
        self._fetcher.states = {key: states.get(key) or PartitionState(reset_to=start) for key in wanted}
        self._fetcher.wake()

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read."""
        return list(self._fetcher.states)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The partitions that are read, with the next offset to deliver (-1: not looked up yet)."""
        return self._delivered()

    def _delivered(self) -> dict[TopicPartition, int]:
        found = {key: state.offset for key, state in self._fetcher.states.items()}
        for record in reversed(self._ahead):
            found[TopicPartition(record.topic, record.partition)] = record.offset
        return found

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what is decoded of some partitions; they begin again elsewhere, or with somebody else."""
        gone = set(partitions)
        if self._ahead and gone:
            kept = [record for record in self._ahead if (record.topic, record.partition) not in gone]
            self._ahead.clear()
            self._ahead.extend(kept)

    def _forget_ahead(self, key: TopicPartition) -> int:
        """Forget what is decoded of a partition; returns the next offset to deliver."""
        offset = self._delivered()[key]
        self._drop([key])
        return offset

    def _give_back(self, partitions: Iterable[TopicPartition]) -> None:
        """Have what is decoded and not delivered fetched again."""
        if self._ahead:
            chosen = set(partitions)
            for key, offset in self._delivered().items():
                state = self._fetcher.states.get(key)
                if key in chosen and state is not None and offset != state.offset:
                    state.move(offset, epoch=state.epoch_before(offset))
            self._drop(chosen)

    def seek(self, partition: Partition, offset: int | OffsetAndMetadata) -> None:
        """Go on from an offset; a committed one's leader epoch tells whether the log is still the same up to there."""
        place = OffsetAndMetadata(offset) if type(offset) is int else offset
        if not isinstance(place, OffsetAndMetadata) or place.offset < 0:
            raise ValueError(f"an offset is a whole number from 0 on, not {offset!r}")
        self._state(partition).move(place.offset, epoch=place.leader_epoch)
        self._drop([TopicPartition(*partition)])
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
        chosen = [TopicPartition(*key) for key in partitions] or list(self._fetcher.states)
        for key in chosen:
            self._state(key).move(None, reset_to)
        self._drop(chosen)
        self._fetcher.wake()

    def pause(self, *partitions: Partition) -> None:
        """Deliver nothing of these partitions until they are resumed."""
        for key in partitions:
            self._state(key).paused = True
        self._give_back([TopicPartition(*key) for key in partitions])

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
        return self._delivered()[TopicPartition(*partition)]

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the topic's partitions."""
        return sorted((await self.cluster.topic(topic, auto_create=False)).partitions)

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
        here = {key: offset for key, offset in self._delivered().items() if offset >= 0}
        return {key: max(0, end - here[key]) for key, end in (await self.end_offsets(here)).items()}

    # --- committed offsets ------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[Partition, int | OffsetAndMetadata] | None = None) -> None:
        """Commit the positions, or the given offsets (the next to read); raises when the group has moved on."""
        await self._in_group().commit(offsets)

    def commit_async(
        self,
        offsets: Mapping[Partition, int | OffsetAndMetadata] | None = None,
        on_commit: OnCommit | None = None,
    ) -> None:
        """Commit without waiting or trying again; on_commit(offsets, error or None) is called on the client's loop."""
        self._in_group().commit_async(offsets, on_commit)

    async def committed(
        self, partitions: Iterable[Partition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offset of each partition, None where there is none (default: those read)."""
        wanted = self._fetcher.states if partitions is None else [TopicPartition(*key) for key in partitions]
        return await self._in_group().committed(wanted)

    def group_metadata(self) -> GroupMetadata:
        """Return who this consumer is in its group: what a transaction needs to commit offsets."""
        return self._in_group().metadata()

    def _in_group(self) -> GroupConsumer:
        self._check()
        if self._group is None:
            raise ConfigurationError("this consumer has no group_id, so it has nothing to commit")
        return self._group

    # --- records ----------------------------------------------------------------------------------------------

    async def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[Record]:
        """Return up to max_records records of one partition or several; an empty list after `timeout` s without one."""
        self.cluster.check_process()
        limit = self.config.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise ValueError(f"max_records is at least 1, not {limit}")
        deadline = asyncio.get_running_loop().time() + timeout
        with self._polling():
            records = await self._poll(deadline, limit)
        self._fetcher.wake()
        return records

    async def _poll(self, deadline: float, limit: int) -> list[Record]:
        records: list[Record] = []
        while not records:
            chunk = await self._next_chunk(deadline)
            while self._ahead and len(records) < limit:
                records.append(self._ahead.popleft())
            if records or chunk is None:
                break
            while chunk is not None and len(records) < limit:
                try:
                    state = self._fetcher.states[chunk.partition]
                    decode_records(state, chunk, records, limit, self.config.check_crcs)
                except KafkaError:
                    if not records:
                        raise
                    break  # what is before the bad batch is delivered first
                chunk = self._ready_chunk()
        return records

    def _ready_chunk(self, *, raises: bool = False) -> Chunk | None:
        """Return what is to be delivered next, partitions in turn; `raises`: or say why one cannot be read on."""
        states = self._fetcher.states
        for key, state in states.items():
            if state.paused or not (state.chunks or (raises and state.problem is not None)):
                continue
            if len(states) > 1:
                states[key] = states.pop(key)
            if state.chunks:
                return state.chunks[0]
            problem, state.problem = state.problem, None
            assert problem is not None
            raise problem
        return None

    async def _next_chunk(self, deadline: float | None) -> Chunk | None:
        """Wait for something to deliver; raises what went wrong in the background. None too for what is `_ahead`."""
        while True:
            if self._is_closing:
                raise ClientClosed("the consumer is closed")
            may_read = self._group is None or await self._group.attend(deadline)
            if self._fetcher.problems:
                raise self._fetcher.problems.popleft()
            self._fetcher.refuse_nowhere()
            if may_read:
                chunk = self._ready_chunk(raises=not self._ahead)
                if chunk is not None or self._ahead:
                    return chunk
            self._fetcher.arrived.clear()
            self._fetcher.wake()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._fetcher.arrived.wait()
            except TimeoutError:
                return None

    async def fill_ahead(self) -> deque[Record]:
        """Wait for records and return them in a queue: whoever takes one off has been given it."""
        records = await self.poll(3600.0)
        self._ahead.extendleft(reversed(records))
        return self._ahead

    @property
    def in_group(self) -> bool:
        """Whether it has a group_id."""
        return self._group is not None

    def wants_poll(self) -> bool:
        """Whether the group has something to do that happens inside poll."""
        return self._group is not None and self._group.wants_poll

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Yield records for ever."""
        while True:
            ahead = await self.fill_ahead()
            while ahead and not self.wants_poll():
                yield ahead.popleft()

    def batches(
        self,
        max_rows: int = 100_000,
        timeout: float | None = None,
        *,
        headers: bool = True,
        value_format: ValueFormat = "binary",
        value_schema: pyarrow.Schema | pyarrow.StructType | None = None,
        malformed: Malformed = "raise",
    ) -> AsyncIterator[Any]:
        """Yield pyarrow.RecordBatch, each of one partition; ends after `timeout` s without a record (None: never).

        `value_format="string"` makes values text, "json" structs of JSON objects' fields: those of `value_schema`, else
        those in the topic's first batch. A value that does not fit raises MalformedValue, after the records before it;
        with malformed="null" what does not fit is null.
        """
        from kbroker.client.arrow import typed_values

        values = typed_values(value_format, value_schema, malformed)
        return self._batches(max_rows, timeout, headers, values)

    async def _batches(
        self, max_rows: int, timeout: float | None, headers: bool, values: TypedValues | None
    ) -> AsyncIterator[Any]:
        while True:
            batch = await self.next_batch(max_rows, timeout, headers=headers, values=values)
            if batch is None:
                return
            yield batch

    async def next_batch(
        self,
        max_rows: int = 100_000,
        timeout: float | None = None,
        *,
        headers: bool = True,
        values: TypedValues | None = None,
    ) -> Any:
        """Return the next pyarrow.RecordBatch of 1 to max_rows rows, None after `timeout` s without a record."""
        from kbroker.client.arrow import RecordBatches

        self.cluster.check_process()
        decoder = self._decoder
        if decoder is None or decoder.row_limit != max_rows or decoder.with_headers != headers:
            decoder = self._decoder = ColumnDecoder(max_rows, BATCH_BYTES, headers, self.cluster.pool)
        self._give_back(self._fetcher.states)
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        with self._polling():
            while True:
                chunk = await self._next_chunk(deadline)
                if chunk is None:
                    return None
                topic = chunk.partition.topic
                state = self._fetcher.states[chunk.partition]
                decode_columns(state, chunk, decoder, self.config.check_crcs)
                self._fetcher.wake()
                if decoder.rows:
                    if topic not in self._wrappers:
                        self._wrappers[topic] = RecordBatches(topic)
                    batch = self._wrappers[topic].wrap(decoder.finish())
                    return batch if values is None else _typed(batch, chunk.partition, state, values)

    @contextlib.contextmanager
    def _polling(self) -> Iterator[None]:
        """Tell the group that the application is here."""
        if self._group is not None:
            self._group.polling(True)
        try:
            yield
        finally:
            if self._group is not None:
                self._group.polling(False)

    def _check(self) -> None:
        self.cluster.check_process()
        if self._is_closed:
            raise ClientClosed("the consumer is closed")

    async def close(self, timeout: float | None = 10.0) -> None:
        """Commit (if that is automatic) and leave the group, for at most `timeout` s; close all connections."""
        if self._is_closing or self.cluster.is_forked:
            return
        self._is_closing = True
        self._fetcher.arrived.set()
        try:
            if self._group is not None:
                await self._group.close(timeout)
        finally:
            self._is_closed = True
            await self._fetcher.close()
            await self.cluster.close()


def _typed(batch: Any, partition: TopicPartition, state: PartitionState, values: TypedValues) -> Any:
    """Parse a batch's values; what comes before a malformed one is delivered first, and reading goes on at it."""
    first = batch["offset"][0].as_py()
    try:
        typed, malformed = values.parse(batch, partition.topic)
    except ValueError as error:
        state.move(first, epoch=state.epoch_before(first))
        raise ValueError(f"{partition} from offset {first}: {error}") from None
    if not malformed or not values.raises:
        return typed
    row = min(malformed)
    offset = batch["offset"][row].as_py()
    state.move(offset, epoch=state.epoch_before(offset))
    if row == 0:
        raise MalformedValue(partition.topic, partition.partition, offset, f"the value is {malformed[0]}")
    return typed.slice(0, row)


def _topic_names(topics: Iterable[str]) -> list[str]:
    if isinstance(topics, str):
        raise TypeError(f"a list of topics is wanted, not the text {topics!r}")
    names = list(topics)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a topic is a text, not {name!r}")
    return names
