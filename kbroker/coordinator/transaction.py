"""The producer behind a transactional id, and its transaction, as their coordinator sees them. Pure: no clock, no log.

Events are methods that take `now` (ms) and return instructions: append this record, have the markers written, answer.

    Empty ---> Ongoing ---> PrepareCommit --markers written--> CompleteCommit ---> Ongoing, Empty
                  |                                                                (a new producer: Empty)
                  +-------> PrepareAbort  --markers written--> CompleteAbort ----> Ongoing, Empty

    Dead: forgotten after a long time of nothing, from Empty and the Complete states.

A state counts when its record is acknowledged; until then whoever asks is answered CONCURRENT_TRANSACTIONS. A prepared
decision is final, and the producer is told of it at once: from then on only its markers and the Complete record are
missing, whoever is the coordinator. What the producer asks for next mostly comes before these: see `is_busy`.

A producer is fenced by a higher epoch: InitProducerId gives the next one, and a transaction that is in its way, or
takes too long, is aborted under the next one (Kafka's PrepareEpochFence; only ever in memory, so it is no state here).
Where each transaction has its epoch, another producer's InitProducerId aborts it under the one after that: with the
next one the producer before would be taken for one that asks how its own transaction ended, and go on.

With `client_version` EPOCH_EACH (KIP-890, transaction.version=2) each transaction has an epoch of its own: its end
raises it, so its markers carry the next one, and what comes late of an ended transaction can never be taken for part of
the one after it. EndTxn answers what the producer goes on with; where no epoch is left, that is another producer id,
which takes over with the Complete record (`next_producer_id`). Where nothing is under way, such a producer may abort
all the same, for it may not know: an abort without partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.grouping import Key

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
LAST_EPOCH = 0x7FFF
EXHAUSTED_EPOCH = LAST_EPOCH - 1
"""The highest a producer is given: one more is kept for fencing it."""

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE


class TransactionState(IntEnum):
    """The values are those of the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def wire_name(self) -> str:
        """The name that tools show."""
        return _WIRE_NAMES[self]


EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD = TransactionState

_WIRE_NAMES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")
STATE_NAMES = frozenset((*_WIRE_NAMES, "PrepareEpochFence"))
"""All that may be asked for; nothing is ever seen in the last one."""

PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
RESTING = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
"""No transaction is under way."""

ALLOWED_FROM: dict[TransactionState, frozenset[TransactionState]] = {
    EMPTY: RESTING,
    ONGOING: RESTING | {ONGOING},
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: RESTING | {ONGOING},
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    DEAD: RESTING,
}

_END: dict[tuple[TransactionState, bool], TransactionState | ErrorCode] = {
    (ONGOING, True): PREPARE_COMMIT,
    (ONGOING, False): PREPARE_ABORT,
    (COMPLETE_COMMIT, True): NONE,
    (COMPLETE_COMMIT, False): INVALID,
    (COMPLETE_ABORT, True): INVALID,
    (COMPLETE_ABORT, False): NONE,
    (PREPARE_COMMIT, True): CONCURRENT,
    (PREPARE_COMMIT, False): INVALID,
    (PREPARE_ABORT, True): INVALID,
    (PREPARE_ABORT, False): CONCURRENT,
    (EMPTY, True): INVALID,
    (EMPTY, False): INVALID,
    (DEAD, True): INVALID,
    (DEAD, False): INVALID,
}
"""What EndTxn does, or answers; True is a commit."""

_END_EACH: dict[tuple[TransactionState, bool], TransactionState | ErrorCode] = {
    (ONGOING, True): PREPARE_COMMIT,
    (ONGOING, False): PREPARE_ABORT,
    (COMPLETE_COMMIT, True): INVALID,
    (COMPLETE_COMMIT, False): PREPARE_ABORT,
    (COMPLETE_ABORT, True): INVALID,
    (COMPLETE_ABORT, False): PREPARE_ABORT,
    (PREPARE_COMMIT, True): CONCURRENT,
    (PREPARE_COMMIT, False): CONCURRENT,
    (PREPARE_ABORT, True): CONCURRENT,
    (PREPARE_ABORT, False): CONCURRENT,
    (EMPTY, True): INVALID,
    (EMPTY, False): PREPARE_ABORT,
    (DEAD, True): INVALID,
    (DEAD, False): INVALID,
}
"""The same where each transaction has an epoch of its own, and the producer asks with the present one."""

_END_AGAIN: dict[tuple[TransactionState, bool], ErrorCode] = {
    (COMPLETE_COMMIT, True): NONE,
    (COMPLETE_COMMIT, False): INVALID,
    (COMPLETE_ABORT, True): INVALID,
    (COMPLETE_ABORT, False): NONE,
    (PREPARE_COMMIT, True): CONCURRENT,
    (PREPARE_COMMIT, False): INVALID,
    (PREPARE_ABORT, True): INVALID,
    (PREPARE_ABORT, False): CONCURRENT,
}
"""The same where it asks with the epoch before: that of the transaction which has ended."""

_COMPLETE = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}

NO_PARTITIONS: frozenset[Key] = frozenset()

EPOCH_EACH = 2
"""The transaction.version from which on each transaction has an epoch of its own."""


class TransactionRecord(NamedTuple):
    """What one record of the log says, but for `last_producer_epoch`: that a new coordinator does not know."""

    producer_id: int
    producer_epoch: int
    """-1: the id was just made, nobody writes with it yet."""
    timeout_ms: int
    state: TransactionState = EMPTY
    partitions: frozenset[Key] = NO_PARTITIONS
    last_update_ms: int = NO_TIME
    start_ms: int = NO_TIME
    last_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_EPOCH
    """What the producer had before, when it knows of the next epoch or asked for it: it may ask again (KIP-360)."""
    next_producer_id: int = NO_PRODUCER_ID
    """In a prepared state: what the producer goes on with, from epoch 0 on, as this id has no epoch left."""
    client_version: int = 0
    """The transaction.version by which the transaction goes, or went."""

    @property
    def successor(self) -> tuple[int, int]:
        """The id and epoch that the producer goes on with."""
        return (self.next_producer_id, 0) if self.next_producer_id >= 0 else (self.producer_id, self.producer_epoch)


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the request that came with this token; with an id and epoch to write with, where it asked for them."""

    request: object
    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Write:
    """Append this record, None for a tombstone; `written` is to be told how that went."""

    record: TransactionRecord | None
    is_again: bool = False
    """It has failed before: after a pause."""


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """Have the markers of `record` written to all of its partitions; `markers_written` when all have them."""

    record: TransactionRecord


Instruction = Answer | Write | SendMarkers


@dataclass(frozen=True, slots=True)
class _Pending:
    """A record on its way into the log, and what its sender is told when it is there."""

    record: TransactionRecord
    answer: Answer | None = None
    is_fence: bool = False


class Transaction:
    """One transactional id. Events return instructions; see the module's drawing. `check()` holds its invariants."""

    __slots__ = ("_has_fence_failed", "_pending", "record", "transactional_id")

    def __init__(self, transactional_id: str, record: TransactionRecord) -> None:
        self.transactional_id = transactional_id
        self.record = record
        """As acknowledged; but for an epoch that is being raised to fence the producer."""
        self._pending: _Pending | None = None
        self._has_fence_failed = False
        """The epoch was raised, but the log does not know: not once more, epochs are few."""

    @property
    def state(self) -> TransactionState:
        """Where its transaction is."""
        return self.record.state

    @property
    def is_pending(self) -> bool:
        """Whether a record is on its way into the log."""
        return self._pending is not None

    @property
    def is_busy(self) -> bool:
        """Whether who is answered CONCURRENT_TRANSACTIONS may as well wait: a record, or an end, is being written."""
        return self.is_pending or self.state in PREPARED

    @property
    def is_new(self) -> bool:
        """Whether nothing is known of it but a producer id that nobody has."""
        return self.record.producer_epoch == NO_EPOCH and self._pending is None

    # --- InitProducerId ---------------------------------------------------------------------------------------

    def needs_producer_id(self, expected: tuple[int, int] | None) -> bool:
        """Whether `init` would have to give out another producer id: this one has no epochs left."""
        record = self.record
        return (
            not self.is_pending
            and record.state in RESTING
            and record.producer_epoch >= EXHAUSTED_EPOCH
            and (expected is None or expected[1] == record.producer_epoch)
        )

    def init(
        self,
        expected: tuple[int, int] | None,
        timeout_ms: int,
        request: object,
        now: int,
        fresh_producer_id: int = NO_PRODUCER_ID,
        version: int = 0,
    ) -> list[Instruction]:
        """A producer begins; or, with the id and epoch that it has, goes on after an error (KIP-360).

        `fresh_producer_id` is used if `needs_producer_id`; `version` is the cluster's transaction.version.
        """
        record = self.record
        if self.is_pending:
            return [Answer(request, CONCURRENT)]
        if expected is not None and not self._is_known(*expected):
            return [Answer(request, FENCED)]
        if record.state in PREPARED or record.state is DEAD:
            return [Answer(request, CONCURRENT)]
        if record.state is ONGOING:
            return self._fence(Answer(request, CONCURRENT), now, version, is_for_another=expected is None)
        if self.needs_producer_id(expected):
            assert fresh_producer_id >= 0
            last_epoch = NO_EPOCH if expected is None else record.producer_epoch
            following = (fresh_producer_id, 0, record.producer_id, last_epoch)
        elif expected is None:
            following = (record.producer_id, record.producer_epoch + 1, NO_PRODUCER_ID, NO_EPOCH)
        elif expected[1] == record.producer_epoch or record.producer_epoch == NO_EPOCH:
            following = (record.producer_id, record.producer_epoch + 1, record.producer_id, record.producer_epoch)
        elif expected[1] == record.last_producer_epoch:  # it asks again, as the answer was lost
            following = (
                record.producer_id,
                record.producer_epoch,
                record.last_producer_id,
                record.last_producer_epoch,
            )
        else:
            return [Answer(request, FENCED)]
        producer_id, epoch, last_id, last_epoch = following
        wanted = TransactionRecord(
            producer_id, epoch, timeout_ms, EMPTY, NO_PARTITIONS, now, NO_TIME, last_id, last_epoch
        )
        return self._write(wanted, Answer(request, NONE, producer_id, epoch))

    def _is_known(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer may be the present one; its epoch is looked at later."""
        record = self.record
        return (
            record.producer_epoch == NO_EPOCH
            or producer_id == record.producer_id
            or (producer_id == record.last_producer_id and epoch >= EXHAUSTED_EPOCH)
        )

    def _fence(self, answer: Answer | None, now: int, version: int, is_for_another: bool = False) -> list[Instruction]:
        """Abort the transaction under a higher epoch, so that its producer cannot go on.

        Where each transaction has its epoch, that is what its end does anyhow: the producer may ask how it ended. Not
        where another producer begins: one epoch more, and whoever has the old one is told that it is fenced; also
        after a fence that failed, which has raised it no further than such an end would.
        """
        record = self.record
        epoch = record.producer_epoch + (not self._has_fence_failed)
        assert epoch <= LAST_EPOCH
        last_epoch = NO_EPOCH
        if version >= EPOCH_EACH and epoch < LAST_EPOCH:
            if is_for_another:
                epoch += 1
            else:
                last_epoch = epoch - 1
        else:
            self.record = record._replace(producer_epoch=epoch, last_producer_epoch=NO_EPOCH)
        aborted = record._replace(
            producer_epoch=epoch,
            state=PREPARE_ABORT,
            last_update_ms=now,
            last_producer_id=record.producer_id,
            last_producer_epoch=last_epoch,
            client_version=version,
        )
        return self._write(aborted, answer, is_fence=self.record.producer_epoch == epoch)

    # --- a transaction's partitions and its end ---------------------------------------------------------------

    def add_partitions(
        self,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[Key],
        request: object,
        now: int,
        version: int = 0,
    ) -> list[Instruction]:
        """The producer is about to write to partitions: the transaction begins, or grows.

        `version`: the transaction.version by which it goes.
        """
        error = self._refusal(producer_id, producer_epoch)
        if error is NONE and (self.is_pending or self.state in PREPARED or self.state is DEAD):
            error = CONCURRENT
        record = self.record
        all_partitions = record.partitions.union(partitions)
        if error is not NONE or (record.state is ONGOING and len(all_partitions) == len(record.partitions)):
            return [Answer(request, error)]
        start_ms = record.start_ms if record.state is ONGOING else now
        grown = record._replace(
            state=ONGOING, partitions=all_partitions, last_update_ms=now, start_ms=start_ms, client_version=version
        )
        return self._write(grown, Answer(request, NONE))

    def verify(self, producer_id: int, producer_epoch: int, partitions: Iterable[Key]) -> dict[Key, ErrorCode]:
        """Tell for each partition whether the producer may write to it in this transaction (KIP-890)."""
        error = self._unverified(producer_id, producer_epoch)
        if error is not NONE:
            return dict.fromkeys(partitions, error)
        known = self.record.partitions
        return {key: NONE if key in known else ErrorCode.TRANSACTION_ABORTABLE for key in partitions}

    def partitions_of(self, producer_id: int, producer_epoch: int) -> frozenset[Key]:
        """Return those of which `verify` tells that the producer may write to them."""
        is_known = self._unverified(producer_id, producer_epoch) is NONE
        return self.record.partitions if is_known else NO_PARTITIONS

    def _unverified(self, producer_id: int, producer_epoch: int) -> ErrorCode:
        """Return why nothing may be said of the transaction's partitions."""
        error = self._refusal(producer_id, producer_epoch)
        return CONCURRENT if error is NONE and self.state in PREPARED else error

    def end(
        self, producer_id: int, producer_epoch: int, is_commit: bool, request: object, now: int
    ) -> list[Instruction]:
        """The producer commits or aborts, and keeps its epoch."""
        error = self._refusal(producer_id, producer_epoch)
        if error is NONE and self.is_pending:
            error = CONCURRENT
        if error is not NONE:
            return [Answer(request, error)]
        following = _END[self.state, is_commit]
        if isinstance(following, ErrorCode):
            return [Answer(request, following)]
        prepared = self.record._replace(state=following, last_update_ms=now, client_version=0)
        return self._write(prepared, Answer(request, NONE))

    def needs_producer_id_after(self, producer_id: int, producer_epoch: int, is_commit: bool) -> bool:
        """Whether `end_each` would have to give out another producer id: this one has no epochs left."""
        return (
            not self.is_pending
            and (producer_id, producer_epoch) == (self.record.producer_id, self.record.producer_epoch)
            and producer_epoch == EXHAUSTED_EPOCH
            and isinstance(_END_EACH[self.state, is_commit], TransactionState)
        )

    def end_each(
        self,
        producer_id: int,
        producer_epoch: int,
        is_commit: bool,
        request: object,
        now: int,
        fresh_producer_id: int = NO_PRODUCER_ID,
    ) -> list[Instruction]:
        """The producer commits or aborts, and goes on with the next epoch (KIP-890); it may ask again with the old one.

        `fresh_producer_id` is used if `needs_producer_id_after`.
        """
        if self.is_pending:  # perhaps the record by which the producer has its next id
            return [Answer(request, CONCURRENT)]
        record = self.record
        if self._is_end_again(producer_id, producer_epoch):
            error = _END_AGAIN[record.state, is_commit]
            return [Answer(request, error, *record.successor) if error is NONE else Answer(request, error)]
        error = self._refusal(producer_id, producer_epoch)
        if error is not NONE:
            return [Answer(request, error)]
        following = _END_EACH[record.state, is_commit]
        if isinstance(following, ErrorCode):
            return [Answer(request, following)]
        if record.producer_epoch < EXHAUSTED_EPOCH:
            fresh_producer_id = NO_PRODUCER_ID
        else:
            assert fresh_producer_id >= 0
        prepared = record._replace(
            producer_epoch=record.producer_epoch + 1,
            state=following,
            last_update_ms=now,
            start_ms=record.start_ms if record.state is ONGOING else now,
            last_producer_id=record.producer_id,
            last_producer_epoch=record.producer_epoch,
            next_producer_id=fresh_producer_id,
            client_version=EPOCH_EACH,
        )
        return self._write(prepared, Answer(request, NONE, *prepared.successor))

    def _is_end_again(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether somebody asks for the end of the transaction that was ended last, with the epoch that it had."""
        record = self.record
        if (record.state, True) not in _END_AGAIN or record.client_version < EPOCH_EACH:
            return False
        if producer_id == record.producer_id and record.producer_epoch == producer_epoch + 1:
            # Fenced with the last epoch there is: no producer may go on with that.
            return record.producer_epoch < LAST_EPOCH or record.next_producer_id >= 0
        has_new_id = producer_id == record.last_producer_id and record.producer_epoch == 0
        return has_new_id and producer_epoch == EXHAUSTED_EPOCH

    def _refusal(self, producer_id: int, producer_epoch: int) -> ErrorCode:
        record = self.record
        if record.next_producer_id >= 0 and (producer_id, producer_epoch) == record.successor:
            return NONE  # it knows what it will be: once all is written
        if producer_id != record.producer_id or record.producer_epoch == NO_EPOCH:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        # The last epoch only ever fences: whoever names it was not given it, and nothing could follow it.
        return NONE if producer_epoch == record.producer_epoch < LAST_EPOCH else FENCED

    # --- time, markers, log -----------------------------------------------------------------------------------

    def is_too_long(self, now: int) -> bool:
        """Whether its transaction has taken longer than its producer said it would."""
        record = self.record
        return record.state is ONGOING and not self.is_pending and record.start_ms + record.timeout_ms < now

    def time_out(self, now: int, version: int = 0) -> list[Instruction]:
        """Abort a transaction that takes too long; its producer is fenced. `version`: the cluster's."""
        return self._fence(None, now, version) if self.is_too_long(now) else []

    def is_expired(self, now: int, expiration_ms: int) -> bool:
        """Whether nothing has happened for so long that it is to be forgotten."""
        record = self.record
        return record.state in RESTING and not self.is_pending and record.last_update_ms <= now - expiration_ms

    def expire(self, now: int, expiration_ms: int) -> list[Instruction]:
        """Forget it if it is expired: it is Dead when its tombstone is written."""
        if not self.is_expired(now, expiration_ms):
            return []
        self._pending = _Pending(self.record._replace(state=DEAD))
        return [Write(None)]

    def resume(self) -> list[Instruction]:
        """It has been read from the log: a decision that was prepared is carried out, unless it has been by now."""
        return [SendMarkers(self.record)] if self.state in PREPARED and not self.is_pending else []

    def markers_written(self, now: int) -> list[Instruction]:
        """All partitions have their marker, or are gone."""
        record = self.record
        assert record.state in PREPARED
        assert not self.is_pending
        producer_id, epoch = record.successor
        complete = record._replace(
            producer_id=producer_id,
            producer_epoch=epoch,
            state=_COMPLETE[record.state],
            partitions=NO_PARTITIONS,
            last_update_ms=now,
            next_producer_id=NO_PRODUCER_ID,
        )
        return self._write(complete, None)

    def written(self, error: ErrorCode) -> list[Instruction]:
        """The record that was to be appended is acknowledged (NONE), or is not."""
        pending = self._pending
        assert pending is not None
        if error is not NONE:
            return self._not_written(pending, error)
        self._pending = None
        self.record = pending.record
        out: list[Instruction] = [] if pending.answer is None else [pending.answer]
        if self.record.state in PREPARED:
            self._has_fence_failed = False
            out.append(SendMarkers(self.record))
        return out

    def _not_written(self, pending: _Pending, error: ErrorCode) -> list[Instruction]:
        if self.state in PREPARED:
            # It stays pending: all markers are written, this must follow. `resign` ends it where another broker
            # coordinates by now; one that stood still is refused as if that were so, and may coordinate on.
            return [Write(pending.record, is_again=True)]
        self._pending = None
        self._has_fence_failed = self._has_fence_failed or pending.is_fence
        return [] if pending.answer is None else [Answer(pending.answer.request, error)]

    def _write(self, record: TransactionRecord, answer: Answer | None, is_fence: bool = False) -> list[Instruction]:
        assert self._pending is None
        assert self.state in ALLOWED_FROM[record.state]
        self._pending = _Pending(record, answer, is_fence)
        return [Write(record)]

    def resign(self) -> list[Instruction]:
        """Another broker coordinates from now on: who waits is told."""
        pending, self._pending = self._pending, None
        if pending is None or pending.answer is None:
            return []
        return [Answer(pending.answer.request, ErrorCode.NOT_COORDINATOR)]

    def check(self) -> None:
        """Assert what always holds."""
        record, pending = self.record, self._pending
        assert NO_EPOCH <= record.producer_epoch <= LAST_EPOCH
        assert record.producer_id >= 0
        assert record.state in (ONGOING, *PREPARED) or not record.partitions
        assert record.state not in (ONGOING, *PREPARED) or record.start_ms >= 0
        assert record.next_producer_id < 0 or (record.state in PREPARED and record.producer_epoch == LAST_EPOCH)
        if record.producer_epoch == NO_EPOCH:
            assert record.state is EMPTY
        if pending is not None:
            assert record.state in ALLOWED_FROM[pending.record.state]
            assert (pending.record.producer_id, pending.record.producer_epoch) >= (
                (record.producer_id, record.producer_epoch) if pending.record.producer_id == record.producer_id else ()
            )
            self._check_epoch(record, pending.record)

    @staticmethod
    def _check_epoch(before: TransactionRecord, after: TransactionRecord) -> None:
        """An epoch stays with its transaction; only a beginning, or such an end, raises it."""
        is_raised = (after.producer_id, after.producer_epoch) != (before.producer_id, before.producer_epoch)
        if after.state in PREPARED and after.client_version >= EPOCH_EACH:
            assert after.producer_id == before.producer_id
            assert after.producer_epoch == before.producer_epoch + 1 or (
                # a fence that failed has raised it, or it is raised for another producer
                (before.last_producer_epoch if not is_raised else after.last_producer_epoch) == NO_EPOCH
                and 0 <= after.producer_epoch - before.producer_epoch <= 2
            )
        elif after.state in (COMPLETE_COMMIT, COMPLETE_ABORT):
            assert (after.producer_id, after.producer_epoch) == before.successor
            assert after.producer_epoch < LAST_EPOCH or before.state is PREPARE_ABORT
        elif after.state is not EMPTY:
            assert not is_raised
