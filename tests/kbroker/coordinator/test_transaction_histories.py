"""Random histories of a transactional id, by any version of transactions: its invariants hold at each step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kbroker.coordinator.transaction import (
    EPOCH_EACH,
    EXHAUSTED_EPOCH,
    ONGOING,
    RESTING,
    SendMarkers,
    Transaction,
    TransactionRecord,
    TransactionState,
    Write,
)
from kbroker.coordinator.transaction_records import read_transaction_value, transaction_value
from kbroker.protocol.errors import ErrorCode

NONE = ErrorCode.NONE
ID, NOW = 7, 1_000

FAILURES = st.sampled_from(
    [NONE, NONE, NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR]
)


class Histories(RuleBasedStateMachine):
    """Producers come, go on, write, end and are late; the log fails; the coordinator moves."""

    @initialize(versions=st.sampled_from([(0,), (EPOCH_EACH,), (0, EPOCH_EACH)]))
    def cluster(self, versions: tuple[int, ...]) -> None:
        """By which versions of transactions clients go, and now and then the cluster."""
        self.versions = versions

    def __init__(self) -> None:
        super().__init__()
        self.versions = (0,)
        self.begun: dict[tuple[int, int], int] = {}
        """(id, epoch) -> when the transaction began that was the only one to have them."""
        self.now = NOW
        self.transaction = Transaction("id", TransactionRecord(ID, -1, 1_000))
        self.logged: TransactionRecord | None = None
        """What a new coordinator would find."""
        self.writing: Write | None = None
        self.markers: TransactionRecord | None = None
        self.fresh = 100
        self.producers = [(ID, -1)]
        """(id, epoch) as given out, the latest last."""
        self.decided: dict[tuple[int, int, int], TransactionState] = {}
        """(id, epoch, start) -> the decision that was told, or begun to be carried out."""

    def tell(self, instructions: list[Any]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Write):
                assert self.writing is None
                self.writing = instruction
            elif isinstance(instruction, SendMarkers):
                assert self.logged is not None
                assert self.logged._replace(last_producer_id=-1, last_producer_epoch=-1) == instruction.record._replace(
                    last_producer_id=-1, last_producer_epoch=-1
                )
                record = instruction.record
                known = self.decided.setdefault((record.producer_id, 0, record.start_ms), record.state)
                assert known is record.state, "decided twice"
                self.markers = record
            elif instruction.error is NONE and instruction.producer_id >= 0:
                producer = instruction.producer_id, instruction.producer_epoch
                if producer != self.producers[-1]:
                    assert producer not in self.producers, "given out twice"
                    self.producers.append(producer)

    @rule(goes_on=st.booleans(), back=st.integers(1, 3))
    def init(self, goes_on: bool, back: int) -> None:
        expected = self.producers[max(-back, -len(self.producers))] if goes_on else None
        if expected is not None and expected[1] < 0:
            expected = None
        self.fresh += 1
        self.tell(self.transaction.init(expected, 1_000, "init", self.now, self.fresh, self.version()))

    @rule(partition=st.integers(0, 3), back=st.integers(1, 3))
    def add(self, partition: int, back: int) -> None:
        producer = self.producers[max(-back, -len(self.producers))]
        self.now += 1  # no two transactions begin at the same time
        before = self.writing
        self.tell(self.transaction.add_partitions(*producer, [("t", partition)], "add", self.now, self.version()))
        if self.writing is not before:
            assert producer == (self.transaction.record.producer_id, self.transaction.record.producer_epoch)

    @rule(is_commit=st.booleans(), back=st.integers(1, 3))
    def end(self, is_commit: bool, back: int) -> None:
        producer = self.producers[max(-back, -len(self.producers))]
        self.now += 1
        if self.version() == EPOCH_EACH:
            self.fresh += 1
            self.tell(self.transaction.end_each(*producer, is_commit, "end", self.now, self.fresh))
        else:
            self.tell(self.transaction.end(*producer, is_commit, "end", self.now))

    @precondition(lambda self: self.writing is not None)
    @rule(error=FAILURES)
    def written(self, error: ErrorCode) -> None:
        write, self.writing = self.writing, None
        assert write is not None
        if error is NONE:
            self.logged = write.record
            self.look_at_epochs(write.record)
        self.tell(self.transaction.written(error))

    def look_at_epochs(self, record: TransactionRecord | None) -> None:
        """Where each transaction has an epoch of its own, no two have the same."""
        if record is not None and record.state is ONGOING and self.versions == (EPOCH_EACH,):
            began = self.begun.setdefault((record.producer_id, record.producer_epoch), record.start_ms)
            assert began == record.start_ms, "two transactions with one epoch"

    def version(self) -> int:
        return self.versions[self.now % len(self.versions)]

    @precondition(lambda self: self.markers is not None and self.writing is None)
    @rule()
    def markers_written(self) -> None:
        self.markers = None
        self.tell(self.transaction.markers_written(self.now))

    @rule(ms=st.integers(1, 1_500))
    def time_goes_by(self, ms: int) -> None:
        self.now += ms
        self.tell(self.transaction.time_out(self.now, self.version()))

    @rule()
    def exhaust(self) -> None:
        record = self.transaction.record
        if record.state in RESTING and not self.transaction.is_pending and 0 <= record.producer_epoch < 30_000:
            self.transaction.record = record._replace(producer_epoch=EXHAUSTED_EPOCH - 1)
            self.logged = self.transaction.record
            self.producers.append((record.producer_id, EXHAUSTED_EPOCH - 1))

    @precondition(lambda self: self.logged is not None)
    @rule(is_there=st.booleans())
    def coordinator_moves(self, is_there: bool) -> None:
        """A record on its way may, or may not, be found by the next coordinator."""
        if self.writing is not None and is_there and self.writing.record is not None:
            self.logged = self.writing.record
            self.look_at_epochs(self.logged)
        self.writing, self.markers = None, None
        self.transaction.resign()
        assert self.logged is not None
        found = read_transaction_value(transaction_value(self.logged))
        self.transaction, self.logged = Transaction("id", found), found
        self.tell(self.transaction.resume())

    @invariant()
    def holds(self) -> None:
        self.transaction.check()
        assert self.transaction.is_pending == (self.writing is not None)


TestHistories = pytest.mark.slow(Histories.TestCase)
TestHistories.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
