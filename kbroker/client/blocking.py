"""Producer, Consumer and Admin for code without an event loop: the asyncio ones, run in a background thread."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from kbroker.client import admin as asyncio_admin
from kbroker.client import consumer as asyncio_consumer
from kbroker.client import producer as asyncio_producer
from kbroker.client.accumulator import OnDelivery
from kbroker.client.blocking_client import Client, call
from kbroker.client.client_config import ConsumerConfig
from kbroker.client.delivery import Delivery
from kbroker.client.errors import BrokerError, BufferFull, ClientClosed, UnknownTopicOrPartitionError
from kbroker.client.group.group_consumer import OnCommit, Progress
from kbroker.client.group.listener import RebalanceListener, tell_in_thread
from kbroker.client.handover import Handover
from kbroker.client.partition_names import Key, Partition
from kbroker.client.reader import typed_values
from kbroker.client.table_delivery import TableDelivery
from kbroker.client.table_sender import AHEAD_BYTES, PAUSE_S, TableJob
from kbroker.client.types import GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp, RecordMetadata, TopicPartition
from kbroker.protocol.records.builder import Headers
from kbroker.protocol.records.record import Record

if TYPE_CHECKING:
    import pyarrow

    from kbroker.client.typed_values import Malformed, TypedValues, ValueFormat

P = ParamSpec("P")
T = TypeVar("T")


class Producer(Client):
    """`with Producer("127.0.0.1:9092", acks="all") as producer`; arguments are those of ProducerConfig."""

    def __init__(self, bootstrap: str, **arguments: Any) -> None:
        super().__init__(lambda: asyncio_producer.Producer(bootstrap, **arguments))
        self._accumulator = self._client.accumulator
        self._append: Callable[..., Delivery | None] = self._client.append
        self._serializer = self._client.serializer

    def __enter__(self) -> Producer:
        return self

    def send(
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
        """Put a record into its partition's batch and return its future, at once unless the buffer is full.

        Key and value are bytes (or None), unless serializers make them of something else.
        """
        if self._serializer is not None:
            key, value = self._serializer.serialize(topic, key, value)
        if not self._closed and os.getpid() == self._process:
            try:
                delivery = self._append(topic, value, key, partition, timestamp_ms, headers, on_delivery)
            except UnknownTopicOrPartitionError:
                self.run(self._client.learn(topic))
                delivery = None
            if delivery is not None:
                return delivery
        return self._send_slowly(topic, value, key, partition, timestamp_ms, headers, on_delivery)

    def send_and_wait(self, topic: str, value: Any = None, **arguments: Any) -> RecordMetadata:
        """Send a record and wait until it is acknowledged."""
        return self.send(topic, value, **arguments).result()

    def _send_slowly(self, topic: str, *record: Any) -> Delivery:
        """Learn about the topic, or wait for room."""
        deadline = time.monotonic() + self._client.config.max_block_ms / 1000
        while True:
            self._check()
            if not isinstance(topic, str):
                raise TypeError(f"a topic is a text, not {topic!r}")
            if topic not in self._accumulator.topics:
                self.run(self._client.learn(topic))
            delivery = self._append(topic, *record)
            if delivery is not None:
                return delivery
            self._wait_for_room(deadline)

    def send_arrow(
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
        """Send each row of a pyarrow table as a record; see kbroker.client.producer.Producer.send_arrow."""
        from kbroker.client.arrow import TableRows

        rows = TableRows(table, key, value, headers, partition, timestamp)
        self._check()
        if self._accumulator.refuses is not None:
            raise self._accumulator.refuses()
        if not isinstance(topic, str):
            raise TypeError(f"a topic is a text, not {topic!r}")
        if not self._accumulator.keeps(topic):
            self.run(self._client.learn(topic))
        config = self._client.config
        job = TableJob(self._accumulator, config, topic, rows)
        try:
            while job.step():
                if self._accumulator.used >= config.buffer_memory:
                    self._wait_for_room(time.monotonic() + config.max_block_ms / 1000)
                elif job.is_far_ahead:
                    self._accumulator.wait_below(AHEAD_BYTES // 2, PAUSE_S)
        except (BufferFull, ClientClosed) as error:
            job.stop(error)
        except BaseException:
            job.stop(ClientClosed("send_arrow was interrupted"))
            raise
        return job.delivery

    def _wait_for_room(self, deadline: float) -> None:
        accumulator = self._accumulator
        with accumulator.room:
            accumulator.waiting_for_room += 1
            try:
                self._client.sender.wake()
                while accumulator.used >= self._client.config.buffer_memory:
                    if accumulator.closed is not None:
                        raise accumulator.refusal()
                    if not accumulator.room.wait(deadline - time.monotonic()):
                        raise BufferFull(self._client.buffer_full_text())
            finally:
                accumulator.waiting_for_room -= 1

    @contextmanager
    def transaction(self) -> Iterator[Producer]:
        """Begin a transaction; commit it at the end of the block, or abort it when an exception leads out of that."""
        self.begin()
        transactions = self._client.transactions
        number = transactions.number
        try:
            yield self
        except BaseException as error:
            self.run(transactions.leave(number, error))
            raise
        self.run(transactions.leave(number, None))

    def begin(self) -> None:
        """Begin a transaction; see kbroker.client.producer.Producer.begin."""
        self.run(self._client.begin())

    def commit(self) -> None:
        """Wait until everything is delivered, then commit; see kbroker.client.producer.Producer.commit."""
        self.run(self._client.commit())

    def abort(self) -> None:
        """Abort: what is not sent yet is given up, and who reads what is committed reads nothing of it."""
        self.run(self._client.abort())

    def hand_over(self) -> tuple[int, int] | None:
        """Deliver everything and leave the end to somebody else; see kbroker.client.producer.Producer.hand_over."""
        handed: tuple[int, int] | None = self.run(self._client.hand_over())
        return handed

    def send_offsets(
        self,
        offsets: Consumer | Mapping[Key, int | OffsetAndMetadata],
        group: str | GroupMetadata | None = None,
    ) -> None:
        """Commit offsets as part of the transaction; see kbroker.client.producer.Producer.send_offsets."""
        if isinstance(offsets, Consumer) and group is None:
            try:
                progress = offsets.progress()
            except BrokerError as error:
                raise self.run(call(functools.partial(self._client.transactions.fail, error))) from error
            self.run(self._client.transactions.send_offsets(*progress))
        else:
            self.run(self._client.send_offsets(offsets, group))

    def partitions_for(self, topic: str) -> list[int]:
        """Return the topic's partitions."""
        return self.run(self._client.partitions_for(topic))

    def flush(self, timeout: float | None = None) -> None:
        """Send everything now and wait until each record is acknowledged or given up."""
        self.run(self._client.flush(timeout))

    def statistics(self) -> dict[str, float]:
        """Return what was counted, by Java's names; see kbroker.client.producer.Producer.statistics."""
        result: dict[str, float] = self._client.statistics()
        return result

    metrics = statistics

    async def _close(self, timeout: float | None) -> None:
        await self._client.close(timeout)


class Consumer(Client):
    """`with Consumer("127.0.0.1:9092") as consumer`; arguments are those of ConsumerConfig."""

    def __init__(self, bootstrap: str, **arguments: Any) -> None:
        self._interrupted: dict[Handover[Any], None] = {}
        """Calls whose records did not get here: given up before anything else happens."""
        self._end_asked: Callable[[], None] | None = None
        """By a listener: whoever waits for the client, in whose thread it runs, closes it when that is over."""
        super().__init__(lambda: asyncio_consumer.Consumer(bootstrap, **arguments))

    def __enter__(self) -> Consumer:
        return self

    @property
    def config(self) -> ConsumerConfig:
        """Its arguments."""
        result: ConsumerConfig = self._client.config
        return result

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        """Close it; what the last call gave is not done when an exception leads out."""
        try:
            if kind is not None:
                self._tell(self._client.reader.take_back)
        finally:
            self.close()

    def close(self, timeout: float | None = 30.0) -> None:
        """Commit (if that is automatic), leave the group, close the client and end its thread; safe to call again.

        In a rebalance listener see RebalanceListener.
        """
        if self._closed or not self._client.in_listener:
            super().close(timeout)
        else:
            self.run(self._client.close(timeout))  # begins it
            self._end_asked = functools.partial(super().close, timeout)

    async def _close_left(self, timeout: float | None) -> None:
        self._client.reader.take_back()
        await self._close(timeout)

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read topics, or all whose names match a pattern from their beginning, also partitions added later.

        In a group the members share them out; the listener hears of it in the thread that polls, inside poll.
        """
        heard = None if listener is None else tell_in_thread(listener, self._callers.call)
        self.run(self._client.subscribe(topics, pattern=pattern, listener=heard))

    def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group (after committing, if that is automatic)."""
        self.run(self._client.unsubscribe())

    def subscription(self) -> set[str]:
        """Return the topics that are subscribed to."""
        self._check()
        result: set[str] = self._client.subscription()
        return result

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions, from the group's commit or as auto_offset_reset says."""
        self.run(self._client.assign(partitions))

    def incremental_assign(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions too, as assign does."""
        self.run(self._client.incremental_assign(partitions))

    def incremental_unassign(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions no more; raises NotAssigned for one that is not read."""
        self.run(self._client.incremental_unassign(partitions))

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read."""
        self._check()
        result: list[TopicPartition] = self._client.assignment()
        return result

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The partitions that are read, with the next offset to deliver (-1: not looked up yet)."""
        self._check()
        result: dict[TopicPartition, int] = self._client.positions
        return result

    def commit(
        self, offsets: Mapping[Key, int | OffsetAndMetadata] | None = None, timeout: float | None = None
    ) -> None:
        """Commit the positions, or the given offsets (the next to read); raises when the group has moved on.

        `timeout`: for how many s that is tried again; None: request_timeout_ms.
        """
        self.run(self._client.commit(offsets, timeout))

    def commit_async(
        self,
        offsets: Mapping[Key, int | OffsetAndMetadata] | None = None,
        on_commit: OnCommit | None = None,
    ) -> None:
        """Commit without waiting or trying again; on_commit(offsets, error or None) comes on the client's thread."""
        self.run(call(lambda: self._client.commit_async(offsets, on_commit)))

    def committed(
        self, partitions: Iterable[Partition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offset of each partition, None where there is none (default: those read)."""
        return self.run(self._client.committed(partitions, timeout))

    def enforce_rebalance(self, reason: str = "the application asks for it") -> None:
        """Have the group share its partitions out anew, as where this member has changed; the coordinator logs why.

        A group of the newer protocol (group_protocol="consumer") is its coordinator's to balance: raises IllegalState.
        """
        self.run(call(lambda: self._client.enforce_rebalance(reason)))

    def group_metadata(self) -> GroupMetadata:
        """Return who this consumer is in its group: what a transaction needs to commit offsets."""
        result: GroupMetadata = self.run(call(self._client.group_metadata))
        return result

    def progress(self) -> Progress:
        """Return the positions, and who commits them: what a producer's transaction stores."""
        result: Progress = self.run(call(self._client.progress))
        return result

    def seek(self, partition: Partition, offset: int | OffsetAndMetadata) -> None:
        """Go on from an offset; a committed one's leader epoch tells whether the log is still the same up to there."""
        self.run(call(lambda: self._client.seek(partition, offset)))

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Go back to the first record of these partitions, or all."""
        self.run(self._client.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: Partition) -> None:
        """Skip to the end of these partitions, or all."""
        self.run(self._client.seek_to_end(*partitions))

    def seek_to_committed(self, *partitions: Partition) -> None:
        """Go back to the group's commit of these partitions, or all, as if they had just been given out."""
        self.run(call(lambda: self._client.seek_to_committed(*partitions)))

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: Partition) -> None:
        """Go to the first record that is at least so young, else to the end."""
        self.run(self._client.seek_to_timestamp(timestamp_ms, *partitions))

    def pause(self, *partitions: Partition) -> None:
        """Deliver nothing of these partitions until they are resumed."""
        self.run(call(lambda: self._client.pause(*partitions)))

    def resume(self, *partitions: Partition) -> None:
        """Deliver them again."""
        self.run(call(lambda: self._client.resume(*partitions)))

    def position(self, partition: Partition) -> int:
        """Return the offset of the next record to be delivered."""
        result: int = self.run(self._client.position(partition))
        return result

    def partitions_for(self, topic: str) -> list[int]:
        """Return the topic's partitions."""
        return self.run(self._client.partitions_for(topic))

    @property
    def in_group(self) -> bool:
        """Whether it has a group_id."""
        result: bool = self._client.in_group
        return result

    def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return self.run(self._client.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record of each partition."""
        return self.run(self._client.end_offsets(partitions))

    def offsets_for_times(self, timestamps_ms: Mapping[Key, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at least so young in each partition."""
        return self.run(self._client.offsets_for_times(timestamps_ms))

    def list_topics(self) -> dict[str, list[int]]:
        """Return the partitions of all topics, internal ones too."""
        return self.run(self._client.list_topics())

    def current_lag(self, partition: Partition) -> int | None:
        """Return how many offsets are not delivered yet as the last answer said, without asking; None: none said."""
        result: int | None = self.run(call(lambda: self._client.current_lag(partition)))
        return result

    def lag(self) -> dict[TopicPartition, int]:
        """Return how many offsets are not delivered yet, per partition."""
        return self.run(self._client.lag())

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[Record]:
        """Return up to max_records (default max_poll_records) records; an empty list after `timeout` s without one."""
        return self._handed_over(lambda: self._client.poll(timeout, max_records))

    def _handed_over(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a call that gives records; what is interrupted before they are here is delivered again."""
        handover = Handover(self._client.reader, call)
        try:
            return self.run(handover.run())
        except ClientClosed:
            raise
        except BaseException:
            self._interrupted[handover] = None  # first: the next interrupt may come as soon as this is done
            self._tell(handover.give_up)
            raise

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait, once what interrupts have left is given up."""
        try:
            return super().run(self._run_after_interrupted(coroutine) if self._interrupted else coroutine)
        finally:
            if (end := self._end_asked) is not None and not self._client.in_listener:
                self._end_asked = None
                end()

    async def _run_after_interrupted(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            for handover in list(self._interrupted):
                await handover.end()
                self._interrupted.pop(handover, None)
        except BaseException:
            coroutine.close()
            raise
        return await coroutine

    def wakeup(self) -> None:
        """End the call that waits for records, or the next one, with WokenUp; from any thread or signal handler."""
        self._check_open()
        self._client.wakeup()

    def statistics(self) -> dict[str, Any]:
        """Return counters, rates, positions, lags and the group's state: see kbroker.client.consumer_statistics."""
        result: dict[str, Any] = self.run(call(self._client.statistics))
        return result

    metrics = statistics

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        self._check()
        result: set[TopicPartition] = self._client.paused()
        return result

    def __iter__(self) -> Iterator[Record]:
        """Yield records for ever."""
        reader = self._client.reader
        while True:
            yield from self._handed_over(reader.next_run)

    def batches(
        self,
        max_rows: int = 100_000,
        timeout: float | None = None,
        *,
        headers: bool = True,
        value_format: ValueFormat = "binary",
        value_schema: pyarrow.Schema | pyarrow.StructType | None = None,
        malformed: Malformed = "raise",
    ) -> Iterator[pyarrow.RecordBatch]:
        """Yield pyarrow.RecordBatch of one partition each; see kbroker.client.consumer.Consumer.batches."""
        self._check()
        return self._batches(max_rows, timeout, headers, typed_values(value_format, value_schema, malformed))

    def _batches(
        self, max_rows: int, timeout: float | None, headers: bool, values: TypedValues | None
    ) -> Iterator[pyarrow.RecordBatch]:
        while True:
            batch = self._handed_over(
                lambda: self._client.next_batch(max_rows, timeout, headers=headers, values=values)
            )
            if batch is None:
                return
            yield batch

    async def _close(self, timeout: float | None) -> None:
        await self._client.close(timeout)


def _blocking(
    method: Callable[Concatenate[asyncio_admin.Admin, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Admin, P], T]:
    """Make the method that waits for an asyncio one: same arguments, same result, same text."""

    @functools.wraps(method)
    def call(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(method(self._client, *args, **kwargs))

    return call


class Admin(Client):
    """`with Admin("127.0.0.1:9092") as admin`; arguments are those of AdminConfig."""

    def __init__(self, bootstrap: str, **arguments: Any) -> None:
        super().__init__(lambda: asyncio_admin.Admin(bootstrap, **arguments))

    def __enter__(self) -> Admin:
        return self

    create_topics = _blocking(asyncio_admin.Admin.create_topics)
    create_topic = _blocking(asyncio_admin.Admin.create_topic)
    delete_topics = _blocking(asyncio_admin.Admin.delete_topics)
    delete_topic = _blocking(asyncio_admin.Admin.delete_topic)
    list_topics = _blocking(asyncio_admin.Admin.list_topics)
    describe_topics = _blocking(asyncio_admin.Admin.describe_topics)
    create_partitions = _blocking(asyncio_admin.Admin.create_partitions)
    delete_records = _blocking(asyncio_admin.Admin.delete_records)
    describe_configs = _blocking(asyncio_admin.Admin.describe_configs)
    alter_configs = _blocking(asyncio_admin.Admin.alter_configs)
    describe_cluster = _blocking(asyncio_admin.Admin.describe_cluster)
    describe_log_dirs = _blocking(asyncio_admin.Admin.describe_log_dirs)
    scrub = _blocking(asyncio_admin.Admin.scrub)
    alter_replica_log_dirs = _blocking(asyncio_admin.Admin.alter_replica_log_dirs)
    list_offsets = _blocking(asyncio_admin.Admin.list_offsets)
    elect_leaders = _blocking(asyncio_admin.Admin.elect_leaders)
    alter_reassignments = _blocking(asyncio_admin.Admin.alter_reassignments)
    list_reassignments = _blocking(asyncio_admin.Admin.list_reassignments)
    describe_features = _blocking(asyncio_admin.Admin.describe_features)
    update_feature = _blocking(asyncio_admin.Admin.update_feature)
    list_groups = _blocking(asyncio_admin.Admin.list_groups)
    describe_groups = _blocking(asyncio_admin.Admin.describe_groups)
    describe_software = _blocking(asyncio_admin.Admin.describe_software)
    answer_seconds = _blocking(asyncio_admin.Admin.answer_seconds)
    group_history = _blocking(asyncio_admin.Admin.group_history)
    remove_group_members = _blocking(asyncio_admin.Admin.remove_group_members)
    delete_groups = _blocking(asyncio_admin.Admin.delete_groups)
    list_group_offsets = _blocking(asyncio_admin.Admin.list_group_offsets)
    alter_group_offsets = _blocking(asyncio_admin.Admin.alter_group_offsets)
    reset_group_offsets = _blocking(asyncio_admin.Admin.reset_group_offsets)
    delete_group_offsets = _blocking(asyncio_admin.Admin.delete_group_offsets)
    list_transactions = _blocking(asyncio_admin.Admin.list_transactions)
    describe_transactions = _blocking(asyncio_admin.Admin.describe_transactions)
    describe_producers = _blocking(asyncio_admin.Admin.describe_producers)
    find_hanging_transactions = _blocking(asyncio_admin.Admin.find_hanging_transactions)
    fence_producers = _blocking(asyncio_admin.Admin.fence_producers)
    abort_transaction = _blocking(asyncio_admin.Admin.abort_transaction)
    abort_hanging = _blocking(asyncio_admin.Admin.abort_hanging)
    create_acls = _blocking(asyncio_admin.Admin.create_acls)
    describe_acls = _blocking(asyncio_admin.Admin.describe_acls)
    delete_acls = _blocking(asyncio_admin.Admin.delete_acls)
    describe_client_quotas = _blocking(asyncio_admin.Admin.describe_client_quotas)
    alter_client_quotas = _blocking(asyncio_admin.Admin.alter_client_quotas)
    describe_users = _blocking(asyncio_admin.Admin.describe_users)
    set_user = _blocking(asyncio_admin.Admin.set_user)
    delete_user = _blocking(asyncio_admin.Admin.delete_user)
    create_delegation_token = _blocking(asyncio_admin.Admin.create_delegation_token)
    renew_delegation_token = _blocking(asyncio_admin.Admin.renew_delegation_token)
    expire_delegation_token = _blocking(asyncio_admin.Admin.expire_delegation_token)
    describe_delegation_tokens = _blocking(asyncio_admin.Admin.describe_delegation_tokens)
