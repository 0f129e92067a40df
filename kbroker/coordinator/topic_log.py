"""Appends to one partition of a coordinator's topic: what one turn of the event loop brings goes in as one batch.

    append(records, done) … append(records, done)  --end of the turn-->  one batch  --acknowledged-->  done … done

Who is waited for need not wait for the end of the turn: with `append_at_once` the first call of a turn is a batch of
its own, and what comes behind it in that turn another.

The records of one call stay together in one batch; when they do not fit what is left of it, a new one begins. Those of
a transaction are a batch of their own, and so are those that may wait longer, or less long, than others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import HEADER_SIZE
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.segment.log import AppendOrigin, AppendResult
from kbroker.segment.producer_state import NOT_ASKED_FOR, Verification

log = logging.getLogger(__name__)

Record = tuple[bytes, bytes | None]
"""Key and value; no value is a tombstone."""
Records = Sequence[Record]

Done = Callable[[ErrorCode, int], None]
"""Called with NONE and the offset of the call's first record when it is acknowledged, else with the error and -1."""

RECORD_OVERHEAD = 30
"""More than a record needs beside its key and value: five varints, attributes, no headers."""


class Replicas(Protocol):
    """What is asked of the replica manager."""

    def append_then(
        self,
        topic: str,
        partition: int,
        batch: bytearray,
        acks: int,
        timeout_ms: int,
        origin: AppendOrigin,
        done: Callable[[AppendResult | KafkaError], None],
        verified: Verification | None = NOT_ASKED_FOR,
    ) -> None:
        """Append a batch and call `done` when it counts, or has failed."""

    def max_batch_bytes(self, topic: str, partition: int) -> int:
        """Size of the largest batch the partition takes."""


class TopicLog:
    """One partition's way into the log."""

    def __init__(
        self,
        replicas: Replicas,
        topic: str,
        partition: int,
        clock: Callable[[], int],
        acks: int,
        timeout_ms: int,
        compression: int,
    ) -> None:
        """`clock` gives the records' timestamps, `timeout_ms` is how long an append waits that does not say it."""
        self._replicas = replicas
        self._topic = topic
        self._partition = partition
        self._clock = clock
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._compression = compression
        self._waiting: dict[int, list[tuple[Records, Done]]] = {}
        """By how long they may wait, in ms."""
        self._is_flush_due = False

    def append(self, records: Records, done: Done, timeout_ms: int | None = None) -> None:
        """Append the records at the end of this turn, in order with those that may wait as long to be replicated."""
        self._waiting.setdefault(self._timeout_ms if timeout_ms is None else timeout_ms, []).append((records, done))
        self._flush_after_turn()

    def append_at_once(self, records: Records, done: Done, timeout_ms: int) -> None:
        """Append the records now, or at the end of this turn if it has brought others; `done` may be called in here."""
        if self._is_flush_due:
            self.append(records, done, timeout_ms)
        else:
            self._flush_after_turn()  # before those who replicate hear of this one: they get the rest of the turn, too
            self._append_batch([(records, done)], timeout_ms)

    def _flush_after_turn(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self.flush)

    def append_in_transaction(
        self, records: Records, producer: tuple[int, int], verified: Verification | None, done: Done
    ) -> None:
        """Append the records at once, behind those that came before, as a batch of a transaction.

        `producer`: its id and epoch; `verified`: what the replica manager's `verify` gave for it.
        """
        self.flush()
        self._append_batch([(records, done)], self._timeout_ms, producer, verified)

    def flush(self) -> None:
        """Append what was brought."""
        self._is_flush_due = False
        waiting, self._waiting = self._waiting, {}
        for timeout_ms, calls in waiting.items():
            self._append_batches(calls, timeout_ms)

    def _append_batches(self, calls: list[tuple[Records, Done]], timeout_ms: int) -> None:
        limit = self._replicas.max_batch_bytes(self._topic, self._partition)
        batch: list[tuple[Records, Done]] = []
        size = HEADER_SIZE
        for call in calls:
            needed = sum(len(key) + len(value or b"") + RECORD_OVERHEAD for key, value in call[0])
            if batch and size + needed > limit:
                self._append_batch(batch, timeout_ms)
                batch, size = [], HEADER_SIZE
            batch.append(call)
            size += needed
        self._append_batch(batch, timeout_ms)

    def _append_batch(
        self,
        calls: list[tuple[Records, Done]],
        timeout_ms: int,
        producer: tuple[int, int] | None = None,
        verified: Verification | None = NOT_ASKED_FOR,
    ) -> None:
        def done(outcome: AppendResult | KafkaError) -> None:
            if isinstance(outcome, KafkaError):
                for _, tell in calls:
                    _tell(tell, outcome.code, -1)
                return
            offset = outcome.base_offset
            for records, tell in calls:
                _tell(tell, ErrorCode.NONE, offset)
                offset += len(records)

        try:
            self._replicas.append_then(
                self._topic,
                self._partition,
                self._build([records for records, _ in calls], producer),
                self._acks,
                timeout_ms,
                AppendOrigin.COORDINATOR,
                done,
                verified,
            )
        except Exception:
            log.exception("%s-%d: a batch is not on its way", self._topic, self._partition)
            done(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _build(self, calls: Iterable[Records], producer: tuple[int, int] | None) -> bytearray:
        now = self._clock()
        builder = BatchBuilder(1 << 30, self._compression)
        for records in calls:
            for key, value in records:
                builder.append(key, value, (), now)
        return builder.build() if producer is None else builder.build(*producer, 0, transactional=True)


def _tell(tell: Done, error: ErrorCode, offset: int) -> None:
    """Tell one of those who share a batch; that it fails keeps nothing from the others."""
    try:
        tell(error, offset)
    except Exception:
        log.exception("what came of an append was not taken in")
