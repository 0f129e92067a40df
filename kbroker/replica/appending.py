"""Appending to the partitions this broker leads, and knowing when an append counts.

    acks=0, 1   counts once it is in the log (and flushed, where flush.messages asks for it: as in Kafka)
    acks=-1     counts once the high watermark has passed it; with one replica that is at once

A log that must be flushed before the acknowledgement moves its high watermark after the flush too, so that nobody
reads what a power cut could take back.

The way of a batch:

    may it be appended?  ->  checked, brought into the topic's form  ->  written, offsets given  ->  counts
    on the loop              on the loop; where that takes long          on the loop                 settled by
                             (recompression) in a worker thread                                      DelayedAnswer

A worker only prepares: the log is written on the loop, by whoever leads at that moment and in that leader's epoch. A
batch that comes while others of its partition are prepared waits its turn (`HostedPartition.tail`), so order is kept.
Whatever else has to be known before a batch may be written belongs into `_prepare`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from kbroker.cluster.metadata_cache import MetadataCache
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.replica.delayed import DelayedAnswer
from kbroker.replica.flusher import Flusher
from kbroker.replica.hosted import FLUSH_NEVER, HostedPartition
from kbroker.replica.partition import Partition, Role
from kbroker.replica.workers import Workers
from kbroker.segment.log import AppendOrigin, AppendResult
from kbroker.segment.validator import ValidBatch

log = logging.getLogger(__name__)

ALL_IN_SYNC = -1
CLIENT = AppendOrigin.CLIENT
ATTRIBUTES_POSITION = 22
"""Low byte of a batch's attributes; its lowest three bits are the compression."""
SMALL_BATCH_BYTES = 4096
"""Compressing less is quicker than a change of threads."""
SMALLEST_BOMB_BYTES = 512
"""What is compressed may unpack to 40,000 times its size: more than this is not unpacked on the loop."""

Outcome = AppendResult | KafkaError


class Appender:
    """The appends of all partitions of the broker."""

    def __init__(
        self,
        metadata: MetadataCache,
        find: Callable[[str, int], HostedPartition | ErrorCode],
        workers: Workers,
        clock: Callable[[], int],
    ) -> None:
        self._metadata = metadata
        self._find = find
        self._executor = workers.preparing
        self._clock = clock
        self.flusher = Flusher(workers.flushing, self._flushed, self._flush_failed)

    def append(
        self,
        topic: str,
        partition: int,
        records: Any,
        acks: int,
        now_ms: int,
        answer: DelayedAnswer,
        origin: AppendOrigin = CLIENT,
    ) -> None:
        """Append one batch: its outcome is the answer's next result, now or later."""
        hosted = self._find(topic, partition)
        if not isinstance(hosted, HostedPartition):
            answer.results.append(KafkaError(hosted))
            return
        refusal = _refusal(hosted.state, acks)
        if refusal is not None:
            answer.results.append(refusal)
            return
        place = len(answer.results)
        answer.results.append(None)
        if origin is CLIENT and (hosted.tail is not None or is_slow(hosted, records)):
            answer.expect(place)
            later = self._append_later(hosted, records, acks, now_ms, answer, place, hosted.tail)
            hosted.tail = asyncio.ensure_future(later)
            return
        try:
            self._write(hosted, hosted.log.validate(records, now_ms, origin), acks, now_ms, answer, place, origin)
        except KafkaError as error:
            answer.fail(place, error.with_traceback(None))  # its frames hold the request, and are held by what waits

    def append_then(
        self,
        topic: str,
        partition: int,
        batch: bytearray,
        acks: int,
        timeout_ms: int,
        origin: AppendOrigin,
        done: Callable[[Outcome], None],
    ) -> None:
        """Append for a coordinator; `done` gets the outcome when it counts: at once, or from the event loop."""
        answer = DelayedAnswer(timeout_ms, lambda results: done(results[0]))
        self.append(topic, partition, batch, acks, self._clock(), answer, origin)
        if answer.future is None:
            done(answer.results[0])

    async def append_batch(
        self, topic: str, partition: int, batch: bytearray, timeout_ms: int, origin: AppendOrigin
    ) -> AppendResult:
        """Append for a coordinator with acks=all and wait until it is replicated; raises KafkaError."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(outcome: Outcome) -> None:
            if not future.done():
                future.set_result(outcome)

        self.append_then(topic, partition, batch, ALL_IN_SYNC, timeout_ms, origin, done)
        outcome = await future
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    # --- what takes long --------------------------------------------------------------------------------------

    async def _append_later(
        self,
        hosted: HostedPartition,
        records: Any,
        acks: int,
        now_ms: int,
        answer: DelayedAnswer,
        place: int,
        before: asyncio.Future[Any] | None,
    ) -> None:
        """Append a batch for a producer once it is prepared, and those before it are written."""
        prepared = await self._prepare(hosted, records, now_ms)
        if before is not None:
            await asyncio.wait([before])
        if hosted.tail is asyncio.current_task():
            hosted.tail = None
        refusal = prepared if isinstance(prepared, KafkaError) else _refusal(hosted.state, acks)
        try:
            if refusal is not None:
                raise refusal
            assert isinstance(prepared, tuple)
            self._write(hosted, prepared, acks, now_ms, answer, place, CLIENT)
        except Exception as error:
            answer.fail(place, _as_refusal(hosted, error))

    async def _prepare(self, hosted: HostedPartition, records: Any, now_ms: int) -> ValidBatch | KafkaError:
        """Return the batch as it may be written, or why it may not."""
        try:
            if not is_slow(hosted, records):
                return hosted.log.validate(records, now_ms)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._executor, hosted.log.validate, records, now_ms)
        except Exception as error:
            return _as_refusal(hosted, error)

    # --- the log, and what follows ----------------------------------------------------------------------------

    def _write(
        self,
        hosted: HostedPartition,
        valid: ValidBatch,
        acks: int,
        now_ms: int,
        answer: DelayedAnswer,
        place: int,
        origin: AppendOrigin,
    ) -> None:
        """Write a batch into the log that this broker leads at this moment; note what it has to wait for."""
        result = answer.results[place] = hosted.log.append_valid(valid, hosted.state.leader_epoch, now_ms, origin)
        self._count(hosted, result, now_ms)
        if acks == ALL_IN_SYNC:
            if hosted.state.high_watermark <= result.last_offset:
                answer.wait_for(place, hosted.acks, result.last_offset + 1)
                return
        elif acks and hosted.flush_messages != FLUSH_NEVER and must_wait_for_flush(hosted, result):
            answer.wait_for(place, hosted.flush_acks, result.last_offset + 1)
            return
        if answer.future is not None:
            answer.settle(place)

    def _count(self, hosted: HostedPartition, result: AppendResult, now_ms: int) -> None:
        """Let an append count: at once, or after the flush that its log needs."""
        if hosted.followers:
            hosted.appended()
        if hosted.flush_messages != FLUSH_NEVER and hosted.needs_flush():
            self.flusher.add(hosted)
        elif not result.duplicate:
            hosted.log_grew(result.last_offset + 1, now_ms, self._metadata.brokers)

    def _flushed(self, hosted: HostedPartition) -> None:
        # What was on disk when the flush began may have been cut off since: the log itself knows what is there.
        on_disk = hosted.log.recovery_point
        hosted.log_grew(on_disk, self._clock(), self._metadata.brokers)
        hosted.settle_flushed(on_disk)

    def _flush_failed(self, hosted: HostedPartition, error: KafkaError) -> None:
        hosted.fail_acks(error.code)


def _refusal(state: Partition, acks: int) -> KafkaError | None:
    """Return why no batch may be appended at this moment."""
    if state.role is not Role.LEADER:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if acks == ALL_IN_SYNC and len(state.isr) < state.min_insync_replicas and not state.has_enough_in_sync:
        message = f"{len(state.isr)} replicas are in sync, min.insync.replicas asks for {state.effective_min_isr}"
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, message)
    return None


def _as_refusal(hosted: HostedPartition, error: Exception) -> KafkaError:
    if isinstance(error, KafkaError):
        return error.with_traceback(None)  # its frames hold the request, and are held by what waits for it
    log.error("a batch could not be appended to %s", hosted, exc_info=error)
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)


def must_wait_for_flush(hosted: HostedPartition, result: AppendResult) -> bool:
    """Whether what was appended is not on disk and has to be before it is acknowledged."""
    return hosted.log.recovery_point <= result.last_offset and hosted.needs_flush()


def is_slow(hosted: HostedPartition, records: Any) -> bool:
    """Whether appending the batch means unpacking or compressing so much that the loop must not do it."""
    if not hosted.rewrites_batches:
        return False
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
