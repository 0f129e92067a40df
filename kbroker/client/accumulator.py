"""Records on their way out: batches per partition, filled by any thread, drained by the sender's.

    send -> queue of the partition: [ready batch, ready batch, ...] open batch

Per record there is one call into the compiled builder and one small handle; everything else happens per batch.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any

from kbroker.client.client_config import ProducerConfig
from kbroker.client.errors import ClientClosed, error_for
from kbroker.client.types import RecordMetadata
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.records.builder import BatchBuilder, Headers
from kbroker.protocol.records.compression import CompressionType
from kbroker.protocol.records.partitioner import partition_for_key

log = logging.getLogger(__name__)

OnDelivery = Callable[[RecordMetadata | None, Exception | None], None]
RECORD_OVERHEAD = 61 + 40
"""Batch header and the longest form of a record's numbers: bytes besides key, value and headers."""
NEVER = float("inf")


class Batch:
    """Records of one partition that are sent as one; `done` once acknowledged or given up."""

    __slots__ = (
        "attempts",
        "base_offset",
        "base_sequence",
        "builder",
        "building",
        "count",
        "created",
        "data",
        "deadline",
        "done",
        "error",
        "listeners",
        "outcome",
        "partition",
        "parts",
        "process",
        "size",
        "timestamp",
        "topic",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int, builder: BatchBuilder | None, now: float, deadline: float) -> None:
        self.topic = topic
        self.partition = partition
        self.builder = builder
        self.created = now
        self.deadline = deadline
        self.count = 0
        self.size = 0
        self.data: bytearray | None = None
        self.building: asyncio.Future[bytearray] | None = None
        self.base_sequence = -1
        self.attempts = 0
        self.done = False
        self.error: Exception | None = None
        self.base_offset = -1
        self.timestamp = -1
        """Of the broker, where it stamps (LogAppendTime)."""
        self.listeners: list[Callable[[], None]] | None = []
        self.outcome: tuple[int, int, Exception | None] | None = None
        """What `finish` will be told once everything sent before it has finished."""
        self.parts: list[Batch] = []
        """What it was split into, in order, because the broker found it too large."""
        self.process = os.getpid()
        """After a fork nobody sends it in the child."""

    def split_into(self, parts: list[Batch]) -> None:
        """These are sent instead; this one is done when all of them are."""
        self.parts = parts
        self.builder = self.data = None
        for part in parts:
            part.when_done(self._part_done)

    def _part_done(self) -> None:
        if all(part.done for part in self.parts):
            first = self.parts[0]
            self.finish(first.base_offset, first.timestamp, next((p.error for p in self.parts if p.error), None))

    def part_of(self, index: int) -> tuple[Batch, int]:
        """Return the batch in which a record was sent in the end, and its number there."""
        for part in self.parts:
            if index < part.count:
                return part.part_of(index)
            index -= part.count
        return self, index

    def leaves(self) -> Iterator[Batch]:
        """Yield what was sent in the end."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()

    def when_done(self, listener: Callable[[], None]) -> None:
        """Call the listener once it is done, now if it is already."""
        listeners = self.listeners
        if listeners is not None:
            listeners.append(listener)
            # finish() may have taken the list between the two lines above.
            if self.listeners is not None or listener not in listeners:
                return
            listeners.remove(listener)
        listener()

    def finish(self, base_offset: int, timestamp: int = -1, error: Exception | None = None) -> None:
        """Record the outcome and tell everybody who waits; the records' bytes are let go."""
        self.base_offset, self.timestamp, self.error = base_offset, timestamp, error
        self.builder = self.data = None
        self.done = True
        listeners, self.listeners = self.listeners, None
        while listeners:
            try:
                listeners.pop(0)()
            except Exception:
                log.exception("a delivery callback raised")


class Delivery:
    """A record's future: `result(timeout)`, `exception()`, `done()`, `add_done_callback`, and `await` on asyncio.

    Waiting with `result` from the event loop of an asyncio producer would wait for ever: await it there.
    """

    __slots__ = ("_batch", "_index", "_timestamp")

    def __init__(self, batch: Batch, index: int, timestamp: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp = timestamp

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._batch.done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait and return where the record was written, or raise why it was not; TimeoutError after `timeout` s."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._metadata()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait and return the error, None when the record was written."""
        batch = self._batch
        if not batch.done:
            if os.getpid() != batch.process:
                raise ClientClosed("sent before a fork: only the parent process learns what became of it")
            event = threading.Event()
            batch.when_done(event.set)
            if not event.wait(timeout):
                raise TimeoutError(f"not acknowledged within {timeout:g} s")
        return batch.part_of(self._index)[0].error

    def add_done_callback(self, callback: Callable[[Delivery], None]) -> None:
        """Call back with this handle once the outcome is known, on the client's own thread."""
        self._batch.when_done(lambda: callback(self))

    def _metadata(self) -> RecordMetadata:
        batch, index = self._batch.part_of(self._index)
        offset = batch.base_offset + index if batch.base_offset >= 0 else -1
        timestamp = batch.timestamp if batch.timestamp >= 0 else self._timestamp
        return RecordMetadata(batch.topic, batch.partition, offset, timestamp)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self._batch
        if not batch.done:
            future = asyncio.get_running_loop().create_future()
            batch.when_done(lambda: None if future.done() else future.set_result(None))
            yield from future
        error = batch.part_of(self._index)[0].error
        if error is not None:
            raise error
        return self._metadata()

    def __repr__(self) -> str:
        state = "waiting" if not self._batch.done else repr(self.exception(0) or self._metadata())
        return f"<Delivery {self._batch.topic}-{self._batch.partition} {state}>"


class PartitionQueue:
    """One partition's batches: the open one, those ready to go, in flight, and to be sent again."""

    __slots__ = (
        "epoch",
        "in_flight",
        "known_as",
        "next_sequence",
        "open",
        "partition",
        "ready",
        "retry",
        "retry_at",
        "sent",
        "topic",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.open: Batch | None = None
        self.ready: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.retry: list[Batch] = []
        self.retry_at = 0.0
        self.sent: deque[Batch] = deque()
        """All that were sent and have not finished, in the order of their first sending, which is that of finishing."""
        self.epoch = (-1, -1)
        """Producer id and epoch that the sequences count for."""
        self.next_sequence = 0
        self.known_as = -1
        """The producer id of which the leader has acknowledged something."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in it."""
        return self.open is None and not (self.ready or self.retry or self.sent)

    def take_back(self) -> None:
        """What is to be sent again goes before everything else, in the order of its first sending."""
        places = {id(batch): place for place, batch in enumerate(self.sent)}
        self.retry.sort(key=lambda batch: places.get(id(batch), len(places)))
        self.ready.extendleft(reversed(self.retry))
        self.retry = []

    def replace(self, batch: Batch, parts: list[Batch]) -> None:
        """These are to be sent again instead of a batch that was sent."""
        place = self.sent.index(batch)
        del self.sent[place]
        for part in reversed(parts):
            self.sent.insert(place, part)
        self.retry += parts

    def settle(self, batch: Batch, base_offset: int, timestamp: int, error: Exception | None) -> list[Batch]:
        """Note how a batch ended; finishes and returns those of which everything before has ended too.

        An answer can overtake one sent earlier, when that one was lost and is asked for again; callbacks of a
        partition come in the order of the records all the same.
        """
        batch.outcome = base_offset, timestamp, error
        if not batch.attempts:
            self.sent.append(batch)
        finished = []
        while self.sent and self.sent[0].outcome is not None:
            first = self.sent.popleft()
            finished.append(first)
            first.finish(*first.outcome)  # type: ignore[misc]
        return finished


class TopicQueues:
    """A topic's queues by partition, and the one that records without a key go to now."""

    __slots__ = ("count", "queues", "sticky")

    def __init__(self, topic: str, partitions: int) -> None:
        self.queues = [PartitionQueue(topic, index) for index in range(partitions)]
        self.count = partitions
        self.sticky = self.queues[random.randrange(partitions)]


class Accumulator:
    """All queues of a producer, behind one lock."""

    def __init__(self, config: ProducerConfig, wake_sender: Callable[[], None]) -> None:
        self.lock = threading.Lock()
        self.room = threading.Condition(self.lock)
        self.used = 0
        """Bytes of records not acknowledged yet."""
        self.topics: dict[str, TopicQueues] = {}
        self.active: set[PartitionQueue] = set()
        """Queues that hold anything."""
        self.sleeping_until = NEVER
        """When the sender wakes by itself; 0 while it is awake or has been woken."""
        self.is_flushing = 0
        self.waiting_for_room = 0
        self._awaited_levels: list[int] = []
        """To which `used` must fall before somebody in `wait_below` goes on."""
        self.closed: Exception | None = None
        self._wake_sender = wake_sender
        self._limit = config.buffer_memory
        self._batch_size = min(config.batch_size, config.max_request_size)
        self._max_request_size = config.max_request_size
        self._linger = config.linger_ms / 1000
        self._delivery_timeout = config.delivery_timeout_ms / 1000
        self._compression = int(CompressionType.of_name(config.compression))
        self._level = config.compression_level
        self._partitioner = config.partitioner
        self.room_listeners: list[Callable[[], None]] = []

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery | None:
        """Add a record; None when the topic is not known here yet or the buffer is full."""
        if timestamp is None:
            timestamp = int(time.time() * 1000)
        with self.lock:
            if self.used >= self._limit:
                self._wake(0)
                return None
            known = self.topics.get(topic)
            if known is None:
                return None
            if partition is not None or self._partitioner is not None:
                queue = known.queues[self._chosen(topic, known.count, key, value, partition)]
            elif key is None:
                queue = known.sticky
            else:
                queue = known.queues[partition_for_key(key, known.count)]
            batch = queue.open
            if batch is not None:
                builder = batch.builder
                size = builder.size  # type: ignore[union-attr]
                if builder.append(key, value, headers, timestamp):  # type: ignore[union-attr]
                    self.used += builder.size - size  # type: ignore[union-attr]
                    batch.count = count = builder.count  # type: ignore[union-attr]
                else:
                    batch = None
            if batch is None:
                batch = self._open_batch(known, queue, key, value, headers, timestamp)
                count = 1
            delivery = Delivery(batch, count - 1, timestamp)
        if on_delivery is not None:
            delivery.add_done_callback(lambda done: _call_back(on_delivery, done))
        return delivery

    def _chosen(self, topic: str, count: int, key: Any, value: Any, partition: int | None) -> int:
        """Check the partition that the caller, or the caller's partitioner, wants."""
        if partition is None:
            assert self._partitioner is not None
            partition = self._partitioner(topic, key, value, count)
        if type(partition) is not int:
            raise TypeError(f"a partition is a whole number, not {partition!r}")
        if not 0 <= partition < count:
            text = f"the topic has {count} partitions"
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text, topic=topic, partition=partition)
        return partition

    def _open_batch(
        self, known: TopicQueues, queue: PartitionQueue, key: Any, value: Any, headers: Headers, timestamp: int
    ) -> Batch:
        """Put the record into a new batch; the one that has no room for it becomes ready."""
        size = (len(key) if key else 0) + (len(value) if value else 0) + RECORD_OVERHEAD
        if size > self._max_request_size:
            text = f"a record of about {size} bytes, max_request_size is {self._max_request_size}"
            raise error_for(ErrorCode.MESSAGE_TOO_LARGE, text, topic=queue.topic, partition=queue.partition)
        builder = BatchBuilder(self._batch_size, self._compression, self._level)
        builder.append(key, value, headers, timestamp)  # raises for wrong types, and then nothing has changed
        if queue.open is not None:
            self.seal(queue)
            if known.sticky is queue:
                known.sticky = known.queues[random.randrange(known.count)]
            self._wake(0)
        now = time.monotonic()
        batch = Batch(queue.topic, queue.partition, builder, now, now + self._delivery_timeout)
        batch.count = 1
        self.used += builder.size
        queue.open = batch
        self.active.add(queue)
        self._wake(now + self._linger)
        return batch

    def seal(self, queue: PartitionQueue) -> None:
        """The open batch takes no more records; with the lock held."""
        batch, queue.open = queue.open, None
        if batch is not None and batch.builder is not None:
            batch.size = batch.builder.size
            queue.ready.append(batch)

    def queue_built(self, batches: list[Batch]) -> None:
        """Take batches that are made already, behind all that was sent to their partitions before."""
        with self.lock:
            for batch in batches:
                queue = self.topics[batch.topic].queues[batch.partition]
                self.seal(queue)
                queue.ready.append(batch)
                self.active.add(queue)
                self.used += batch.size
            self._wake(0)

    def next_sticky(self, topic: str) -> int:
        """Return the partition for some more rows without keys."""
        with self.lock:
            known = self.topics[topic]
            partition = known.sticky.partition
            known.sticky = known.queues[(partition + 1) % known.count]
            return partition

    def leave_sticky(self, queue: PartitionQueue) -> None:
        """Send records without a key elsewhere from now on; with the lock held."""
        known = self.topics.get(queue.topic)
        if known is not None and known.sticky is queue:
            known.sticky = known.queues[random.randrange(known.count)]

    def _wake(self, when: float) -> None:
        """Have the sender look at the queues at `when`, unless it will do so earlier; with the lock held."""
        if when < self.sleeping_until:
            self.sleeping_until = when
            self._wake_sender()

    def learn(self, topic: str, partitions: int) -> None:
        """Make queues for a topic, or for the partitions that it has got besides; a topic made again may have fewer."""
        with self.lock:
            known = self.topics.get(topic)
            if known is None:
                self.topics[topic] = TopicQueues(topic, partitions)
                return
            known.queues += [PartitionQueue(topic, index) for index in range(len(known.queues), partitions)]
            known.count = partitions
            if known.sticky.partition >= partitions:
                known.sticky = known.queues[random.randrange(partitions)]

    def release(self, batch: Batch) -> None:
        """Give a finished batch's bytes back."""
        with self.room:
            self.used -= batch.size
            if self.waiting_for_room or any(self.used < level for level in self._awaited_levels):
                self.room.notify_all()
            listeners, self.room_listeners = self.room_listeners, []
        for listener in listeners:
            listener()

    def wait_below(self, level: int, timeout: float) -> None:
        """Wait until fewer bytes are under way, but for no longer than `timeout` s."""
        with self.room:
            self._awaited_levels.append(level)
            try:
                self.room.wait_for(lambda: self.used < level, timeout)
            finally:
                self._awaited_levels.remove(level)

    def unfinished(self) -> list[Batch]:
        """Every batch that is not done; the open ones become ready."""
        with self.lock:
            batches: list[Batch] = []
            for queue in self.active:
                self.seal(queue)
                batches += queue.sent
                batches += [batch for batch in (*queue.retry, *queue.ready) if not batch.attempts]
            self._wake(0)
            return batches

    def abandon(self, error: Exception) -> None:
        """Finish everything: with its outcome where that is known, else with this error."""
        for batch in self.unfinished():
            batch.finish(*(batch.outcome or (-1, -1, error)))
            self.release(batch)


def _call_back(on_delivery: OnDelivery, delivery: Delivery) -> None:
    error = delivery.exception(0)
    on_delivery(None if error else delivery.result(0), error)
