"""Appending to the partitions this broker leads, and knowing when an append counts.

    acks=0, 1   counts once it is in the log (and flushed, where flush.messages asks for it: as in Kafka)
    acks=-1     counts once the high watermark has passed it; with one replica that is at once

A log that must be flushed before the acknowledgement moves its high watermark after the flush too, so that nobody
reads what a power cut could take back.

The way of a batch:

    may it be appended?  ->  checked, brought into the topic's form  ->  written, offsets given  ->  counts
    on the loop              on the loop; where that takes long          on the loop; where the      settled by
                             in a worker thread                          disk is slow in a           DelayedAnswer
                                                                         worker thread

Long take recompression, and the check of compressed batches that turn out to be large when they are unpacked: the loop
does that up to `room_on_loop`, and as long as none takes LONG_CHECK_S, a worker up to WORKER_UNPACK_BYTES; what is
larger still takes so much memory and time that it is done one at a time.

A batch that begins a transaction waits first, until its coordinator has said that the partition is part of it
(KIP-890). It takes no turn meanwhile: other producers do not wait with it, and its own sends nothing, for the next
Produce of a connection is read when this one needs its request no more.

The log is written by whoever leads at that moment and in that leader's epoch: where a worker writes, the partition does
not change its role before that is done (`ReplicaManager.quiet`). A batch that comes while others of its partition are
prepared or written by workers waits its turn (`HostedPartition.tail`), so order is kept.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from time import thread_time
from typing import Any, NamedTuple

from kbroker.cluster.metadata_cache import MetadataCache
from kbroker.cluster.transaction_verifier import Transaction
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import ATTRIBUTES_POSITION, COMPRESSION_MASK
from kbroker.protocol.records.compression import MAX_PAYLOAD_SIZE
from kbroker.protocol.records.errors import UnpacksToMore
from kbroker.replica.delayed import DelayedAnswer
from kbroker.replica.flusher import Flusher
from kbroker.replica.hosted import FLUSH_NEVER, HostedPartition
from kbroker.replica.partition import Partition, Role
from kbroker.replica.verification import ProducedTransaction
from kbroker.replica.workers import Workers
from kbroker.segment.log import AppendOrigin, AppendResult
from kbroker.segment.producer_state import NOT_ASKED_FOR, Verification
from kbroker.segment.validator import ValidBatch

log = logging.getLogger(__name__)

ALL_IN_SYNC = -1
CLIENT = AppendOrigin.CLIENT
SEQUENCE = struct.Struct(">i")
SEQUENCE_POSITION = 53
SMALL_BATCH_BYTES = 4096
"""Compressing less is quicker than a change of threads."""
SMALL_COMPRESSED_BYTES = 512
"""The same where it has to be unpacked before."""
LOOP_UNPACK_RATIO = 16
LOOP_UNPACK_BYTES = (0, 128 << 10, 768 << 10, 768 << 10, 256 << 10, 1024, 1024, 1024)
"""By codec (none, gzip, snappy, lz4, zstd, unknown ones): takes about a third of a millisecond."""
USUAL_RATIO = 3
LONG_CHECK_S = 0.002
"""Of a compressed batch on the loop: neither its size nor what it unpacks to tell how long it takes, when it consists
of thousands of empty pieces. Once one has taken so long"""
IN_WORKERS_MS = 1000
"""workers check all that is compressed, for so long."""
WORKER_UNPACK_BYTES = 4 << 20
"""What is compressed may unpack to thousands of times its size."""

Outcome = AppendResult | KafkaError


class _Waiting(NamedTuple):
    """A batch that is not appended at once."""

    hosted: HostedPartition
    records: Any
    acks: int
    now_ms: int
    answer: DelayedAnswer
    place: int
    """In the answer."""
    origin: AppendOrigin
    verified: Verification | None


class Appender:
    """The appends of all partitions of the broker."""

    def __init__(
        self,
        metadata: MetadataCache,
        find: Callable[[str, int], HostedPartition | ErrorCode],
        workers: Workers,
        clock: Callable[[], int],
        steady: Callable[[], int],
    ) -> None:
        self._metadata = metadata
        self._find = find
        self._workers = workers
        self._clock = clock
        self._steady = steady
        self._unpacking_much = asyncio.Lock()
        self._in_workers_until_ms = 0
        self.is_leadership_unproven: Callable[[], bool] = lambda: False
        """Asked again where an append has waited: whoever asked before may have stood still since."""
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
        verified: Verification | None = NOT_ASKED_FOR,
        transaction: ProducedTransaction | None = None,
    ) -> None:
        """Append one batch: its outcome is the answer's next result, now or later.

        `transaction`: the one that the batch is part of, to be verified; `verified`: what that has given already.
        """
        hosted = self._find(topic, partition)
        if not isinstance(hosted, HostedPartition):
            answer.results.append(_shared(hosted))
            return
        refusal = _refusal(hosted.state, acks)
        if refusal is not None:
            answer.results.append(_shared(refusal.code, refusal.message))
            return
        place = len(answer.results)
        answer.results.append(None)
        if transaction is None:
            self._append(hosted, records, acks, now_ms, answer, place, origin, verified)
        else:
            self._verify(hosted, records, acks, now_ms, answer, place, transaction)

    def _append(
        self,
        hosted: HostedPartition,
        records: Any,
        acks: int,
        now_ms: int,
        answer: DelayedAnswer,
        place: int,
        origin: AppendOrigin,
        verified: Verification | None,
    ) -> None:
        room = self._room(hosted, records) if origin is CLIENT else MAX_PAYLOAD_SIZE
        if room and hosted.tail is None and not (hosted.log.disk.pool.pace.signs and hosted.is_slow):
            try:
                valid = self._validate(hosted, records, now_ms, origin, room)
                result = hosted.log.append_valid(valid, hosted.state.leader_epoch, now_ms, origin, verified)
                self._written(hosted, result, acks, answer, place)
                return
            except UnpacksToMore:
                room = 0
            except KafkaError as error:
                answer.fail(place, error.with_traceback(None))  # its frames hold the request, and are held by it
                return
        answer.expect(place)
        waiting = _Waiting(hosted, records, acks, now_ms, answer, place, origin, verified)
        hosted.tail = asyncio.ensure_future(self._append_later(waiting, room, hosted.tail))

    def _room(self, hosted: HostedPartition, records: Any) -> int:
        """How many bytes a client's batch may unpack to for the loop to check it, as things are."""
        room = room_on_loop(hosted, records)
        is_compressed = 0 < room < MAX_PAYLOAD_SIZE
        if is_compressed and len(records) > SMALL_COMPRESSED_BYTES and self._steady() < self._in_workers_until_ms:
            return 0
        return room

    def _validate(
        self, hosted: HostedPartition, records: Any, now_ms: int, origin: AppendOrigin, room: int
    ) -> ValidBatch:
        """Check a batch on the loop; UnpacksToMore where it has no room for that."""
        if room >= MAX_PAYLOAD_SIZE:
            return hosted.log.validate(records, now_ms, origin, room)
        began = thread_time()
        try:
            return hosted.log.validate(records, now_ms, origin, room)
        finally:
            if thread_time() - began > LONG_CHECK_S:
                self._in_workers_until_ms = self._steady() + IN_WORKERS_MS

    def append_then(
        self,
        topic: str,
        partition: int,
        batch: bytearray,
        acks: int,
        timeout_ms: int,
        origin: AppendOrigin,
        done: Callable[[Outcome], None],
        verified: Verification | None = NOT_ASKED_FOR,
    ) -> None:
        """Append for a coordinator; `done` gets the outcome when it counts: at once, or from the event loop."""
        answer = DelayedAnswer(timeout_ms, lambda results: done(results[0]))
        self.append(topic, partition, batch, acks, self._clock(), answer, origin, verified)
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
            raise KafkaError(outcome.code, outcome.message)
        return outcome

    # --- batches of transactions ------------------------------------------------------------------------------

    def verification(
        self, hosted: HostedPartition, transaction: Transaction, sequence: int, adds: bool
    ) -> Verification | None:
        """Return what the append of a batch has to bring once it is verified; None when that need not be.

        `adds`: its partition is to take part in the transaction by that. Raises KafkaError.
        """
        hosted.log.check_usable()
        state = hosted.log.producers.state  # without the lock: who holds it may wait for the disk
        return state.verify(transaction.producer_id, sequence, transaction.producer_epoch, adds)

    def _verify(
        self,
        hosted: HostedPartition,
        records: Any,
        acks: int,
        now_ms: int,
        answer: DelayedAnswer,
        place: int,
        transaction: ProducedTransaction,
    ) -> None:
        """Append a batch of a transaction when that is open here, or is verified."""
        try:
            sequence = SEQUENCE.unpack_from(records, SEQUENCE_POSITION)[0]
            verified = self.verification(hosted, transaction.transaction, sequence, transaction.adds)
        except KafkaError as error:
            answer.fail(place, error.with_traceback(None))
            return
        if verified is None or (hosted.topic, hosted.partition) in transaction.known:
            self._append(hosted, records, acks, now_ms, answer, place, CLIENT, verified)
            return

        def go_on(refusal: KafkaError | None) -> None:
            if not answer.is_open(place):
                return  # its time is over: the client has been told so, and tries again
            if refusal is None and self._find(hosted.topic, hosted.partition) is not hosted:
                refusal = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            refusal = refusal or self._refusal_by_now(hosted, acks)
            try:
                if refusal is not None:
                    raise refusal
                self._append(hosted, records, acks, now_ms, answer, place, CLIENT, verified)
            except Exception as error:
                answer.fail(place, _as_refusal(hosted, error))

        answer.expect(place)
        transaction.add((hosted.topic, hosted.partition), go_on)

    # --- what takes long --------------------------------------------------------------------------------------

    async def _append_later(self, waiting: _Waiting, room: int, before: asyncio.Future[Any] | None) -> None:
        """Append a batch once it is prepared, and those before it are written."""
        hosted, acks, answer, place = waiting.hosted, waiting.acks, waiting.answer, waiting.place
        prepared = await self._prepare(waiting, room)
        if before is not None:
            await asyncio.wait([before])
        while hosted.changing is not None and hosted.is_slow:
            await asyncio.wait([hosted.changing])
        refusal = prepared if isinstance(prepared, KafkaError) else self._refusal_by_now(hosted, acks)
        try:
            if acks and not answer.is_open(place):
                return  # its time is over: the client has been told so, and sends it again
            if refusal is not None:
                raise refusal
            assert isinstance(prepared, tuple)
            self._written(hosted, await self._write(waiting, prepared), acks, answer, place)
        except Exception as error:
            answer.fail(place, _as_refusal(hosted, error))
        finally:
            if hosted.tail is asyncio.current_task():
                hosted.tail = None

    def _refusal_by_now(self, hosted: HostedPartition, acks: int) -> KafkaError | None:
        """Return why an append that has waited may not be made."""
        if self.is_leadership_unproven():
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker stood still and may lead no more")
        return _refusal(hosted.state, acks)

    async def _prepare(self, waiting: _Waiting, room: int) -> ValidBatch | KafkaError:
        """Return the batch as it may be written, or why it may not."""
        hosted, records, now_ms, origin = waiting.hosted, waiting.records, waiting.now_ms, waiting.origin
        validate = hosted.log.validate
        run = asyncio.get_running_loop().run_in_executor
        try:
            if room and (origin is not CLIENT or self._room(hosted, records)):
                with suppress(UnpacksToMore):
                    return self._validate(hosted, records, now_ms, origin, room)
            with suppress(UnpacksToMore):
                return await run(self._workers.preparing, validate, records, now_ms, origin, WORKER_UNPACK_BYTES)
            async with self._unpacking_much:
                return await run(self._workers.preparing, validate, records, now_ms, origin)
        except Exception as error:
            return _as_refusal(hosted, error)

    # --- the log, and what follows ----------------------------------------------------------------------------

    async def _write(self, waiting: _Waiting, valid: ValidBatch) -> AppendResult:
        """Write a batch into the log that this broker leads at this moment; in a thread, where the disk is slow."""
        hosted = waiting.hosted
        write = partial(
            hosted.log.append_valid, valid, hosted.state.leader_epoch, waiting.now_ms, waiting.origin, waiting.verified
        )
        if hosted.changing is not None or not hosted.is_slow:
            return write()
        appending = self._workers.appending(hosted.log.log_dir)
        try:
            hosted.write = asyncio.get_running_loop().run_in_executor(appending, write)
        except RuntimeError:  # there is no thread to be had: the loop waits for the disk
            return write()
        try:
            result = await hosted.write
        finally:
            hosted.write = None
        if hosted.state.role is not Role.LEADER:  # its directory has failed, by what another log met
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return result

    def _written(
        self, hosted: HostedPartition, result: AppendResult, acks: int, answer: DelayedAnswer, place: int
    ) -> None:
        """Let an append count, or note what it has to wait for."""
        answer.results[place] = result
        self._count(hosted, result)
        if acks == ALL_IN_SYNC:
            if hosted.state.high_watermark <= result.last_offset:
                answer.wait_for(place, hosted.acks, result.last_offset + 1)
                return
        elif acks and hosted.flush_messages != FLUSH_NEVER and must_wait_for_flush(hosted, result):
            answer.wait_for(place, hosted.flush_acks, result.last_offset + 1)
            return
        if answer.future is not None:
            answer.settle(place)

    def _count(self, hosted: HostedPartition, result: AppendResult) -> None:
        """Let an append count: at once, or after the flush that its log needs."""
        if hosted.followers:
            hosted.appended()
        if hosted.flush_messages != FLUSH_NEVER and hosted.needs_flush():
            self.flusher.add(hosted)
        elif not result.duplicate:
            hosted.log_grew(result.last_offset + 1, self._steady(), self._metadata.brokers)

    def _flushed(self, hosted: HostedPartition) -> None:
        # What was on disk when the flush began may have been cut off since: the log itself knows what is there.
        on_disk = hosted.log.disk.flushed_to
        hosted.log_grew(on_disk, self._steady(), self._metadata.brokers)
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


@lru_cache(100)
def _shared(code: ErrorCode, message: str = "") -> KafkaError:
    """Return one for all partitions that are refused alike: markers may name millions that are not here.

    Nobody raises it: it would gather the frames of all who do.
    """
    return KafkaError(code, message)


def _as_refusal(hosted: HostedPartition, error: Exception) -> KafkaError:
    if isinstance(error, KafkaError):
        return error.with_traceback(None)  # its frames hold the request, and are held by what waits for it
    log.error("a batch could not be appended to %s", hosted, exc_info=error)
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)


def must_wait_for_flush(hosted: HostedPartition, result: AppendResult) -> bool:
    """Whether what was appended is not on disk and has to be before it is acknowledged."""
    return hosted.log.disk.flushed_to <= result.last_offset and hosted.needs_flush()


def room_on_loop(hosted: HostedPartition, records: Any) -> int:
    """How many bytes a batch may unpack to for the loop to check it; 0: a worker has to, or will anyhow.

    In proportion to what was sent, so that a request full of small batches that unpack to much costs the loop little.
    """
    size = len(records)
    compression = records[ATTRIBUTES_POSITION] & COMPRESSION_MASK if size > ATTRIBUTES_POSITION else 0
    if (
        hosted.recompresses
        and hosted.log.config.compression != compression
        and size > (SMALL_COMPRESSED_BYTES if compression else SMALL_BATCH_BYTES)
    ):
        return 0
    if not compression:
        return MAX_PAYLOAD_SIZE
    most = LOOP_UNPACK_BYTES[compression]
    return min(size * LOOP_UNPACK_RATIO, most) if size * USUAL_RATIO <= most else 0
