"""Appending to the partitions this broker leads, and knowing when an append counts.

    acks=0, 1   counts once it is in the log (and flushed, where flush.messages asks for it: as in Kafka)
    acks=-1     counts once the high watermark has passed it; with one replica that is at once

A log that must be flushed before the acknowledgement moves its high watermark after the flush too, so that nobody
reads what a power cut could take back. Batches that have to be recompressed or unpacked are appended in a worker
thread; later appends to the same partition wait their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from kbroker.cluster.metadata_cache import MetadataCache
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.replica.delayed import DelayedProduce
from kbroker.replica.flusher import Flusher
from kbroker.replica.hosted import FLUSH_NEVER, HostedPartition
from kbroker.replica.partition import Role
from kbroker.segment.log import AppendOrigin, AppendResult

ALL_IN_SYNC = -1
CLIENT = AppendOrigin.CLIENT
ATTRIBUTES_POSITION = 22
"""Low byte of a batch's attributes; its lowest three bits are the compression."""
SMALL_BATCH_BYTES = 4096
"""Compressing less is quicker than a change of threads."""
SMALLEST_BOMB_BYTES = 512
"""What is compressed may unpack to 40,000 times its size: more than this is not unpacked on the loop."""

Outcome = AppendResult | KafkaError
OnAppended = Callable[[Outcome], None]


class Appender:
    """The appends of all partitions of the broker."""

    def __init__(
        self,
        metadata: MetadataCache,
        find: Callable[[str, int], HostedPartition | ErrorCode],
        executor: Executor | None,
        clock: Callable[[], int],
    ) -> None:
        self._metadata = metadata
        self._find = find
        self._executor = executor
        self._clock = clock
        self.flusher = Flusher(executor, self._flushed, self._flush_failed)

    def append(
        self,
        topic: str,
        partition: int,
        records: Any,
        acks: int,
        now_ms: int,
        request_version: int,
        batch: ProduceBatch,
    ) -> Outcome | None:
        """Append one batch for a producer; None when that goes on in a worker thread and `batch` gets the outcome.

        What cannot be acknowledged yet is noted in `batch`.
        """
        found = self._find(topic, partition)
        if not isinstance(found, HostedPartition):
            return KafkaError(found)
        state = found.state
        if state.role is not Role.LEADER:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks == ALL_IN_SYNC and len(state.isr) < state.min_insync_replicas and not state.has_enough_in_sync:
            message = f"{len(state.isr)} replicas are in sync, min.insync.replicas asks for {state.effective_min_isr}"
            return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, message)
        if found.tail is not None or (found.rewrites_batches and is_slow(found, records)):
            place = batch.place
            delayed = batch.delayed()
            delayed.expect(place)
            batch.is_appended = False
            self._append_later(
                found, records, now_ms, request_version, lambda outcome: batch.finish(place, found, outcome, self)
            )
            return None
        try:
            result = found.log.append_as_leader(records, state.leader_epoch, now_ms, CLIENT, request_version)
        except KafkaError as error:
            return error.with_traceback(None)  # its frames hold the request, and are held by what waits for it
        self.count(found, result, now_ms)
        if acks == ALL_IN_SYNC:
            if state.high_watermark <= result.last_offset:
                batch.delayed().wait_for(batch.place, found.acks, result.last_offset + 1)
        elif acks and found.flush_messages != FLUSH_NEVER and must_wait_for_flush(found, result):
            batch.delayed().wait_for(batch.place, found.flush_acks, result.last_offset + 1)
        return result

    def count(self, hosted: HostedPartition, result: AppendResult, now_ms: int) -> None:
        """Let an append count: at once, or after the flush that its log needs."""
        if hosted.followers:
            hosted.appended()
        if hosted.flush_messages != FLUSH_NEVER and hosted.needs_flush():
            self.flusher.add(hosted)
        elif not result.duplicate:
            hosted.log_grew(result.last_offset + 1, now_ms, self._metadata.brokers)

    def _append_later(
        self, hosted: HostedPartition, records: Any, now_ms: int, request_version: int, done: OnAppended
    ) -> None:
        before = hosted.tail
        task = asyncio.ensure_future(self._append_in_thread(hosted, records, now_ms, request_version, before))
        hosted.tail = task

        def finish(finished: asyncio.Future[Outcome]) -> None:
            if hosted.tail is finished:
                hosted.tail = None
            cancelled = finished.cancelled()
            done(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER) if cancelled else finished.result())

        task.add_done_callback(finish)

    async def _append_in_thread(
        self,
        hosted: HostedPartition,
        records: Any,
        now_ms: int,
        request_version: int,
        before: asyncio.Future[Any] | None,
    ) -> Outcome:
        if before is not None:
            await asyncio.wait([before])
        if hosted.state.role is not Role.LEADER:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        epoch = hosted.state.leader_epoch
        loop = asyncio.get_running_loop()
        try:
            result: AppendResult = await loop.run_in_executor(
                self._executor,
                hosted.log.append_as_leader,
                records,
                epoch,
                now_ms,
                AppendOrigin.CLIENT,
                request_version,
            )
        except KafkaError as error:
            return error.with_traceback(None)  # its frames hold the request, and are held by what waits for it
        self.count(hosted, result, now_ms)
        return result

    def _flushed(self, hosted: HostedPartition, log_end_offset: int) -> None:
        if hosted.state.role is Role.LEADER:
            hosted.log_grew(min(log_end_offset, hosted.log.log_end_offset), self._clock(), self._metadata.brokers)
        hosted.settle_flushed(log_end_offset)

    def _flush_failed(self, hosted: HostedPartition, error: KafkaError) -> None:
        hosted.fail_acks(error.code)


class ProduceBatch:
    """What of one Produce request is not settled when the handler returns."""

    __slots__ = ("_acks", "_answer", "_delayed", "_timeout_ms", "is_appended", "late", "place")

    def __init__(self, acks: int, timeout_ms: int, answer: Callable[[dict[int, Outcome]], Any]) -> None:
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._answer = answer
        self._delayed: DelayedProduce | None = None
        self.is_appended = True
        """False when an append goes on in a worker thread."""
        self.place = 0
        """Number of the partition, in the request, that is being appended."""
        self.late: dict[int, Outcome] = {}
        """Outcomes that were not known when the handler returned, by place."""

    @property
    def future(self) -> asyncio.Future[Any] | None:
        """What to wait for; None when everything is settled."""
        return None if self._delayed is None else self._delayed.future

    def delayed(self) -> DelayedProduce:
        """The waiting part, made when first needed."""
        if self._delayed is None:
            self._delayed = DelayedProduce(self._timeout_ms, self._finish)
        return self._delayed

    def finish(self, place: int, hosted: HostedPartition, outcome: Outcome, appender: Appender) -> None:
        """An append in a worker thread has ended: it is settled, or waits like any other."""
        self.late[place] = outcome
        delayed = self.delayed()
        if isinstance(outcome, KafkaError):
            delayed.settle(place, outcome.code)
        elif self._acks == ALL_IN_SYNC and hosted.state.high_watermark <= outcome.last_offset:
            delayed.wait_for(place, hosted.acks, outcome.last_offset + 1)
        elif self._acks and must_wait_for_flush(hosted, outcome):
            delayed.wait_for(place, hosted.flush_acks, outcome.last_offset + 1)
        else:
            delayed.settle(place, ErrorCode.NONE)

    def _finish(self, errors: dict[int, ErrorCode]) -> Any:
        for place, error in errors.items():
            known = self.late.get(place)
            if not isinstance(known, KafkaError):
                self.late[place] = KafkaError(error)
        return self._answer(self.late)


def must_wait_for_flush(hosted: HostedPartition, result: AppendResult) -> bool:
    """Whether what was appended is not on disk and has to be before it is acknowledged."""
    return hosted.log.recovery_point <= result.last_offset and hosted.needs_flush()


def is_slow(hosted: HostedPartition, records: Any) -> bool:
    """Whether appending the batch means unpacking or compressing it (never, unless `rewrites_batches`)."""
    config = hosted.log.config
    size = len(records)
    if size <= SMALLEST_BOMB_BYTES:
        return False
    compression = records[ATTRIBUTES_POSITION] & 7
    if size <= SMALL_BATCH_BYTES and not compression:
        return False
    if config.compression is not None and config.compression != compression:
        return True
    return bool(compression) and config.checks_records
