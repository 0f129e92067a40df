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
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, SupportsIndex

from kbroker.client.assignment import Assignment
from kbroker.client.client_config import ConsumerConfig
from kbroker.client.closing import Closing
from kbroker.client.cluster import Cluster
from kbroker.client.consumer_statistics import of_partitions
from kbroker.client.errors import ClientClosed, ConfigurationError, IllegalState, NotAssigned, error_for
from kbroker.client.fetcher import Fetcher
from kbroker.client.group.group_consumer import GroupConsumer, OnCommit, Progress
from kbroker.client.group.listener import RebalanceListener
from kbroker.client.metadata import TopicMetadata
from kbroker.client.offset_lookup import list_offsets
from kbroker.client.partition_names import Key, Partition, partition_of, partitions_of
from kbroker.client.partition_state import COMMITTED, RESETS, PartitionState
from kbroker.client.reader import Reader, typed_values
from kbroker.client.types import (
    EARLIEST,
    LATEST,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from kbroker.client.values import mapping, text, whole_number
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.records.record import Record

if TYPE_CHECKING:
    import pyarrow

    from kbroker.client.typed_values import Malformed, TypedValues, ValueFormat


class Consumer:
    """Arguments are those of ConsumerConfig; make it inside a running event loop."""

    def __init__(self, bootstrap: str, **arguments: Any) -> None:
        self.config = ConsumerConfig.read({"bootstrap": bootstrap, **arguments})
        self.cluster = Cluster(self.config)
        self._loop = asyncio.get_running_loop()
        self._assignment = Assignment()
        self._fetcher = Fetcher(self.config, self.cluster, self._assignment)
        self._group: GroupConsumer | None = None
        if self.config.group_id is not None:
            self._group = GroupConsumer(self.config, self.cluster, self._fetcher)
        self.reader = Reader(self.config, self._fetcher, self._group, self.cluster.pool)
        self._closing = Closing(self._close)
        self._is_closed = False
        """While it closes, the listener may still commit."""

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is not None:
            self.reader.take_back()
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
        elif self._assignment.states and not self._group.is_subscribed:
            raise IllegalState("partitions are assigned by hand: unsubscribe() first")
        else:
            await self._group.change(partial(self._group.subscribe, names, compiled, listener))

    async def _read_all(self, names: list[str], pattern: re.Pattern[str] | None) -> None:
        """Without a group nobody shares the partitions out."""
        if pattern is not None:
            known = await self._all_topics()
            names = [name for name, topic in known.items() if not topic.is_internal and pattern.match(name)]
        keys = []
        for name in names:
            topic = await self.cluster.topic(name, auto_create=False)
            keys += [TopicPartition(name, index) for index in topic.partitions]
        await self.assign(keys)
        self._fetcher.places.follow({key.topic for key in keys}, pattern)

    async def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group (after committing, if that is automatic)."""
        self._check()
        await (self._unsubscribe() if self._group is None else self._group.change(self._unsubscribe))

    async def _unsubscribe(self) -> None:
        try:
            if self._group is not None:
                await self._group.unsubscribe()
        finally:
            self._fetcher.places.follow()
            self._assignment.drop(self._assignment.states)

    def subscription(self) -> set[str]:
        """Return the topics that are subscribed to."""
        return set(self._group.topics if self._group is not None else self._fetcher.places.topics)

    async def assign(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions: those that are read already go on, others start where the group's commit, or
        auto_offset_reset, says."""
        self._check()
        if self._group is not None and self._group.is_subscribed:
            raise IllegalState("the group gives out the partitions: unsubscribe() first")
        wanted = partitions_of(partitions)
        for topic in {key.topic for key in wanted}:
            known = await self.cluster.topic(topic, auto_create=False)
            for key in wanted:
                if key.topic == topic and key.partition not in known.partitions:
                    why = f"the topic has {len(known.partitions)} partitions"
                    raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why, topic=topic, partition=key.partition)
        start = RESETS[self.config.auto_offset_reset] if self._group is None else COMMITTED
        self._fetcher.places.follow()
        self._assignment.keep_only(wanted, start)
        self._fetcher.background.wake()

    async def incremental_assign(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions too, as assign does."""
        await self.assign([*self._by_hand(), *partitions_of(partitions)])

    async def incremental_unassign(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions no more; raises NotAssigned for one that is not read."""
        gone = {self._state(key).key for key in partitions_of(partitions)}
        await self.assign([key for key in self._by_hand() if key not in gone])

    def _by_hand(self) -> list[TopicPartition]:
        if self.subscription():
            raise IllegalState("topics are subscribed to: unsubscribe() first")
        return self.assignment()

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read."""
        return list(self._assignment.states)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The partitions that are read, with the next offset to deliver (-1: not looked up yet)."""
        return self._assignment.positions()

    def seek(self, partition: Partition, offset: int | OffsetAndMetadata) -> None:
        """Go on from an offset; a committed one's leader epoch tells whether the log is still the same up to there."""
        is_number = isinstance(offset, SupportsIndex) and not isinstance(offset, bool)
        place = OffsetAndMetadata(offset.__index__()) if is_number else offset  # type: ignore[union-attr]
        if not isinstance(place, OffsetAndMetadata) or not 0 <= place.offset < 1 << 63:
            raise ValueError(f"an offset is a whole number from 0 on, of 64 bits, not {offset!r}")
        self._assignment.move(self._state(partition), place.offset, epoch=place.leader_epoch)
        self._fetcher.background.wake()

    async def seek_to_beginning(self, *partitions: Partition) -> None:
        """Go back to the first record of these partitions, or all."""
        self._move_to(EARLIEST, partitions)

    async def seek_to_end(self, *partitions: Partition) -> None:
        """Skip to the end of these partitions, or all: the end as it is now."""
        await self._fetcher.places.placed(self._move_to(LATEST, partitions))

    async def seek_to_timestamp(self, timestamp_ms: int, *partitions: Partition) -> None:
        """Go to the first record that is at least so young, else to the end."""
        self._move_to(_timestamp(timestamp_ms), partitions)

    def seek_to_committed(self, *partitions: Partition) -> None:
        """Go back to the group's commit of these partitions, or all, as if they had just been given out."""
        self._in_group()
        self._move_to(COMMITTED, partitions)

    def _move_to(self, reset_to: int, partitions: Iterable[Partition]) -> list[PartitionState]:
        self._check()
        chosen = [self._state(key) for key in partitions] or list(self._assignment.states.values())
        for state in chosen:
            self._assignment.move(state, None, reset_to)
        self._fetcher.background.wake()
        return chosen

    def pause(self, *partitions: Partition) -> None:
        """Deliver nothing of these partitions until they are resumed."""
        for key in partitions:
            self._state(key).pause(True)
        self._assignment.give_back([partition_of(key) for key in partitions])

    def resume(self, *partitions: Partition) -> None:
        """Deliver them again."""
        for key in partitions:
            self._state(key).pause(False)
        self._fetcher.background.arrived.set()
        self._fetcher.background.wake()

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        return {state.key for state in self._assignment.paused}

    def _state(self, partition: Partition) -> PartitionState:
        self._check()
        key = partition_of(partition)
        try:
            return self._assignment.states[key]
        except KeyError:
            raise NotAssigned(f"{key} is not assigned to this consumer") from None

    async def position(self, partition: Partition) -> int:
        """Return the offset of the next record to be delivered."""
        state = self._state(partition)
        await self._fetcher.places.placed([state])
        return self._assignment.position(state)

    async def list_topics(self) -> dict[str, list[int]]:
        """Return the partitions of all topics, internal ones too."""
        self._check()
        topics = await self._all_topics()
        return {name: sorted(topic.partitions) for name, topic in sorted(topics.items())}

    async def _all_topics(self) -> dict[str, TopicMetadata]:
        """Ask until some broker answers."""
        problem: OSError | None = None
        async for _ in self.cluster.attempts(self.config.request_timeout_ms):
            try:
                return await self.cluster.refresh(None)
            except OSError as error:
                self.cluster.note_failure(error)
                problem = error
        assert problem is not None
        raise problem

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the topic's partitions."""
        _topic_names([topic])
        return sorted((await self.cluster.topic(topic, auto_create=False)).partitions)

    async def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return await self._offsets(EARLIEST, partitions)

    async def end_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record of each partition."""
        return await self._offsets(LATEST, partitions)

    async def _offsets(self, wanted: int, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        keys = dict.fromkeys(partitions_of(partitions), wanted)
        found = await list_offsets(self.cluster, keys, read_committed=self.config.read_committed)
        return {key: found[key].offset for key in keys}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[Key, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at least so young in each partition; None where there is none."""
        items = mapping("partitions to timestamps", timestamps_ms).items()
        keys = {partition_of(key): _timestamp(time) for key, time in items}
        found = await list_offsets(self.cluster, keys, read_committed=self.config.read_committed)
        return {key: found[key] if found[key].offset >= 0 else None for key in keys}

    def current_lag(self, partition: Partition) -> int | None:
        """Return how many offsets are not delivered yet as the last answer said, without asking; None: none said."""
        key = self._state(partition).key
        known: dict[TopicPartition, int] = of_partitions(self._assignment)["records_lag"]
        return known.get(key)

    async def lag(self) -> dict[TopicPartition, int]:
        """Return how many offsets are not delivered yet, per partition."""
        await self._fetcher.places.placed(self._assignment.unplaced)
        here = {key: offset for key, offset in self.positions.items() if offset >= 0}
        return {key: max(0, end - here[key]) for key, end in (await self.end_offsets(here)).items()}

    # --- committed offsets ------------------------------------------------------------------------------------

    async def commit(
        self, offsets: Mapping[Key, int | OffsetAndMetadata] | None = None, timeout: float | None = None
    ) -> None:
        """Commit the positions, or the given offsets (the next to read); raises when the group has moved on.

        `timeout`: for how many s that is tried again; None: request_timeout_ms.
        """
        await self._in_group().commit(offsets, _milliseconds(timeout))

    def commit_async(
        self,
        offsets: Mapping[Key, int | OffsetAndMetadata] | None = None,
        on_commit: OnCommit | None = None,
    ) -> None:
        """Commit without waiting or trying again; on_commit(offsets, error or None) is called on the client's loop."""
        self._in_group().commit_async(offsets, on_commit)

    async def committed(
        self, partitions: Iterable[Partition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offset of each partition, None where there is none (default: those read)."""
        wanted = self._assignment.states if partitions is None else partitions_of(partitions)
        return await self._in_group().committed(wanted, _milliseconds(timeout))

    def enforce_rebalance(self, reason: str = "the application asks for it") -> None:
        """Have the group share its partitions out anew, as where this member has changed; the coordinator logs why.

        A group of the newer protocol (group_protocol="consumer") is its coordinator's to balance: raises IllegalState.
        """
        self._in_group().enforce_rebalance(text("a reason", reason))

    def group_metadata(self) -> GroupMetadata:
        """Return who this consumer is in its group: what a transaction needs to commit offsets."""
        return self._in_group().metadata()

    def progress(self) -> Progress:
        """Return the positions, and who commits them: what a producer's transaction stores."""
        return self._in_group().progress()

    def _in_group(self) -> GroupConsumer:
        self._check()
        if self._group is None:
            raise ConfigurationError("this consumer has no group_id, so it has nothing to commit")
        return self._group

    # --- records ----------------------------------------------------------------------------------------------

    async def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[Record]:
        """Return up to max_records records of one partition or several; an empty list after `timeout` s without one."""
        limit = self.config.max_poll_records if max_records is None else max_records
        if not isinstance(limit, SupportsIndex):
            raise TypeError(f"max_records is a whole number, not {limit!r}")
        if limit < 1:
            raise ValueError(f"max_records is at least 1, not {limit}")
        return await self.reader.poll(timeout, limit)

    def statistics(self) -> dict[str, Any]:
        """Return counters, rates, positions, lags and the group's state: see kbroker.client.consumer_statistics."""
        return self.reader.statistics()

    metrics = statistics

    def wakeup(self) -> None:
        """End the call that waits for records, or the next one, with WokenUp; from any thread."""
        self._loop.call_soon_threadsafe(self.reader.wakeup)

    @property
    def in_group(self) -> bool:
        """Whether it has a group_id."""
        return self._group is not None

    @property
    def in_listener(self) -> bool:
        """Whether it is its own rebalance listener that calls."""
        return self._group is not None and self._group.in_listener

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Yield records for ever."""
        while True:
            for record in await self.reader.next_run():
                yield record

    def batches(
        self,
        max_rows: int = 100_000,
        timeout: float | None = None,
        *,
        headers: bool = True,
        value_format: ValueFormat = "binary",
        value_schema: pyarrow.Schema | pyarrow.StructType | None = None,
        malformed: Malformed = "raise",
    ) -> AsyncIterator[pyarrow.RecordBatch]:
        """Yield pyarrow.RecordBatch, each of one partition; ends after `timeout` s without a record (None: never).

        `value_format="string"` makes values text, "json" structs of JSON objects' fields: those of `value_schema`, else
        those in the topic's first batch. A value that does not fit raises MalformedValue, after the records before it;
        with malformed="null" what does not fit is null.
        """
        values = typed_values(value_format, value_schema, malformed)
        return self._batches(max_rows, timeout, headers, values)

    async def _batches(
        self, max_rows: int, timeout: float | None, headers: bool, values: TypedValues | None
    ) -> AsyncIterator[pyarrow.RecordBatch]:
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
    ) -> pyarrow.RecordBatch | None:
        """Return the next pyarrow.RecordBatch of 1 to max_rows rows, None after `timeout` s without a record."""
        return await self.reader.next_batch(max_rows, timeout, headers=headers, values=values)

    def _check(self) -> None:
        self.cluster.check_process()
        if self._is_closed:
            raise ClientClosed("the consumer is closed")

    async def close(self, timeout: float | None = 10.0) -> None:
        """Commit (if that is automatic) and leave the group, for at most `timeout` s; close all connections.

        Cancelled, it goes on behind the scenes; whoever calls it again waits for the end of that. In a rebalance
        listener see RebalanceListener.
        """
        if not self.cluster.is_forked:
            await self._closing.run(timeout, waits=not self.in_listener)

    async def _close(self, timeout: float | None) -> None:
        self.reader.stop()
        try:
            if self._group is not None:
                await self._group.close(timeout)
        finally:
            self._is_closed = True
            await self._fetcher.close()
            await self.cluster.close()


def _milliseconds(timeout: float | None) -> int | None:
    return None if timeout is None else max(1, round(1000 * timeout))


def _timestamp(timestamp_ms: int) -> int:
    """Negative ones ask a broker for places of other kinds."""
    if (wanted := whole_number("a timestamp", timestamp_ms, 64)) < 0:
        raise ValueError(f"a timestamp is milliseconds since 1970, not {timestamp_ms}")
    return wanted


def _topic_names(topics: Iterable[str]) -> list[str]:
    if isinstance(topics, str):
        raise TypeError(f"a list of topics is wanted, not the text {topics!r}")
    if not isinstance(topics, Iterable):
        raise TypeError(f"a list of topics is wanted, not {topics!r}")
    names = list(topics)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a topic is a text, not {name!r}")
    return names
