"""The life of one follower's connection to one leader: ask, append what comes, ask again.

Small answers are appended on the loop, which is quicker than a change of threads; large ones, truncations and what must
be flushed go to a worker thread, and the loop goes on serving. While a worker has a partition in hand nobody else
changes its log: `release` waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kbroker.client.connection import Connection
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.offsets import EARLIEST, LATEST, ListOffsetsRequest, ListOffsetsResponse
from kbroker.replica.fetcher import Answered, FetchedPartition, Fetcher, FetchLimits
from kbroker.replica.follower_log import cut_damaged, cut_to_leaders, follow, lacks_nothing, settle
from kbroker.replica.hosted import FLUSH_NEVER, HostedPartition
from kbroker.replica.inter_broker_versions import follower_versions

if TYPE_CHECKING:
    from kbroker.config.broker_config import BrokerConfig
    from kbroker.protocol.schema import Message
    from kbroker.replica.replica_manager import ReplicaManager

log = logging.getLogger(__name__)

LARGE_ANSWER_BYTES = 256 << 10
FIRST_PAUSE_S = 0.05
TOLD_EVERY_S = 10.0
"""So often it is told that a leader does not answer, as long as it does not."""
LONGEST_ANSWER_S = 30.0
"""To a leader whose answers come after replica.socket.timeout.ms at most so long is given: twice the time after each
that came too late. Otherwise they would be thrown away for ever, and asked for again from the same offset.
"""
IDLE_CONNECTION_S = 30.0
INTERRUPT_AFTER_S = 0.03
INTERRUPT_EVERY_S = 0.05
"""A partition that is to be fetched does not wait until the leader has answered for the others, who may be idle: the
request is given up and made anew, unless the leader lets it go itself as ours do. Not more often than this."""
FRAME_OVERHEAD_BYTES = 16 << 20
SESSION_ERRORS = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})
QUIET_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""What a leader answers while the controller's word is on its way."""

Failure = Exception | None


RECEIVE_BUFFER_KEY = "replica.socket.receive.buffer.bytes"


class FetcherLoop:
    """Fetches partitions from one leader until it is closed; idle without partitions."""

    def __init__(self, manager: ReplicaManager, leader: int, number: int) -> None:
        config = manager.config
        self._manager = manager
        self.leader = leader
        """Broker id."""
        self._client_id = f"broker-{manager.broker_id}-fetcher-{number}"
        self._versions = follower_versions(config.inter_broker_protocol_version)
        self._fetcher = Fetcher(manager.broker_id, fetch_limits(config), self._versions.fetch)
        self._timeout_s = self._patience_s = config.replica_socket_timeout_ms / 1000
        self._setup = manager.connections.of_peer()
        self._longest_pause_s = config.replica_fetch_backoff_ms / 1000
        self._pause_s = 0.0
        self._added: dict[FetchedPartition, None] = {}
        """Those of which the leader has not been told anything."""
        self._told_at = 0.0
        """When it was last told that the leader does not answer."""
        self._connection: Connection | None = None
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._sent_at: float | None = None
        """When the request that is under way was sent."""
        self._interrupt_timer: asyncio.TimerHandle | None = None
        self._interrupted = False
        self._interrupted_at = 0.0
        self._interrupt_every_s = INTERRUPT_EVERY_S
        """Doubled with each request that is interrupted, until one is answered: partitions that keep coming must not
        end every request before its answer where answers take their time.
        """
        self._in_work: dict[HostedPartition, asyncio.Future[Any]] = {}
        """What worker threads have in hand, with what ends when the thread of its disk is done."""
        self._work: asyncio.Future[Any] | None = None
        self._task = self._loop.create_task(self._run(), name=self._client_id)

    # --- partitions -------------------------------------------------------------------------------------------

    def add(self, fetched: FetchedPartition) -> None:
        """Fetch this partition, beginning soon."""
        self._fetcher.add(fetched)
        self._added[fetched] = None
        self._wake.set()
        if self._sent_at is not None and self._interrupt_timer is None:
            since_last = self._loop.time() - self._interrupted_at
            delay = max(INTERRUPT_AFTER_S, self._interrupt_every_s - since_last)
            self._interrupt_timer = self._loop.call_later(delay, self._interrupt, self._sent_at)

    def _interrupt(self, sent_at: float) -> None:
        self._interrupt_timer = None
        if self._sent_at == sent_at and self._connection is not None:
            self._interrupted = True
            self._interrupt_every_s *= 2
            self._interrupted_at = self._loop.time()
            self._connection.abort()

    def remove(self, fetched: FetchedPartition) -> None:
        """Fetch this partition no more."""
        self._added.pop(fetched, None)
        if self._fetcher.is_current(fetched):
            self._fetcher.remove(fetched.key)

    def work_on(self, hosted: HostedPartition) -> asyncio.Future[Any] | None:
        """Return what to wait for before anybody else may change this log; None when it is free."""
        return self._in_work.get(hosted)

    def is_fetched(self, fetched: FetchedPartition) -> bool:
        """Whether it has not been given up after an error."""
        return self._fetcher.is_current(fetched)

    @property
    def partition_count(self) -> int:
        """How many partitions are fetched."""
        return len(self._fetcher.partitions)

    async def close(self) -> None:
        """End it, after what a worker thread has in hand."""
        if self._interrupt_timer is not None:
            self._interrupt_timer.cancel()
        if self._work is not None:
            await asyncio.wait([self._work])
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._disconnect()

    # --- rounds -----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                if not await self._round():
                    await self._wait_for_work()
                self._pause_s = 0.0
            except (OSError, KafkaError) as error:
                await self._recover(error)
            except Exception:
                log.exception("fetching from broker %d failed", self.leader)
                await self._recover(None)

    async def _recover(self, error: Exception | None) -> None:
        if isinstance(error, KafkaError) and error.code in SESSION_ERRORS:
            log.info("broker %d does not know our fetch session any more: %s", self.leader, error)
            return
        interrupted, self._interrupted = self._interrupted, False
        self._fetcher.session_lost()
        await self._disconnect()
        if interrupted:
            return
        if error is not None:
            self._tell(error)
        self._pause_s = min(max(self._pause_s * 2, FIRST_PAUSE_S), self._longest_pause_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pause_s):
                await self._wake.wait()

    def _tell(self, error: Exception) -> None:
        """The first failure may only be that the leader has gone; one that lasts is a warning, again and again."""
        is_first, now = not self._pause_s, self._loop.time()
        if is_first or now - self._told_at >= TOLD_EVERY_S:
            text = "cannot fetch %d partition(s) from broker %d: %s"
            log.log(logging.INFO if is_first else logging.WARNING, text, self.partition_count, self.leader, error)
            self._told_at = now

    async def _wait_for_work(self) -> None:
        """Wait for a partition, or until a pause is over; a connection that nobody needs is closed."""
        due_ms = self._fetcher.next_due_ms()
        delay = IDLE_CONNECTION_S if due_ms is None else max(due_ms - self._manager.steady(), 0) / 1000
        try:
            async with asyncio.timeout(delay):
                await self._wake.wait()
        except TimeoutError:
            if due_ms is None:
                await self._disconnect()
                self._fetcher.session_lost()
                await self._wake.wait()

    async def _round(self) -> bool:
        """Ask the leader once and use its answer; False when there is nothing to ask for."""
        manager = self._manager
        now_ms = manager.steady()
        self._hold_back_throttled(now_ms)
        if self._fetcher.is_idle:
            return False
        connection = self._connection or await self._connect()
        await self._flush_what_counts()
        # Made only now, so that it names what has come while the connection was made.
        request = self._fetcher.request(now_ms, manager.broker_epoch())
        if request is None:
            return False
        self._sent_at = self._loop.time()
        try:
            response = await self._ask(connection, request, self._versions.fetch)
        finally:
            self._sent_at = None
        self._interrupt_every_s = INTERRUPT_EVERY_S
        await self._use(self._fetcher.answered(response))
        return True

    async def _flush_what_counts(self) -> None:
        """Where flushing is set on: what was appended while this broker led is on disk before the next leader knows."""
        while self._added:  # others may come meanwhile
            for fetched in list(self._added):
                await self._flush_first(fetched)
                self._added.pop(fetched, None)

    async def _flush_first(self, fetched: FetchedPartition) -> None:
        hosted = fetched.hosted
        if self._fetcher.is_current(fetched) and hosted.needs_flush():
            try:
                await self._in_thread(hosted, hosted.log.flush)
            except KafkaError as error:
                if self._fetcher.is_current(fetched):
                    await self._failed(fetched, error)

    async def _ask(self, connection: Connection, request: Message, version: int) -> Any:
        """Return the leader's answer; one that comes too late has twice the time next, until some come in time."""
        asked_at = self._loop.time()
        try:
            answer = await connection.request(request, version, timeout=self._patience_s)
        except TimeoutError:
            self._patience_s = max(min(2 * self._patience_s, LONGEST_ANSWER_S), self._timeout_s)
            raise
        if self._loop.time() - asked_at < self._timeout_s:
            self._patience_s = self._timeout_s
        return answer

    def _hold_back_throttled(self, now_ms: int) -> None:
        throttle = self._manager.follower_throttle
        for fetched in self._fetcher.changed(now_ms):
            if (
                not fetched.is_caught_up
                and throttle.is_throttled(fetched.hosted.topic, fetched.partition)
                and throttle.is_exceeded(now_ms)
            ):
                self._fetcher.hold_back(fetched, now_ms + throttle.pause_ms(now_ms))

    async def _connect(self) -> Connection:
        """Connect to where the leader is now."""
        config = self._manager.config
        address = self._manager.metadata.endpoint(self.leader, config.inter_broker_listener)
        if address is None:
            raise ConnectionError(f"broker {self.leader} is not known to be alive")
        largest = config.replica_fetch_response_max_bytes + config.socket_request_max_bytes + FRAME_OVERHEAD_BYTES
        self._connection = await self._setup.connect(address, client_id=self._client_id, max_frame=largest)
        if RECEIVE_BUFFER_KEY in config.properties:  # the system's own choice grows, and is faster
            self._connection.set_receive_buffer(config.replica_socket_receive_buffer_bytes)
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    # --- answers ----------------------------------------------------------------------------------------------

    async def _use(self, answered: Sequence[Answered]) -> None:
        good = []
        refused = []
        size = 0
        in_thread = False
        for each in answered:
            data = each.data
            if data.error_code is not ErrorCode.NONE:
                refused.append(each)
                continue
            good.append(each)
            if data.records:
                size += len(data.records)
                hosted = each.fetched.hosted
                in_thread = in_thread or hosted.flush_messages != FLUSH_NEVER or hosted.is_slow or bool(hosted.tail)
            elif data.diverging_epoch.epoch >= 0:
                in_thread = True
        self._manager.totals.replicated_in += size
        if in_thread or size > LARGE_ANSWER_BYTES:
            good.sort(key=_log_dir)
            failures = await self._follow_in_threads(good)
        else:
            failures = _follow_all(good, self._now())
        for each, failure in zip(good, failures, strict=True):
            await self._followed(each, failure)
        for fetched, data in refused:
            if self._fetcher.is_current(fetched):
                await self._refused(fetched, data.error_code)

    def _now(self) -> int:
        return self._manager.clock()

    async def _follow_in_threads(self, answered: Sequence[Answered]) -> list[Failure]:
        """Append what has come, each disk's in a thread of its own; the answers are in the order of their disks."""
        jobs = []
        in_work: dict[HostedPartition, asyncio.Future[Any]] = {}
        for log_dir, group in groupby(answered, _log_dir):
            pool, these = self._manager.workers.following(log_dir), list(group)
            job = self._loop.run_in_executor(pool, _follow_all, these, self._now())
            jobs.append(job)
            in_work.update((each.fetched.hosted, job) for each in these)
        failures = await self._work_with(in_work, asyncio.gather(*jobs))
        return [failure for of_disk in failures for failure in of_disk]

    async def _in_thread(self, hosted: HostedPartition, function: Any, *arguments: Any) -> Any:
        """Run a function that changes this log in a worker thread."""
        pool = self._manager.workers.following(hosted.log.log_dir)
        job = self._loop.run_in_executor(pool, function, *arguments)
        return await self._work_with({hosted: job}, job)

    async def _work_with(self, in_work: dict[HostedPartition, asyncio.Future[Any]], work: asyncio.Future[Any]) -> Any:
        """Wait for work that changes these logs; it goes on if whoever waits is cancelled."""
        self._in_work, self._work = in_work, work
        try:
            return await asyncio.shield(work)
        finally:
            self._in_work, self._work = {}, None

    async def _followed(self, answered: Answered, failure: Failure) -> None:
        """The log has been changed, or could not be."""
        fetched, data = answered
        if not self._fetcher.is_current(fetched):
            return
        if failure is not None:
            await self._failed(fetched, failure)
            return
        hosted = fetched.hosted
        partition_log = hosted.log
        size = len(data.records) if data.records else 0
        if size and self._manager.follower_throttle.is_throttled(hosted.topic, hosted.partition):
            self._manager.follower_throttle.record(size, self._manager.steady())
        if data.diverging_epoch.epoch >= 0:
            settle(hosted, partition_log.high_watermark, partition_log.log_start_offset)
        else:
            settle(hosted, data.high_watermark, data.log_start_offset)
            fetched.is_caught_up = data.high_watermark <= partition_log.log_end_offset
            fetched.leader_high_watermark = data.high_watermark
            if partition_log.promised_offset and data.high_watermark == partition_log.log_end_offset:
                self._reached_end(fetched)
        self._go_on(fetched)

    def _reached_end(self, fetched: FetchedPartition) -> None:
        """A short log reaches the leader's high watermark: it lacks nothing, if that is of the leader's own term.

        Before there is one, the high watermark may be behind what is committed, and an answer without records says
        nothing: another partition took its room, or what comes next is not in memory.
        """
        partition_log = fetched.hosted.log
        if partition_log.latest_epoch == fetched.leader_epoch:
            with suppress(KafkaError):  # its directory has just failed
                lacks_nothing(partition_log)

    def _go_on(self, fetched: FetchedPartition) -> None:
        partition_log = fetched.hosted.log
        self._fetcher.moved(
            fetched, partition_log.log_end_offset, partition_log.latest_epoch, partition_log.log_start_offset
        )

    async def _failed(self, fetched: FetchedPartition, failure: Exception) -> None:
        """Corrupt records may come whole the next time; a log that fails is left alone until the controller's word."""
        if not isinstance(failure, KafkaError) or failure.code is ErrorCode.KAFKA_STORAGE_ERROR:
            log.error("%s is not fetched any more: %s", fetched, failure, exc_info=failure)
            self._fetcher.remove(fetched.key)
            return
        log.error("%s: what broker %d sent cannot be appended: %s", fetched, self.leader, failure)
        await self._cut_to_what_was_fetched(fetched)
        if self._fetcher.is_current(fetched):
            self._fetcher.back_off(fetched, self._manager.steady())

    async def _cut_to_what_was_fetched(self, fetched: FetchedPartition) -> None:
        """Whatever lies beyond what was asked for is not known to be the leader's."""
        partition_log = fetched.hosted.log
        if partition_log.log_end_offset > fetched.fetch_offset:
            text = "%s: the log ends at %d, but was fetched up to %d only: cutting it there"
            log.warning(text, fetched, partition_log.log_end_offset, fetched.fetch_offset)
            await self._in_thread(fetched.hosted, partition_log.truncate_to, fetched.fetch_offset, self._now())
            if not self._fetcher.is_current(fetched):
                return
        settle(fetched.hosted, partition_log.high_watermark, partition_log.log_start_offset)
        fetched.stands_at(partition_log.log_end_offset, partition_log.latest_epoch, partition_log.log_start_offset)

    # --- refusals ---------------------------------------------------------------------------------------------

    async def _refused(self, fetched: FetchedPartition, error: ErrorCode) -> None:
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            try:
                await self._find_place(fetched)
                return
            except KafkaError as refusal:
                error = refusal.code
        if not self._fetcher.is_current(fetched):
            return
        level = logging.DEBUG if error in QUIET_ERRORS else logging.WARNING
        log.log(level, "%s: broker %d answers %s", fetched, self.leader, error.name)
        self._fetcher.back_off(fetched, self._manager.steady())

    async def _find_place(self, fetched: FetchedPartition) -> None:
        """The leader has no record where our log ends: cut to its end, or begin anew where its log begins.

        Or it knows nothing of the epoch in which our log ends: one after its own there cannot have been, and what says
        so is damaged, where no checksum reaches. Raises KafkaError with the leader's refusal.
        """
        partition_log = fetched.hosted.log
        leader_end_offset = await self._leader_offset(fetched, LATEST)
        leader_start_offset = await self._leader_offset(fetched, EARLIEST)
        if not self._fetcher.is_current(fetched):
            return
        end_offset, now = partition_log.log_end_offset, self._now()
        if leader_end_offset < end_offset:
            text = "%s: the log ends at %d and that of its leader, broker %d, at %d: cutting it there"
            log.warning(text, fetched, end_offset, self.leader, leader_end_offset)
            cut = leader_end_offset, leader_start_offset, now
            await self._in_thread(fetched.hosted, cut_to_leaders, partition_log, *cut)
        elif leader_start_offset > end_offset:
            text = "%s: the log ends at %d and that of its leader, broker %d, begins at %d: starting anew there"
            log.warning(text, fetched, end_offset, self.leader, leader_start_offset)
            await self._in_thread(fetched.hosted, partition_log.truncate_fully_and_start_at, leader_start_offset)
        elif (begun := partition_log.leader_epochs.first_offset_after(fetched.leader_epoch)) is not None:
            if begun < partition_log.high_watermark and self._may_be_in_isr(fetched):
                self._wait_to_cut(fetched, begun)
                return
            text = "%s: epoch %d of the log begins at %d, and its leader, broker %d, has epoch %d: cutting it there"
            log.warning(text, fetched, partition_log.latest_epoch, begun, self.leader, fetched.leader_epoch)
            await self._in_thread(fetched.hosted, cut_damaged, partition_log, begun, now)
        if self._fetcher.is_current(fetched):
            settle(fetched.hosted, partition_log.high_watermark, partition_log.log_start_offset)
            self._go_on(fetched)

    def _may_be_in_isr(self, fetched: FetchedPartition) -> bool:
        """Whether this broker may be elected for what it has: by what was heard since the leader was."""
        known = self._manager.metadata.partition(fetched.hosted.topic, fetched.partition)
        if known is None or known.leader_epoch < fetched.leader_epoch:
            return True
        return self._manager.broker_id in known.isr

    def _wait_to_cut(self, fetched: FetchedPartition, offset: int) -> None:
        """Committed records are to go: not before the leader has left out of the ISR who does not fetch any more."""
        if not fetched.is_told:
            fetched.is_told = True
            text = "%s: what is committed is to be cut from %d on, once this broker is in the ISR no more"
            log.warning(text, fetched, offset)
        self._fetcher.back_off(fetched, self._manager.steady())

    async def _leader_offset(self, fetched: FetchedPartition, which: int) -> int:
        wanted = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=fetched.partition, current_leader_epoch=fetched.leader_epoch, timestamp=which
        )
        topic = ListOffsetsRequest.ListOffsetsTopic(name=fetched.hosted.topic, partitions=[wanted])
        request = ListOffsetsRequest(replica_id=self._manager.broker_id, topics=[topic])
        connection = self._connection or await self._connect()
        answer: ListOffsetsResponse = await self._ask(connection, request, self._versions.list_offsets)
        found = answer.topics[0].partitions[0]
        if found.error_code is not ErrorCode.NONE:
            raise KafkaError(found.error_code)
        return found.offset


def _log_dir(answered: Answered) -> str:
    return answered.fetched.hosted.log.log_dir


def _follow_all(answered: Sequence[Answered], now_ms: int) -> list[Failure]:
    failures: list[Failure] = []
    for fetched, data in answered:
        try:
            follow(fetched.hosted, data, now_ms)
        except Exception as error:
            failures.append(error)
        else:
            failures.append(None)
    return failures


def fetch_limits(config: BrokerConfig) -> FetchLimits:
    """Return the broker's keys for followers."""
    return FetchLimits(
        config.replica_fetch_wait_max_ms,
        config.replica_fetch_min_bytes,
        config.replica_fetch_response_max_bytes,
        config.replica_fetch_max_bytes,
        config.replica_fetch_backoff_ms,
    )
