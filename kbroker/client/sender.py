"""Takes batches from the accumulator to the partitions' leaders: one Produce request per broker, many partitions.

Order is kept: a partition whose batch failed sends nothing until all of its requests in flight have come back; then
everything not acknowledged goes again, in the order and with the sequence numbers of the first time. The broker drops
what it has already. After a batch was given up there is a gap in the sequences: the epoch is raised, and each partition
starts at sequence 0 as soon as the broker has said of everything sent in the former epoch that it has it, or has not.

Nothing outlives its deadline: a batch has an outcome within delivery_timeout_ms wherever it is by then. One in flight
has failed for its sender although the broker may still write it; its partition goes on when the request has ended.

A transactional producer's partitions are in the transaction before their first batch is sent (transactions.py), and
what fails in a transaction fails all of it: then nothing is sent again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kbroker.client.accumulator import NEVER, Accumulator
from kbroker.client.client_config import ProducerConfig
from kbroker.client.cluster import Cluster
from kbroker.client.connection import Connection
from kbroker.client.delivery import Batch, done_future
from kbroker.client.errors import BatchNotBuilt, DeliveryTimeout, NotConnected, error_for
from kbroker.client.partition_queue import PartitionQueue
from kbroker.client.producer_identity import ProducerIdentity
from kbroker.client.producer_statistics import ProducerStatistics
from kbroker.client.refused_batches import Remedy, ends_identity, halves_of, remedy_for
from kbroker.client.transactions import State, Transactions
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from kbroker.protocol.records.batch import set_producer

log = logging.getLogger(__name__)

SLOW_CODECS = ("gzip", "zstd")
INLINE_BYTES = 32 * 1024
"""Up to this size compressing takes less than handing over to a thread and back."""

COMPRESSORS = 2
"""Threads that compress."""

IDLE_S = 300.0
"""A topic that nothing was sent to for so long is forgotten: metadata.max.idle.ms of Java's producer (KIP-526)."""

SHARE_TO_REPLICATE = 0.9
"""Of the time for an answer: a broker that is kept waiting says so before the connection is given up."""

Taken = tuple[PartitionQueue, Batch]


class Sender:
    """One task on the loop; `wake` may be called from any thread."""

    def __init__(self, config: ProducerConfig, cluster: Cluster) -> None:
        self.config = config
        self.cluster = cluster
        self.accumulator = Accumulator(config, self.wake)
        self.statistics = ProducerStatistics()
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._backoff = config.retry_backoff_ms / 1000
        self._longest_backoff = config.retry_backoff_max_ms / 1000
        self.transactions: Transactions | None = None
        self._identity: ProducerIdentity | Transactions
        if config.transactional_id is None:
            self._identity = ProducerIdentity(cluster, self._backoff, self._longest_backoff)
        else:
            self._identity = self.transactions = Transactions(config, cluster, self)
            self.accumulator.on_loss = self._rows_lost
        self._in_flight: dict[int, int] = defaultdict(int)
        self._opening: set[int] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._refreshing = False
        self._is_closing = False
        self._threads: ThreadPoolExecutor | None = None
        self._is_slow = config.compression in SLOW_CODECS
        self._acks = config.required_acks
        self._is_idempotent = config.idempotent
        self._per_partition = config.max_in_flight if config.idempotent else 1
        self._per_broker = config.max_in_flight if config.required_acks else 1  # without answers: until it is written
        cluster.refreshed.append(self._learn_partitions)
        self._task = self._loop.create_task(self._run(), name="kbroker-producer-sender")

    @property
    def requests_in_flight(self) -> int:
        """Produce requests that are not answered."""
        return sum(self._in_flight.values())

    def wake(self) -> None:
        """Have the queues looked at soon."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    def _learn_partitions(self) -> None:
        """The metadata is new: topics may have more partitions now, and partitions may have lost their leaders."""
        for topic in list(self.accumulator.topics):
            self.learn(topic)

    def learn(self, topic: str) -> None:
        """Have queues for the partitions that the topic has by the newest metadata, if it is known there."""
        known = self.cluster.metadata.topics.get(topic)
        if known is not None:
            self.accumulator.learn(topic, known.count, self.cluster.metadata.led_partitions(topic))

    async def _run(self) -> None:
        """Serve until cancelled; a mistake of ours fails every record that waits, so that nobody waits for ever."""
        try:
            await self._serve()
        except Exception as error:
            log.exception("the producer's sender failed")
            self.accumulator.close(f"the producer has failed ({error!r}): close it and make another one", error)
            self.accumulator.abandon(error)

    async def _serve(self) -> None:
        while True:
            if self._is_idempotent and self._identity.is_wanted and self.accumulator.active:
                self._spawn(self._obtain_identity())
            if self.accumulator.topics and self.cluster.is_metadata_old:
                self._refresh_soon()
            self._event.clear()
            self.accumulator.sleeping_until = NEVER  # from here on, whoever opens a batch sets the event
            wake_at = self._send_ready()
            with self.accumulator.lock:
                self.accumulator.sleeping_until = min(self.accumulator.sleeping_until, wake_at)
            try:
                async with asyncio.timeout_at(None if wake_at == NEVER else wake_at):
                    await self._event.wait()
            except TimeoutError:
                pass

    async def _obtain_identity(self) -> None:
        assert isinstance(self._identity, ProducerIdentity)
        try:
            await self._identity.obtain(self._fail_unsent)
        finally:
            self._event.set()

    def _fail_unsent(self, error: Exception) -> None:
        """There is no producer id for what has not been sent once; the next record asks again."""
        self._seal_open(NEVER)
        for queue in list(self.accumulator.active):
            for batch in [batch for batch in list(queue.ready) if not batch.attempts]:
                queue.ready.remove(batch)
                self._give_up(queue, batch, error)

    # --- what transactions ask --------------------------------------------------------------------------------

    def fail_unsent(self, error: Exception) -> None:
        """Give up all that is not on its way to a broker now."""
        self._seal_open(NEVER)
        for queue in list(self.accumulator.active):
            for batch in (*queue.retry, *queue.ready):
                queue.withdraw(batch)
                self._give_up(queue, batch, error)

    def refuse(self, why: Callable[[], Exception] | None) -> None:
        """Take no records, or take them again."""
        self.accumulator.refuse(why)

    def look(self) -> None:
        """Look at the queues again."""
        self._event.set()

    def _rows_lost(self, error: Exception) -> None:
        """Rows of a table came into no batch; called by any thread."""
        assert self.transactions is not None
        self._loop.call_soon_threadsafe(self.transactions.doom, error)

    # --- batches on their way ---------------------------------------------------------------------------------

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
        """Seal what has lingered long enough; give up what is too old. Returns when to look again."""
        accumulator, linger = self.accumulator, self.config.linger_ms / 1000
        hurry = accumulator.is_flushing or accumulator.waiting_for_room or accumulator.closed
        oldest_left = self._seal_open(NEVER if hurry else now - linger)
        return min(oldest_left + linger, self._expire(now))

    def _seal_open(self, made_by: float) -> float:
        """Seal the open batches made by then; returns when the oldest of the others was made."""
        oldest = NEVER
        with self.accumulator.lock:
            for queue in list(self.accumulator.active):
                if queue.open is not None:
                    if queue.open.created <= made_by:
                        self.accumulator.seal(queue)
                        self.accumulator.leave_sticky(queue)
                    else:
                        oldest = min(oldest, queue.open.created)
                if queue.is_idle:
                    self.accumulator.active.pop(queue, None)
        return oldest

    def _expire(self, now: float) -> float:
        """Give up batches past their deadline, wherever they are; returns the next deadline."""
        next_deadline = NEVER
        for queue in list(self.accumulator.active):
            for batch in list(queue.sent):
                if batch.outcome is None:
                    if batch.deadline > now:
                        next_deadline = min(next_deadline, batch.deadline)
                        break
                    queue.withdraw(batch)
                    self._give_up(queue, batch, self._too_late(batch, batch.error))
            while queue.ready:
                batch = queue.ready[0]
                if batch.deadline > now:
                    next_deadline = min(next_deadline, batch.deadline)
                    break
                queue.ready.popleft()
                self._give_up(queue, batch, self._too_late(batch, self._identity.problem))
        return next_deadline

    def _too_late(self, batch: Batch, reason: Exception | None) -> Exception:
        text = f"not acknowledged within delivery_timeout_ms={self.config.delivery_timeout_ms}"
        return DeliveryTimeout(f"{text} ({reason})" if reason else text, topic=batch.topic, partition=batch.partition)

    def _take(self, now: float) -> tuple[dict[int, list[Taken]], float]:
        """At most one batch of each partition, by leader; and when a back-off ends."""
        taken: dict[int, list[Taken]] = defaultdict(list)
        sizes: dict[int, int] = defaultdict(int)
        wake_at = NEVER
        transactions = self.transactions
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
            if transactions is not None and not transactions.may_send(queue):
                continue
            known = self.cluster.metadata.leader(queue.topic, queue.partition)
            if known is None:
                self._refresh_soon()
                continue
            batch = queue.ready[0]
            if not self._is_compressed(batch):
                continue
            if self._in_flight[known.leader] >= self._per_broker or known.leader in self._opening:
                continue
            if sizes[known.leader] and sizes[known.leader] + batch.size > self.config.max_request_size:
                continue
            try:
                is_stamped = self._is_stamped(queue, batch)
            except Exception as error:
                log.exception("a batch of %d records for %s-%d", batch.count, queue.topic, queue.partition)
                queue.ready.popleft()
                self._give_up(queue, batch, BatchNotBuilt(queue.topic, queue.partition, error))
                continue
            if is_stamped:
                queue.ready.popleft()
                sizes[known.leader] += batch.size
                taken[known.leader].append((queue, batch))
        return taken, wake_at

    def _is_compressed(self, batch: Batch) -> bool:
        """Whether a batch can go; a large one with a slow codec is compressed in a thread first."""
        if batch.data is not None or not self._is_slow or batch.size <= INLINE_BYTES:
            return True
        if batch.building is None:
            assert batch.builder is not None
            build = functools.partial(batch.builder.build, transactional=self.transactions is not None)
            try:
                self._threads = self._threads or started_threads(COMPRESSORS)
                batch.building = self._loop.run_in_executor(self._threads, build)
            except RuntimeError as error:  # the interpreter ends, or its main thread has
                log.info("no threads to compress in: %s", error)
                self._is_slow = False  # compressing here holds up the loop, and loses nothing
                return True
            batch.building.add_done_callback(self._compressed)
        return batch.building.done()

    def _compressed(self, building: asyncio.Future[bytearray]) -> None:
        self._event.set()
        if not building.cancelled():
            building.exception()  # the batch may have been given up: that nobody looks at it is no mistake

    def _is_stamped(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Give the batch its sequence (an old one stays) and make its bytes; False when there is no producer id now.

        Raises what the building of it raises; nothing has changed then.
        """
        if batch.data is None and batch.building is not None:
            batch.data = batch.building.result()
        if not self._is_idempotent:
            if batch.data is None:
                assert batch.builder is not None
                batch.data = batch.builder.build()
            return True
        current = self._identity.current
        may_be_written = batch.attempts > 0 and batch.base_sequence >= 0  # by its sequence the broker knows it again
        if not may_be_written and not self._identity.is_known:
            return False
        if queue.epoch != current and not queue.in_flight and not may_be_written:
            queue.epoch, queue.next_sequence = current, 0
            for waiting in list(queue.ready):
                waiting.base_sequence = -1
        if batch.base_sequence < 0 and queue.epoch != current:
            return False
        if batch.base_sequence < 0:
            if batch.data is None:
                assert batch.builder is not None
                batch.data = batch.builder.build(*queue.epoch, queue.next_sequence, self.transactions is not None)
            else:
                set_producer(batch.data, 0, *queue.epoch, queue.next_sequence)
            batch.base_sequence = queue.next_sequence
            queue.next_sequence = (queue.next_sequence + batch.count) & 0x7FFFFFFF
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
            highest = None if self.transactions is None else self.transactions.newest_produce
            version = connection.version_for(ProduceRequest, highest)
            send = connection.send if self._acks else connection.send_without_answer
            future: asyncio.Future[Any] = send(request, version)
        except (OSError, KafkaError) as error:
            self._failed(batches, error)
            return False
        now = self._loop.time()
        self.statistics.requests += 1
        self._in_flight[node_id] += 1
        for queue, batch in batches:
            self.statistics.sent(batch, now)
            if not batch.attempts:
                queue.sent.append(batch)
            batch.attempts += 1
            queue.in_flight.append(batch)
        timer = self._loop.call_later(self.config.request_timeout_ms / 1000, connection.abort)
        answered = functools.partial(self._answered, node_id, connection, batches, timer, now)
        if future.done():
            answered(future)
        else:
            future.add_done_callback(answered)
        return True

    def _request(self, batches: list[Taken]) -> ProduceRequest:
        topics: dict[str, list[ProduceRequest.PartitionProduceData]] = {}
        for queue, batch in batches:
            data = ProduceRequest.PartitionProduceData(index=queue.partition, records=batch.data)
            topics.setdefault(queue.topic, []).append(data)
        topic_data = ProduceRequest.TopicProduceData
        return ProduceRequest(
            transactional_id=self.config.transactional_id,
            acks=self._acks,
            timeout_ms=int(self.config.request_timeout_ms * SHARE_TO_REPLICATE),
            topic_data=[topic_data(name=name, partition_data=items) for name, items in topics.items()],
        )

    async def _open(self, node_id: int) -> None:
        """Open a connection that is needed; while it cannot be had, wait and look for another leader.

        With acks=0 a broker that does not lead says so by ending the connection, and in no other way.
        """
        try:
            if self._acks == 0 and self.cluster.has_lost(node_id):
                await asyncio.sleep(self._backoff)
                await self.cluster.refresh(set(self.accumulator.topics))
                self._event.set()  # another one may lead
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
        timer: asyncio.TimerHandle,
        sent_at: float,
        done: asyncio.Future[ProduceResponse | None],
    ) -> None:
        """Deal with the answer to one request; with acks=0 that is only that the system has it, and so nothing here."""
        timer.cancel()
        self._in_flight[node_id] -= 1
        for queue, batch in batches:
            queue.in_flight.remove(batch)
        self._event.set()
        if done.cancelled():
            return self._failed(batches, NotConnected("cancelled"))
        error = done.exception()
        if error is not None:
            return self._failed(batches, error)
        answer = done.result()
        if answer is None:
            for queue, batch in batches:
                if not batch.has_ended:
                    self._acknowledge(queue, batch, -1, -1)
            return None
        self.statistics.answered(self._loop.time() - sent_at, answer.throttle_time_ms)
        results = {(topic.name, item.index): item for topic in answer.responses for item in topic.partition_responses}
        for queue, batch in batches:
            result = results.get((queue.topic, queue.partition))
            if batch.has_ended:
                continue  # it was too late
            if result is None:
                self._failed([(queue, batch)], NotConnected(f"{connection.address} left the partition out"))
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
        if code.refreshes_metadata and leader.leader_id >= 0:
            named = (queue.topic, queue.partition, leader.leader_id, leader.leader_epoch)
            is_told_where = self.cluster.metadata.new_leader(*named)
        # Whose followers do not come in time may have lost them to another leader, and not have heard of it.
        if code.refreshes_metadata or code is ErrorCode.REQUEST_TIMED_OUT:
            self._refresh_soon()
        is_current = queue.epoch == self._identity.current
        is_first = queue.sent[0] is batch
        remedy = remedy_for(
            code,
            records=batch.count,
            is_first=is_first,
            is_of_current_epoch=is_current,
            is_transactional=self.transactions is not None,
        )
        if remedy is Remedy.NONE:
            return self._give_up(queue, batch, error)
        if remedy is Remedy.SPLIT:
            queue.replace(batch, halves_of(batch, self.config.level))
            self.statistics.splits += 1
            return None
        if remedy is Remedy.RAISE_EPOCH:
            log.warning("%s-%d at broker %d: %s; a new epoch begins", queue.topic, queue.partition, node_id, error)
            self._identity.raise_epoch(queue.epoch)
        if remedy is not Remedy.AGAIN:
            batch.base_sequence = -1
        return self._again(queue, batch, error, at_once=is_told_where or remedy is Remedy.AGAIN_IN_NEW_EPOCH)

    def _failed(self, batches: list[Taken], error: BaseException) -> None:
        """The whole request got no answer: whether it was carried out is not known."""
        self._refresh_soon()
        reason = error if isinstance(error, Exception) else NotConnected(str(error))
        for queue, batch in batches:
            if not batch.has_ended:
                self._again(queue, batch, reason)

    def _again(self, queue: PartitionQueue, batch: Batch, error: Exception, *, at_once: bool = False) -> None:
        batch.error = error
        now = self._loop.time()
        if batch.deadline <= now:
            return self._give_up(queue, batch, self._too_late(batch, error))
        if self.transactions is not None and self.transactions.is_doomed:
            return self._give_up(queue, batch, error)
        queue.retry.append(batch)
        pause = min(self._backoff * 2 ** min(batch.attempts - 1, 10), self._longest_backoff)
        queue.retry_at = max(queue.retry_at, now + (0.0 if at_once else pause))
        return None

    def _give_up(self, queue: PartitionQueue, batch: Batch, error: Exception) -> None:
        if batch.base_sequence >= 0 and self._is_idempotent:
            if ends_identity(getattr(error, "code", None)):
                self._identity.give_up(queue.epoch)
            else:
                self._identity.raise_epoch(queue.epoch)
        self.statistics.failed_records += batch.count
        self._settle(queue, batch, -1, -1, error)
        if self.transactions is not None:
            self.transactions.doom(error)

    def _acknowledge(self, queue: PartitionQueue, batch: Batch, base_offset: int, timestamp: int) -> None:
        queue.known_as = queue.epoch[0]
        self.statistics.acknowledged(batch)
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
        self._forget_idle()
        try:
            await self.cluster.refresh(set(self.accumulator.topics))
        except (OSError, KafkaError) as error:
            self.cluster.note_failure(error)
        finally:
            await asyncio.sleep(self._backoff)
            self._refreshing = False
            self._event.set()

    def _forget_idle(self) -> None:
        """Forget topics that are not written to any more, but not in the middle of a transaction."""
        if self.transactions is not None and self.transactions.state is not State.READY:
            return
        queues = self.accumulator.forget_idle(self._loop.time() - IDLE_S)
        self.cluster.metadata.forget({queue.topic for queue in queues})
        for queue in queues:
            if queue.epoch[0] >= 0:  # or sequences that begin anew would be taken for the former ones
                self._identity.raise_epoch(queue.epoch)

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
                if not batch.done:
                    await done_future(batch.when_done)
        finally:
            with self.accumulator.lock:
                self.accumulator.is_flushing -= 1

    async def close(self, timeout: float | None) -> None:
        """Send what is there for at most `timeout` s, then give up the rest."""
        self.accumulator.close("the producer is closed")
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
            self.accumulator.abandon(self.accumulator.refusal())
            if self._threads is not None:
                self._threads.shutdown(wait=False, cancel_futures=True)


def started_threads(count: int) -> ThreadPoolExecutor:
    """Return an executor all of whose threads run; RuntimeError where no thread can be had.

    That is so when the interpreter ends: Python 3.12 starts none then. An executor whose threads run takes work.
    """
    threads = ThreadPoolExecutor(count, thread_name_prefix="kbroker-compress")
    all_there = threading.Barrier(count)
    try:
        for _ in range(count):
            threads.submit(all_there.wait)  # waits for the others, so that each needs a thread of its own
    except RuntimeError:
        all_there.abort()
        threads.shutdown(wait=False, cancel_futures=True)
        raise
    return threads
