"""Takes batches from the accumulator to the partitions' leaders: one Produce request per broker, many partitions.

Order is kept: a partition whose batch failed sends nothing until all of its requests in flight have come back; then
everything not acknowledged goes again, in the order and with the sequence numbers of the first time. The broker drops
what it has already. After a batch was given up there is a gap in the sequences: the epoch is raised, and each partition
starts at sequence 0 as soon as the broker has said of everything sent in the former epoch that it has it, or has not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kbroker.client.accumulator import NEVER, Accumulator, Batch, PartitionQueue
from kbroker.client.client_config import ProducerConfig
from kbroker.client.cluster import Cluster
from kbroker.client.connection import Connection
from kbroker.client.errors import ClientClosed, DeliveryTimeout, error_for
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from kbroker.protocol.messages.transactions import InitProducerIdRequest
from kbroker.protocol.records.batch import read_header, set_producer
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.record import decode_batch

log = logging.getLogger(__name__)

SLOW_CODECS = ("gzip", "zstd")
INLINE_BYTES = 32 * 1024
"""Up to this size compressing takes less than handing over to a thread and back."""
LARGEST_EPOCH = 32_766
RESET_ID = (
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)

Taken = tuple[PartitionQueue, Batch]


class Sender:
    """One task on the loop; `wake` may be called from any thread."""

    def __init__(self, config: ProducerConfig, cluster: Cluster) -> None:
        self.config = config
        self.cluster = cluster
        self.accumulator = Accumulator(config, self.wake)
        self.statistics: dict[str, int] = defaultdict(int)
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._epoch = (-1, -1)
        self._in_flight: dict[int, int] = defaultdict(int)
        self._opening: set[int] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._refreshing = False
        self._is_closing = False
        self._threads: ThreadPoolExecutor | None = None
        self._is_slow = config.compression in SLOW_CODECS
        self._acks = config.required_acks
        self._backoff = config.retry_backoff_ms / 1000
        self._per_partition = config.max_in_flight if config.idempotent else 1
        cluster.refreshed.append(self._learn_partitions)
        self._task = self._loop.create_task(self._run(), name="kbroker-producer-sender")

    def wake(self) -> None:
        """Have the queues looked at soon."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    def _learn_partitions(self) -> None:
        """The metadata is new: topics may have more partitions now."""
        for topic in list(self.accumulator.topics):
            known = self.cluster.metadata.topics.get(topic)
            if known is not None:
                self.accumulator.learn(topic, len(known.partitions))

    async def _run(self) -> None:
        """Serve until cancelled; a mistake of ours fails every record that waits, so that nobody waits for ever."""
        try:
            await self._serve()
        except Exception as error:
            log.exception("the producer's sender failed")
            self.accumulator.closed = error
            self.accumulator.abandon(error)

    async def _serve(self) -> None:
        while True:
            try:
                if self.config.idempotent and self._epoch[0] < 0 and self.accumulator.active:
                    await self._init_producer_id()
                if self.accumulator.topics and self.cluster.is_metadata_old:
                    self._refresh_soon()
                self._event.clear()
                self.accumulator.sleeping_until = NEVER  # from here on, whoever opens a batch sets the event
                wake_at = self._send_ready()
            except (OSError, KafkaError) as error:
                log.warning("the producer tries again: %s", error)
                self._expire(self._loop.time(), error)
                await asyncio.sleep(self._backoff)
                continue
            with self.accumulator.lock:
                self.accumulator.sleeping_until = min(self.accumulator.sleeping_until, wake_at)
            try:
                async with asyncio.timeout_at(None if wake_at == NEVER else wake_at):
                    await self._event.wait()
            except TimeoutError:
                pass

    async def _init_producer_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = await self.cluster.ask(request, timeout_ms=5_000)
        if answer.error_code is not ErrorCode.NONE:
            raise error_for(answer.error_code, "no producer id")
        self._epoch = (answer.producer_id, answer.producer_epoch)

    def _raise_epoch(self, epoch: tuple[int, int], with_new_id: bool) -> None:
        """Start sequences anew everywhere, unless somebody has done so since `epoch`."""
        if epoch != self._epoch or not self.config.idempotent:
            return
        self._epoch = (-1, -1) if with_new_id or epoch[1] >= LARGEST_EPOCH else (epoch[0], epoch[1] + 1)

    def _send_ready(self) -> float:
        """Send all that can go now; returns when to look again."""
        now = self._loop.time()
        wake_at = self._collect(now)
        progress = True
        while progress:
            progress = False
            taken, next_look = self._take(now)
            wake_at = min(wake_at, next_look)
            for node_id, batches in taken.items():
                progress |= self._send(node_id, batches)
        return wake_at

    def _collect(self, now: float) -> float:
        """Seal what has lingered long enough; give up what is too old."""
        accumulator, linger = self.accumulator, self.config.linger_ms / 1000
        wake_at = NEVER
        with accumulator.lock:
            hurry = accumulator.is_flushing or accumulator.waiting_for_room or accumulator.closed
            for queue in list(accumulator.active):
                if queue.open is not None:
                    due = queue.open.created + linger
                    if hurry or due <= now:
                        accumulator.seal(queue)
                        accumulator.leave_sticky(queue)
                    else:
                        wake_at = min(wake_at, due)
                if queue.is_idle:
                    accumulator.active.discard(queue)
        return min(wake_at, self._expire(now, None))

    def _expire(self, now: float, reason: Exception | None) -> float:
        """Give up batches past their deadline that are not in flight; returns the next deadline."""
        next_deadline = NEVER
        for queue in list(self.accumulator.active):
            for batches in (queue.retry, queue.ready):
                # Copies: other threads add ready batches meanwhile.
                for batch in [batch for batch in list(batches) if batch.deadline <= now]:
                    batches.remove(batch)
                    self._give_up(queue, batch, self._too_late(batch, reason))
                if batches:
                    next_deadline = min(next_deadline, batches[0].deadline)
        return next_deadline

    def _too_late(self, batch: Batch, reason: Exception | None) -> Exception:
        text = f"not acknowledged within delivery_timeout_ms={self.config.delivery_timeout_ms}"
        last = reason or batch.error
        return DeliveryTimeout(f"{text} ({last})" if last else text, topic=batch.topic, partition=batch.partition)

    def _take(self, now: float) -> tuple[dict[int, list[Taken]], float]:
        """At most one batch of each partition, by leader; and when a back-off ends."""
        taken: dict[int, list[Taken]] = defaultdict(list)
        sizes: dict[int, int] = defaultdict(int)
        wake_at = NEVER
        for queue in list(self.accumulator.active):  # a copy: other threads open batches meanwhile
            if queue.retry and not queue.in_flight:
                if queue.retry_at > now:
                    wake_at = min(wake_at, queue.retry_at)
                    continue
                queue.take_back()
            # A leader takes any sequence as the first of a producer: nothing may overtake what comes first.
            limit = self._per_partition if queue.known_as == queue.epoch[0] else 1
            if queue.retry or not queue.ready or len(queue.in_flight) >= limit:
                continue
            if not queue.ready[0].attempts and len(queue.sent) >= self._per_partition:
                continue  # the leader knows the last five again: nothing it may have must be further back
            if not self._is_built(queue.ready[0]):
                continue
            known = self.cluster.metadata.leader(queue.topic, queue.partition)
            if known is None:
                self._refresh_soon()
                continue
            batch = queue.ready[0]
            if self._in_flight[known.leader] >= self.config.max_in_flight or known.leader in self._opening:
                continue
            if sizes[known.leader] and sizes[known.leader] + batch.size > self.config.max_request_size:
                continue
            if not self._is_stamped(queue, batch):
                continue
            queue.ready.popleft()
            sizes[known.leader] += batch.size
            taken[known.leader].append((queue, batch))
        return taken, wake_at

    def _is_built(self, batch: Batch) -> bool:
        """Whether a batch can go; a large one with a slow codec is compressed in a thread first."""
        if batch.data is not None or not self._is_slow or batch.size <= INLINE_BYTES:
            return True
        if batch.building is None:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(2, thread_name_prefix="kbroker-compress")
            assert batch.builder is not None
            batch.building = self._loop.run_in_executor(self._threads, batch.builder.build)
            batch.building.add_done_callback(lambda _: self._event.set())
        if not batch.building.done():
            return False
        batch.data = batch.building.result()
        return True

    def _is_stamped(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Give the batch its sequence (an old one stays) and make its bytes; False when there is no producer id now."""
        if not self.config.idempotent:
            if batch.data is None:
                assert batch.builder is not None
                batch.data = batch.builder.build()
            return True
        may_be_written = batch.attempts > 0 and batch.base_sequence >= 0  # by its sequence the broker knows it again
        if queue.epoch != self._epoch and not queue.in_flight and not may_be_written:
            if self._epoch[0] < 0:
                return False
            queue.epoch, queue.next_sequence = self._epoch, 0
            for waiting in list(queue.ready):
                waiting.base_sequence = -1
        if batch.base_sequence < 0 and queue.epoch != self._epoch:
            return False
        if batch.base_sequence < 0:
            batch.base_sequence = queue.next_sequence
            queue.next_sequence = (queue.next_sequence + batch.count) & 0x7FFFFFFF
            if batch.data is None:
                assert batch.builder is not None
                batch.data = batch.builder.build(*queue.epoch, batch.base_sequence)
            else:
                set_producer(batch.data, 0, *queue.epoch, batch.base_sequence)
        return True

    def _send(self, node_id: int, batches: list[Taken]) -> bool:
        """Send one request; False (and the batches are back in their queues) when there is no connection yet."""
        connection = self.cluster.open_connection(node_id)
        if connection is None:
            for queue, batch in batches:
                queue.ready.appendleft(batch)
            if node_id not in self._opening:
                self._opening.add(node_id)
                self._spawn(self._open(node_id))
            return False
        try:
            request = self._request(batches)
            version = connection.version_for(ProduceRequest)
            if self._acks == 0:
                connection.send_without_answer(request, version)
            else:
                future = connection.send(request, version)
        except (OSError, KafkaError) as error:
            self._failed(batches, error)
            return False
        self.statistics["requests"] += 1
        self.statistics["batches"] += len(batches)
        for queue, batch in batches:
            if not batch.attempts:
                queue.sent.append(batch)
            batch.attempts += 1
            if self._acks == 0:
                self._acknowledge(queue, batch, -1, -1)
            else:
                queue.in_flight.append(batch)
        if self._acks != 0:
            self._in_flight[node_id] += 1
            timer = self._loop.call_later(self.config.request_timeout_ms / 1000, connection.abort)
            future.add_done_callback(lambda done: self._answered(node_id, connection, batches, done, timer))
        return True

    def _request(self, batches: list[Taken]) -> ProduceRequest:
        topics: dict[str, list[ProduceRequest.PartitionProduceData]] = {}
        for queue, batch in batches:
            data = ProduceRequest.PartitionProduceData(index=queue.partition, records=batch.data)
            topics.setdefault(queue.topic, []).append(data)
        topic_data = ProduceRequest.TopicProduceData
        return ProduceRequest(
            acks=self._acks,
            timeout_ms=self.config.request_timeout_ms,
            topic_data=[topic_data(name=name, partition_data=items) for name, items in topics.items()],
        )

    async def _open(self, node_id: int) -> None:
        """Open a connection that is needed; while it cannot be had, wait and look for another leader."""
        try:
            await self.cluster.connection(node_id)
        except (OSError, KafkaError) as error:
            log.info("no connection to broker %d: %s", node_id, error)
            self._refresh_soon()
            await asyncio.sleep(self._backoff)
        finally:
            self._opening.discard(node_id)
            self._event.set()

    def _answered(
        self,
        node_id: int,
        connection: Connection,
        batches: list[Taken],
        done: asyncio.Future[ProduceResponse],
        timer: asyncio.TimerHandle,
    ) -> None:
        """Deal with the answer to one request."""
        timer.cancel()
        self._in_flight[node_id] -= 1
        for queue, batch in batches:
            queue.in_flight.remove(batch)
        self._event.set()
        if done.cancelled():
            return self._failed(batches, ConnectionError("cancelled"))
        error = done.exception()
        if error is not None:
            return self._failed(batches, error)
        results = {
            (topic.name, item.index): item for topic in done.result().responses for item in topic.partition_responses
        }
        for queue, batch in batches:
            result = results.get((queue.topic, queue.partition))
            if result is None:
                self._failed([(queue, batch)], ConnectionError(f"{connection.address} left the partition out"))
            elif result.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._acknowledge(queue, batch, result.base_offset, result.log_append_time_ms)
            else:
                self._refused(queue, batch, node_id, result)
        return None

    def _refused(
        self, queue: PartitionQueue, batch: Batch, node_id: int, result: ProduceResponse.PartitionProduceResponse
    ) -> None:
        """Send a batch again where that may help, give it up where it does not."""
        code, leader = result.error_code, result.current_leader
        error = error_for(code, result.error_message, topic=queue.topic, partition=queue.partition, broker=node_id)
        is_told_where = False
        if code.refreshes_metadata:
            if leader.leader_id >= 0:
                named = (queue.topic, queue.partition, leader.leader_id, leader.leader_epoch)
                is_told_where = self.cluster.metadata.new_leader(*named)
            self._refresh_soon()
        if code is ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            queue.replace(batch, halves_of(batch, self.config.compression_level))
            self.statistics["retries"] += 1
            return None
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and queue.epoch != self._epoch:
            # Something before it was given up, so that it was not written: it goes on in the next epoch.
            batch.base_sequence = -1
            return self._again(queue, batch, error, at_once=True)
        is_behind_a_failure = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and queue.sent[0] is not batch
        if code.retriable or is_behind_a_failure:
            return self._again(queue, batch, error, at_once=is_told_where)
        if code is ErrorCode.UNKNOWN_PRODUCER_ID and batch.attempts < 3:
            # The log's beginning was deleted and the producer's state with it: start anew, nothing was written.
            self._raise_epoch(queue.epoch, with_new_id=False)
            batch.base_sequence = -1
            return self._again(queue, batch, error)
        return self._give_up(queue, batch, error)

    def _failed(self, batches: list[Taken], error: BaseException) -> None:
        """The whole request got no answer: whether it was carried out is not known."""
        self._refresh_soon()
        for queue, batch in batches:
            reason = error if isinstance(error, Exception) else ConnectionError(str(error))
            self._again(queue, batch, reason)

    def _again(self, queue: PartitionQueue, batch: Batch, error: Exception, *, at_once: bool = False) -> None:
        batch.error = error
        now = self._loop.time()
        if batch.deadline <= now:
            return self._give_up(queue, batch, self._too_late(batch, error))
        self.statistics["retries"] += 1
        queue.retry.append(batch)
        pause = min(self._backoff * 2 ** min(batch.attempts - 1, 10), self.config.retry_backoff_max_ms / 1000)
        if at_once:
            pause = 0.0
        queue.retry_at = max(queue.retry_at, now + pause)
        return None

    def _give_up(self, queue: PartitionQueue, batch: Batch, error: Exception) -> None:
        if batch.base_sequence >= 0:
            code = getattr(error, "code", None)
            self._raise_epoch(queue.epoch, with_new_id=code in RESET_ID)
        self.statistics["failed_records"] += batch.count
        self._settle(queue, batch, -1, -1, error)

    def _acknowledge(self, queue: PartitionQueue, batch: Batch, base_offset: int, timestamp: int) -> None:
        queue.known_as = queue.epoch[0]
        self.statistics["records"] += batch.count
        self.statistics["bytes"] += len(batch.data or b"")
        self._settle(queue, batch, base_offset, timestamp, None)

    def _settle(
        self, queue: PartitionQueue, batch: Batch, base_offset: int, timestamp: int, error: Exception | None
    ) -> None:
        for finished in queue.settle(batch, base_offset, timestamp, error):
            self.accumulator.release(finished)

    def _refresh_soon(self) -> None:
        if not self._refreshing and not self._is_closing:
            self._refreshing = True
            self._spawn(self._refresh())

    async def _refresh(self) -> None:
        try:
            await self.cluster.refresh(set(self.accumulator.topics))
        except (OSError, KafkaError) as error:
            log.info("no new metadata: %s", error)
        finally:
            await asyncio.sleep(self._backoff)
            self._refreshing = False
            self._event.set()

    def _spawn(self, coroutine: Any) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def flush(self) -> None:
        """Send everything now and wait until it is done."""
        with self.accumulator.lock:
            self.accumulator.is_flushing += 1
        try:
            for batch in self.accumulator.unfinished():
                done = self._loop.create_future()
                batch.when_done(lambda done=done: None if done.done() else done.set_result(None))  # type: ignore[misc]
                await done
        finally:
            with self.accumulator.lock:
                self.accumulator.is_flushing -= 1

    async def close(self, timeout: float | None) -> None:
        """Send what is there for at most `timeout` s, then give up the rest."""
        self.accumulator.closed = ClientClosed("the producer is closed")
        with self.accumulator.room:
            self.accumulator.room.notify_all()
        try:
            async with asyncio.timeout(timeout):
                await self.flush()
        except TimeoutError:
            log.warning("the producer was closed before all records were acknowledged")
        finally:
            self._is_closing = True
            for task in (self._task, *self._tasks):
                task.cancel()
            await asyncio.gather(self._task, *self._tasks, return_exceptions=True)
            await self.cluster.close()
            self.accumulator.abandon(self.accumulator.closed)
            if self._threads is not None:
                self._threads.shutdown(wait=False, cancel_futures=True)


def halves_of(batch: Batch, level: int | None) -> list[Batch]:
    """Split a batch that the broker finds too large in two, each with its part of the sequence numbers."""
    assert batch.data is not None
    header = read_header(batch.data, 0)
    records = decode_batch(batch.data)
    middle = len(records) // 2
    halves = []
    for start, some in ((0, records[:middle]), (middle, records[middle:])):
        builder = BatchBuilder(len(batch.data) + batch.size, header.compression, level)
        for record in some:
            builder.append(record.key, record.value, record.headers, record.timestamp)
        half = Batch(batch.topic, batch.partition, None, batch.created, batch.deadline)
        half.attempts = batch.attempts
        half.count = len(some)
        half.size = batch.size * len(some) // len(records)
        if batch.base_sequence >= 0:
            half.base_sequence = (batch.base_sequence + start) & 0x7FFFFFFF
        half.data = builder.build(header.producer_id, header.producer_epoch, half.base_sequence)
        halves.append(half)
    halves[1].size = batch.size - halves[0].size
    batch.split_into(halves)
    return halves
