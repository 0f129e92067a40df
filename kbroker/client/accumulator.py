"""Records on their way out: batches per partition, filled by any thread, drained by the sender's.

    send -> queue of the partition: [ready batch, ready batch, ...] open batch

Per record there is one call into the compiled builder and one small handle; everything else happens per batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kbroker.client.client_config import ProducerConfig
from kbroker.client.delivery import Batch, Delivery
from kbroker.client.errors import ClientClosed, error_for
from kbroker.client.partition_queue import PartitionQueue, TopicQueues
from kbroker.client.partitioners import placement_of
from kbroker.client.types import RecordMetadata
from kbroker.client.wrong_records import explained
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.records.builder import BatchBuilder, Headers
from kbroker.protocol.records.compression import CompressionType
from kbroker.protocol.records.partitioner import partition_for_key

OnDelivery = Callable[[RecordMetadata | None, Exception | None], None]
RECORD_OVERHEAD = 61 + 40
"""Batch header and the longest form of a record's numbers: bytes besides key, value and headers."""
NEVER = float("inf")


class Accumulator:
    """All queues of a producer, behind one lock; made by the thread that tells what becomes of the records."""

    def __init__(self, config: ProducerConfig, wake_sender: Callable[[], None]) -> None:
        self.lock = threading.Lock()
        self.room = threading.Condition(self.lock)
        self.used = 0
        """Bytes of records not acknowledged yet."""
        self.topics: dict[str, TopicQueues] = {}
        self.active: dict[PartitionQueue, None] = {}
        """Queues that hold anything."""
        self.sleeping_until = NEVER
        """When the sender wakes by itself; 0 while it is awake or has been woken."""
        self.is_flushing = 0
        self.waiting_for_room = 0
        self._awaited_levels: list[int] = []
        """To which `used` must fall before somebody in `wait_below` goes on."""
        self.closed: str | None = None
        """Why nothing is taken any more."""
        self.refuses: Callable[[], Exception] | None = None
        """Makes what is raised for a record that comes now, None where records are taken."""
        self.on_loss: Callable[[Exception], None] | None = None
        """Told of rows that come into no batch, from any thread."""
        self._failure: Exception | None = None
        self._wake_sender = wake_sender
        self._thread = threading.get_ident()
        self._limit = config.buffer_memory
        self._batch_size = min(config.batch_size, config.max_request_size)
        self._max_request_size = config.max_request_size
        self._linger = config.linger_ms / 1000
        self._delivery_timeout = config.delivery_timeout_ms / 1000
        self._compression = int(CompressionType.of_name(config.compression))
        self._level = config.level
        placement = placement_of(config.partitioner)
        self._hashing, self._shortest_key = (0, 0) if callable(placement) else placement
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
        """Add a record; None when the topic is not known here yet or the buffer is full. Raises once it is closed."""
        if timestamp is None:
            timestamp = int(time.time() * 1000)
        try:
            with self.lock:
                if self.refuses is not None:
                    raise self.refuses()
                if self.used >= self._limit:
                    self._wake(0)
                    return None
                known = self.topics.get(topic)
                if known is None:
                    return None
                is_anywhere = False
                if partition is not None:
                    queue = known.queues[_checked(topic, known.count, partition)]
                elif (-1 if key is None else len(key)) < self._shortest_key:
                    queue = known.sticky
                    is_anywhere = True
                else:
                    queue = known.queues[partition_for_key(key or b"", known.count, self._hashing)]
                batch = queue.open
                if batch is not None:
                    builder = batch.builder
                    size = builder.size  # type: ignore[union-attr]
                    if builder.append(key, value, headers, timestamp):  # type: ignore[union-attr]
                        self.used += builder.size - size  # type: ignore[union-attr]
                        batch.count = builder.count  # type: ignore[union-attr]
                    else:
                        batch = None
                if batch is None:
                    batch = self._open_batch(known, queue, is_anywhere, key, value, headers, timestamp)
                delivery = Delivery(batch, batch.count - 1, timestamp)
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            explanation = explained(key, value, headers, timestamp, error)
            if explanation is error:
                raise
            raise explanation from None
        if on_delivery is not None:
            delivery.add_done_callback(lambda done: _call_back(on_delivery, done))
        return delivery

    def count_to_choose_from(self, topic: str) -> int:
        """Return how many partitions a topic has, 0 where `append` takes no record now; raises where that does."""
        with self.lock:
            if self.refuses is not None:
                raise self.refuses()
            known = self.topics.get(topic)
            return 0 if known is None or self.used >= self._limit else known.count

    def _open_batch(
        self,
        known: TopicQueues,
        queue: PartitionQueue,
        is_anywhere: bool,
        key: Any,
        value: Any,
        headers: Headers,
        timestamp: int,
    ) -> Batch:
        """Put the record into a new batch; the one that has no room for it becomes ready.

        A record that may go anywhere goes to the partition whose turn is next.
        """
        size = (len(key) if key else 0) + (len(value) if value else 0) + RECORD_OVERHEAD
        if size > self._max_request_size:
            text = f"a record of about {size} bytes, max_request_size is {self._max_request_size}"
            text = f"{text}: make it larger (and the topic's max.message.bytes), or the record smaller"
            raise error_for(ErrorCode.MESSAGE_TOO_LARGE, text, topic=queue.topic, partition=queue.partition)
        builder = BatchBuilder(self._batch_size, self._compression, self._level)
        builder.append(key, value, headers, timestamp)  # raises for wrong types, and then nothing has changed
        if queue.open is not None:
            self.seal(queue)
            if known.sticky is queue:
                known.change_sticky()
            self._wake(0)
            if is_anywhere:
                queue = known.sticky
                batch = queue.open
                if batch is not None and self._added(batch, key, value, headers, timestamp):
                    return batch
                self.seal(queue)
        now = time.monotonic()
        batch = Batch(queue.topic, queue.partition, builder, now, now + self._delivery_timeout)
        batch.count = 1
        batch.thread = self._thread
        self.used += builder.size
        queue.open = batch
        known.used_at = now
        self.active[queue] = None
        self._wake(now + self._linger)
        return batch

    def _added(self, batch: Batch, key: Any, value: Any, headers: Headers, timestamp: int) -> bool:
        """Put the record into a batch that is open, if there is room."""
        builder = batch.builder
        assert builder is not None
        size = builder.size
        if not builder.append(key, value, headers, timestamp):
            return False
        self.used += builder.size - size
        batch.count = builder.count
        return True

    def seal(self, queue: PartitionQueue) -> None:
        """The open batch takes no more records; with the lock held."""
        batch, queue.open = queue.open, None
        if batch is not None and batch.builder is not None:
            batch.size = batch.builder.size
            queue.ready.append(batch)

    def queue_built(self, batches: list[Batch]) -> None:
        """Take batches that are made already, behind all that was sent to their partitions before; all or none."""
        with self.lock:
            if self.refuses is not None:
                raise self.refuses()
            for batch in batches:
                known = self.topics[batch.topic]
                known.used_at = batch.created
                queue = known.queues[batch.partition]
                self.seal(queue)
                batch.thread = self._thread
                queue.ready.append(batch)
                self.active[queue] = None
                self.used += batch.size
            self._wake(0)

    def next_sticky(self, topic: str) -> int:
        """Return the partition for some more rows without keys."""
        with self.lock:
            return self.topics[topic].turn_sticky()

    def leave_sticky(self, queue: PartitionQueue) -> None:
        """Send records without a key elsewhere from now on; with the lock held."""
        known = self.topics.get(queue.topic)
        if known is not None and known.sticky is queue:
            known.change_sticky()

    def _wake(self, when: float) -> None:
        """Have the sender look at the queues at `when`, unless it will do so earlier; with the lock held."""
        if when < self.sleeping_until:
            self.sleeping_until = when
            self._wake_sender()

    def learn(self, topic: str, partitions: int, led: Sequence[int]) -> None:
        """Make queues for a topic, or for the partitions that it has got besides; `led` are those with a leader."""
        with self.lock:
            known = self.topics.get(topic)
            if known is None:
                self.topics[topic] = TopicQueues(topic, partitions, led, time.monotonic())
            else:
                known.learn(topic, partitions, led)

    def keeps(self, topic: str) -> bool:
        """Whether a topic is known; it is not forgotten soon then."""
        with self.lock:
            known = self.topics.get(topic)
            if known is not None:
                known.used_at = time.monotonic()
            return known is not None

    def forget_idle(self, since: float) -> list[PartitionQueue]:
        """Forget topics that no record was sent to since then, and none is on its way to; returns their queues."""
        with self.lock:
            busy = {queue.topic for queue in self.active}
            idle = [
                name
                for name, known in self.topics.items()
                if known.used_at < since and name not in busy and not any(queue.in_flight for queue in known.queues)
            ]
            return [queue for name in idle for queue in self.topics.pop(name).queues]

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

    def close(self, reason: str, failure: Exception | None = None) -> None:
        """Take nothing any more, and tell those who wait for room."""
        with self.room:
            if self.closed is None:
                self.closed, self._failure, self.refuses = reason, failure, self.refusal
            self.room.notify_all()

    def refuse(self, why: Callable[[], Exception] | None) -> None:
        """Take no records for a while, or take them again."""
        with self.lock:
            if self.closed is None:
                self.refuses = why

    def refusal(self) -> ClientClosed:
        """Return what is raised for a record that comes too late."""
        error = ClientClosed(self.closed or "the producer is closed")
        error.__cause__ = self._failure
        return error

    def abandon(self, error: Exception) -> None:
        """Finish everything: with its outcome where that is known, else with this error."""
        for batch in self.unfinished():
            batch.finish(*(batch.outcome or (-1, -1, error)))
            self.release(batch)


def _checked(topic: str, count: int, partition: Any) -> int:
    """Check the partition that the caller, or the caller's partitioner, wants."""
    if type(partition) is not int:
        raise TypeError(f"a partition is a whole number, not {partition!r}")
    if not 0 <= partition < count:
        text = f"the topic has {count} partitions"
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text, topic=topic, partition=partition)
    return partition


def _call_back(on_delivery: OnDelivery, delivery: Delivery) -> None:
    error = delivery.exception(0)
    on_delivery(None if error else delivery.result(0), error)
