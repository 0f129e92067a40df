"""A transactional id alone: the tables, and answers to misuse. Random histories: test_transaction_histories.py."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.coordinator.transaction import (
    ALLOWED_FROM,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    EPOCH_EACH,
    EXHAUSTED_EPOCH,
    LAST_EPOCH,
    NO_PARTITIONS,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    RESTING,
    Answer,
    SendMarkers,
    Transaction,
    TransactionRecord,
    TransactionState,
    Write,
)
from kbroker.coordinator.transaction_records import read_transaction_value, transaction_value
from kbroker.protocol.errors import ErrorCode

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE

ID, EPOCH, NOW = 7, 3, 1_000
A, B, C = ("t", 0), ("t", 1), ("u", 0)


def made(state: TransactionState = EMPTY, epoch: int = EPOCH, **values: Any) -> Transaction:
    """One that stands in a state."""
    begun = state in (ONGOING, *PREPARED)
    record = TransactionRecord(ID, epoch, 60_000, state, frozenset({A}) if begun else NO_PARTITIONS, NOW, NOW)
    transaction = Transaction("id", record._replace(**values))
    transaction.check()
    return transaction


def errors(instructions: list[Any]) -> list[ErrorCode]:
    return [each.error for each in instructions if isinstance(each, Answer)]


def carried_out(transaction: Transaction, instructions: list[Any]) -> list[Any]:
    """The log takes all records; returns what followed."""
    (write,) = instructions
    assert isinstance(write, Write)
    transaction.check()
    return transaction.written(NONE)


# --- the tables ---------------------------------------------------------------------------------------------------


def test_the_table_has_kafkas_transitions_and_no_others() -> None:
    assert {
        EMPTY: {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
        ONGOING: {ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
        PREPARE_COMMIT: {ONGOING},
        PREPARE_ABORT: {ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
        COMPLETE_COMMIT: {PREPARE_COMMIT},
        COMPLETE_ABORT: {PREPARE_ABORT},
        DEAD: {EMPTY, COMPLETE_ABORT, COMPLETE_COMMIT},
    } == ALLOWED_FROM
    assert [state.value for state in TransactionState] == list(range(7))
    assert EMPTY.wire_name == "Empty"
    assert PREPARE_ABORT.wire_name == "PrepareAbort"
    assert DEAD.wire_name == "Dead"


@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (COMPLETE_COMMIT, NONE, INVALID),
        (COMPLETE_ABORT, INVALID, NONE),
        (PREPARE_COMMIT, CONCURRENT, INVALID),
        (PREPARE_ABORT, INVALID, CONCURRENT),
        (EMPTY, INVALID, INVALID),
    ],
)
def test_the_end_of_what_is_not_ongoing_is_answered_at_once(
    state: TransactionState, commit: ErrorCode, abort: ErrorCode
) -> None:
    for is_commit, expected in ((True, commit), (False, abort)):
        transaction = made(state)
        assert transaction.end(ID, EPOCH, is_commit, "r", NOW) == [Answer("r", expected)]
        assert not transaction.is_pending


@pytest.mark.parametrize(
    ("is_commit", "prepared", "complete"),
    [(True, PREPARE_COMMIT, COMPLETE_COMMIT), (False, PREPARE_ABORT, COMPLETE_ABORT)],
)
def test_a_transaction_ends_by_a_decision_then_markers_then_a_last_record(
    is_commit: bool, prepared: TransactionState, complete: TransactionState
) -> None:
    transaction = made(ONGOING, partitions=frozenset({A, B}))
    (write,) = transaction.end(ID, EPOCH, is_commit, "r", NOW + 5)
    assert isinstance(write, Write)
    assert write.record is not None
    assert write.record.state is prepared
    assert write.record.last_update_ms == NOW + 5
    assert transaction.state is ONGOING
    answer, markers = transaction.written(NONE)
    assert answer == Answer("r", NONE)
    assert markers == SendMarkers(write.record)
    assert transaction.state is prepared
    (last,) = transaction.markers_written(NOW + 9)
    assert isinstance(last, Write)
    assert last.record == write.record._replace(state=complete, partitions=frozenset(), last_update_ms=NOW + 9)
    assert transaction.written(NONE) == []
    assert transaction.state is complete


@pytest.mark.parametrize("state", [EMPTY, ONGOING, *PREPARED, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_another_producer_id_or_epoch_is_refused_whatever_the_state(state: TransactionState) -> None:
    transaction = made(state)
    for producer_id, epoch, expected in ((ID + 1, EPOCH, MAPPING), (ID, EPOCH - 1, FENCED), (ID, EPOCH + 1, FENCED)):
        assert errors(transaction.add_partitions(producer_id, epoch, [B], "r", NOW)) == [expected]
        assert errors(transaction.end(producer_id, epoch, True, "r", NOW)) == [expected]
        assert transaction.verify(producer_id, epoch, [A, B]) == {A: expected, B: expected}
        assert not transaction.partitions_of(producer_id, epoch)
    assert transaction.state is state


def test_who_comes_while_a_record_is_on_its_way_is_told_to_come_again() -> None:
    transaction = made(ONGOING)
    transaction.add_partitions(ID, EPOCH, [B], "r", NOW)
    assert errors(transaction.add_partitions(ID, EPOCH, [C], "s", NOW)) == [CONCURRENT]
    assert errors(transaction.add_partitions(ID, EPOCH, [A], "s", NOW)) == [CONCURRENT]
    assert errors(transaction.end(ID, EPOCH, True, "s", NOW)) == [CONCURRENT]
    assert errors(transaction.init(None, 1, "s", NOW)) == [CONCURRENT]
    assert not transaction.is_too_long(NOW + 10_000_000)
    assert transaction.time_out(NOW + 10_000_000) == []
    assert transaction.verify(ID, EPOCH, [A, B]) == {A: NONE, B: ABORTABLE}
    assert transaction.partitions_of(ID, EPOCH) == {A}


# --- partitions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", sorted(RESTING))
def test_a_transaction_begins_with_its_first_partition(state: TransactionState) -> None:
    transaction = made(state, start_ms=1)
    assert carried_out(transaction, transaction.add_partitions(ID, EPOCH, [A, A], "r", NOW + 7)) == [Answer("r", NONE)]
    assert transaction.record.state is ONGOING
    assert transaction.record.partitions == {A}
    assert (transaction.record.start_ms, transaction.record.last_update_ms) == (NOW + 7, NOW + 7)


def test_more_partitions_leave_the_time_of_its_beginning() -> None:
    transaction = made(ONGOING)
    carried_out(transaction, transaction.add_partitions(ID, EPOCH, [B, C], "r", NOW + 7))
    assert transaction.record.partitions == {A, B, C}
    assert (transaction.record.start_ms, transaction.record.last_update_ms) == (NOW, NOW + 7)


def test_partitions_that_take_part_already_are_answered_without_a_record() -> None:
    transaction = made(ONGOING, partitions=frozenset({A, B}))
    assert transaction.add_partitions(ID, EPOCH, [B], "r", NOW) == [Answer("r", NONE)]
    assert not transaction.is_pending


@pytest.mark.parametrize("state", sorted(PREPARED))
def test_a_prepared_transaction_takes_no_partitions_and_vouches_for_none(state: TransactionState) -> None:
    transaction = made(state)
    assert errors(transaction.add_partitions(ID, EPOCH, [A], "r", NOW)) == [CONCURRENT]
    assert transaction.verify(ID, EPOCH, [A, B]) == {A: CONCURRENT, B: CONCURRENT}
    assert not transaction.partitions_of(ID, EPOCH)


@pytest.mark.parametrize("state", sorted(RESTING))
def test_no_partition_takes_part_in_no_transaction(state: TransactionState) -> None:
    assert made(state).verify(ID, EPOCH, [A]) == {A: ABORTABLE}


# --- InitProducerId -----------------------------------------------------------------------------------------------


def test_a_new_id_begins_with_epoch_nought() -> None:
    transaction = Transaction("id", TransactionRecord(ID, -1, 1))
    assert transaction.is_new
    assert carried_out(transaction, transaction.init(None, 5_000, "r", NOW)) == [Answer("r", NONE, ID, 0)]
    assert transaction.record == TransactionRecord(ID, 0, 5_000, EMPTY, NO_PARTITIONS, NOW, -1, -1, -1)
    assert not transaction.is_new


def test_a_producer_that_goes_on_after_its_id_was_forgotten_gets_the_new_one() -> None:
    transaction = Transaction("id", TransactionRecord(ID, -1, 1))
    assert carried_out(transaction, transaction.init((99, 4), 1, "r", NOW)) == [Answer("r", NONE, ID, 0)]


@pytest.mark.parametrize("state", sorted(RESTING))
def test_every_beginning_gets_the_next_epoch_and_its_own_time_out(state: TransactionState) -> None:
    transaction = made(state, last_producer_epoch=2)
    answers = carried_out(transaction, transaction.init(None, 9_000, "r", NOW + 1))
    assert answers == [Answer("r", NONE, ID, EPOCH + 1)]
    assert transaction.record == TransactionRecord(ID, EPOCH + 1, 9_000, EMPTY, NO_PARTITIONS, NOW + 1)


def test_a_producer_that_goes_on_gets_the_next_epoch_and_may_ask_again() -> None:
    transaction = made(COMPLETE_ABORT)
    for _ in range(3):
        answers = carried_out(transaction, transaction.init((ID, EPOCH), 1, "r", NOW))
        assert answers == [Answer("r", NONE, ID, EPOCH + 1)]
    assert errors(transaction.init((ID, EPOCH - 1), 1, "r", NOW)) == [FENCED]
    carried_out(transaction, transaction.init(None, 1, "r", NOW))
    assert errors(transaction.init((ID, EPOCH + 1), 1, "r", NOW)) == [FENCED]


def test_a_producer_with_an_id_that_nobody_knows_is_fenced() -> None:
    for state in (EMPTY, ONGOING, PREPARE_COMMIT):
        assert errors(made(state).init((ID + 1, EPOCH), 1, "r", NOW)) == [FENCED]


@pytest.mark.parametrize("state", sorted(PREPARED))
def test_who_begins_waits_for_the_decision_to_be_carried_out(state: TransactionState) -> None:
    assert errors(made(state).init(None, 1, "r", NOW)) == [CONCURRENT]


def test_an_id_without_epochs_left_is_given_up_for_a_fresh_one() -> None:
    transaction = made(EMPTY, epoch=EXHAUSTED_EPOCH)
    assert not made(EMPTY, epoch=EXHAUSTED_EPOCH - 1).needs_producer_id(None)
    assert not transaction.needs_producer_id((ID, EXHAUSTED_EPOCH - 1))
    assert transaction.needs_producer_id(None)
    assert transaction.needs_producer_id((ID, EXHAUSTED_EPOCH))
    answers = carried_out(transaction, transaction.init((ID, EXHAUSTED_EPOCH), 1, "r", NOW, 50))
    assert answers == [Answer("r", NONE, 50, 0)]
    for _ in range(2):  # the answer was lost
        again = carried_out(transaction, transaction.init((ID, EXHAUSTED_EPOCH), 1, "r", NOW))
        assert again == [Answer("r", NONE, 50, 0)]
    for epoch in (0, 4):  # of the id that was given up, long before
        assert errors(transaction.init((ID, epoch), 1, "r", NOW)) == [FENCED]


def test_another_producer_does_not_let_the_one_before_ask_again_for_the_fresh_id() -> None:
    transaction = made(EMPTY, epoch=EXHAUSTED_EPOCH)
    carried_out(transaction, transaction.init(None, 1, "r", NOW, 50))
    assert errors(transaction.init((ID, EXHAUSTED_EPOCH), 1, "r", NOW)) == [FENCED]


def test_the_last_epoch_may_be_asked_for_again_when_none_is_left() -> None:
    transaction = made(EMPTY, epoch=EXHAUSTED_EPOCH, last_producer_id=ID, last_producer_epoch=EXHAUSTED_EPOCH - 1)
    answers = carried_out(transaction, transaction.init((ID, EXHAUSTED_EPOCH - 1), 1, "r", NOW))
    assert answers == [Answer("r", NONE, ID, EXHAUSTED_EPOCH)]


# --- fencing ------------------------------------------------------------------------------------------------------


def test_who_begins_aborts_the_transaction_of_the_one_before() -> None:
    transaction = made(ONGOING)
    (write,) = transaction.init(None, 1, "r", NOW + 2)
    assert isinstance(write, Write)
    assert write.record is not None
    assert (write.record.state, write.record.producer_epoch) == (PREPARE_ABORT, EPOCH + 1)
    assert write.record.partitions == {A}
    assert errors(transaction.add_partitions(ID, EPOCH, [B], "s", NOW)) == [FENCED]
    assert transaction.written(NONE) == [Answer("r", CONCURRENT), SendMarkers(write.record)]
    carried_out(transaction, transaction.markers_written(NOW + 3))
    assert carried_out(transaction, transaction.init(None, 1, "r", NOW)) == [Answer("r", NONE, ID, EPOCH + 2)]


def test_an_epoch_that_was_raised_in_vain_is_not_raised_again() -> None:
    transaction = made(ONGOING, epoch=EXHAUSTED_EPOCH)
    for _ in range(3):
        (write,) = transaction.init(None, 1, "r", NOW)
        assert isinstance(write, Write)
        assert write.record is not None
        assert write.record.producer_epoch == LAST_EPOCH
        assert transaction.written(ErrorCode.COORDINATOR_NOT_AVAILABLE) == [
            Answer("r", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        ]
        transaction.check()
        assert transaction.state is ONGOING
    carried_out(transaction, transaction.init(None, 1, "r", NOW))
    carried_out(transaction, transaction.markers_written(NOW))
    assert transaction.needs_producer_id(None)


def test_a_raised_epoch_that_counts_does_not_save_the_next_fence_from_raising_it() -> None:
    transaction = made(ONGOING)
    transaction.init(None, 1, "r", NOW)
    transaction.written(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    carried_out(transaction, transaction.init(None, 1, "r", NOW))
    carried_out(transaction, transaction.markers_written(NOW))
    carried_out(transaction, transaction.init(None, 1, "r", NOW))
    epoch = transaction.record.producer_epoch
    carried_out(transaction, transaction.add_partitions(ID, epoch, [A], "r", NOW))
    carried_out(transaction, transaction.init(None, 1, "r", NOW))
    assert transaction.record.producer_epoch == epoch + 1


# --- time ---------------------------------------------------------------------------------------------------------


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    transaction = made(ONGOING)
    assert transaction.time_out(NOW + 60_000) == []
    out = carried_out(transaction, transaction.time_out(NOW + 60_001))
    assert out == [SendMarkers(transaction.record)]
    assert (transaction.state, transaction.record.producer_epoch) == (PREPARE_ABORT, EPOCH + 1)
    assert errors(transaction.end(ID, EPOCH, True, "r", NOW)) == [FENCED]


@pytest.mark.parametrize("state", [EMPTY, *PREPARED, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_only_a_transaction_that_is_not_decided_can_take_too_long(state: TransactionState) -> None:
    assert not made(state).is_too_long(NOW + 10_000_000)


@pytest.mark.parametrize("state", sorted(RESTING))
def test_an_id_that_nobody_uses_is_forgotten_once_its_tombstone_is_written(state: TransactionState) -> None:
    transaction = made(state)
    assert transaction.expire(NOW + 99, 100) == []
    assert transaction.expire(NOW + 100, 100) == [Write(None)]
    assert errors(transaction.init(None, 1, "r", NOW)) == [CONCURRENT]
    assert transaction.expire(NOW + 100, 100) == []
    assert transaction.written(ErrorCode.COORDINATOR_NOT_AVAILABLE) == []
    assert transaction.state is state
    assert carried_out(transaction, transaction.expire(NOW + 100, 100)) == []
    assert transaction.state is DEAD


@pytest.mark.parametrize("state", [ONGOING, *PREPARED])
def test_a_transaction_under_way_is_never_forgotten(state: TransactionState) -> None:
    assert made(state).expire(NOW + 10_000_000, 100) == []


def test_a_dead_id_takes_nothing_any_more() -> None:
    transaction = made(EMPTY)
    carried_out(transaction, transaction.expire(NOW + 100, 100))
    assert errors(transaction.add_partitions(ID, EPOCH, [A], "r", NOW)) == [CONCURRENT]
    assert errors(transaction.init(None, 1, "r", NOW)) == [CONCURRENT]
    assert errors(transaction.end(ID, EPOCH, True, "r", NOW)) == [INVALID]
    assert errors(transaction.end(ID, EPOCH, False, "r", NOW)) == [INVALID]


# --- the log ------------------------------------------------------------------------------------------------------


def test_a_record_that_was_not_written_changes_nothing() -> None:
    transaction = made(ONGOING)
    before = transaction.record
    transaction.end(ID, EPOCH, True, "r", NOW + 1)
    assert transaction.written(ErrorCode.NOT_COORDINATOR) == [Answer("r", ErrorCode.NOT_COORDINATOR)]
    assert transaction.record == before
    assert not transaction.is_pending


def test_the_last_record_is_written_again_until_it_is_or_another_broker_coordinates() -> None:
    transaction = made(PREPARE_COMMIT)
    (write,) = transaction.markers_written(NOW)
    assert isinstance(write, Write)
    assert transaction.written(ErrorCode.COORDINATOR_NOT_AVAILABLE) == [Write(write.record, is_again=True)]
    assert errors(transaction.end(ID, EPOCH, True, "r", NOW)) == [CONCURRENT]
    assert transaction.written(ErrorCode.UNKNOWN_SERVER_ERROR) == [Write(write.record, is_again=True)]
    assert transaction.written(NONE) == []
    assert transaction.state is COMPLETE_COMMIT
    other = made(PREPARE_ABORT)
    assert other.markers_written(NOW)
    assert isinstance(other.written(ErrorCode.NOT_COORDINATOR)[0], Write), "it may coordinate on"
    assert other.resign() == []
    assert not other.is_pending


def test_what_was_decided_before_is_carried_out_by_the_next_coordinator() -> None:
    for state in TransactionState:
        if state is not DEAD:
            transaction = made(state)
            assert transaction.resume() == ([SendMarkers(transaction.record)] if state in PREPARED else [])
            if state in PREPARED and transaction.markers_written(NOW):
                assert transaction.resume() == [], "all markers are there, and that is being written"


def test_who_waits_is_told_when_another_broker_coordinates() -> None:
    transaction = made(ONGOING)
    transaction.end(ID, EPOCH, True, "r", NOW)
    assert transaction.resign() == [Answer("r", ErrorCode.NOT_COORDINATOR)]
    assert transaction.resign() == []


def test_a_transition_that_is_not_in_the_table_is_a_mistake() -> None:
    transaction = made(EMPTY)
    with pytest.raises(AssertionError):
        transaction.markers_written(NOW)
    with pytest.raises(AssertionError):
        transaction._write(transaction.record._replace(state=PREPARE_COMMIT), None)


# --- an epoch for each transaction ----------------------------------------------------------------------------------


def ended(is_commit: bool = True, epoch: int = EPOCH, fresh: int = -1) -> Transaction:
    """One whose transaction with `epoch` has just ended so that the next has another."""
    transaction = made(ONGOING, epoch)
    carried_out(transaction, transaction.end_each(ID, epoch, is_commit, "r", NOW, fresh))
    carried_out(transaction, transaction.markers_written(NOW))
    return transaction


@pytest.mark.parametrize(("is_commit", "state"), [(True, PREPARE_COMMIT), (False, PREPARE_ABORT)])
def test_an_end_raises_the_epoch_and_its_markers_carry_the_raised_one(is_commit: bool, state: TransactionState) -> None:
    transaction = made(ONGOING, partitions=frozenset({A, B}))
    answer, markers = carried_out(transaction, transaction.end_each(ID, EPOCH, is_commit, "r", NOW + 5))
    assert answer == Answer("r", NONE, ID, EPOCH + 1)
    assert markers == SendMarkers(transaction.record)
    assert (transaction.state, transaction.record.producer_epoch) == (state, EPOCH + 1)
    assert transaction.record.partitions == {A, B}
    carried_out(transaction, transaction.markers_written(NOW))
    assert transaction.record.successor == (ID, EPOCH + 1)


def test_what_comes_late_of_an_ended_transaction_never_gets_into_the_next_one() -> None:
    transaction = ended()
    assert errors(transaction.add_partitions(ID, EPOCH, [A], "late", NOW, EPOCH_EACH)) == [FENCED]
    carried_out(transaction, transaction.add_partitions(ID, EPOCH + 1, [A], "next", NOW, EPOCH_EACH))
    assert errors(transaction.add_partitions(ID, EPOCH, [A], "late", NOW, EPOCH_EACH)) == [FENCED]
    assert transaction.verify(ID, EPOCH, [A]) == {A: FENCED}
    without = made(ONGOING)  # as it was before: the late one is taken for part of the transaction that is open now
    carried_out(without, without.end(ID, EPOCH, True, "r", NOW))
    carried_out(without, without.markers_written(NOW))
    carried_out(without, without.add_partitions(ID, EPOCH, [A], "next", NOW))
    assert without.verify(ID, EPOCH, [A]) == {A: NONE}


@pytest.mark.parametrize(
    ("state", "again_commit", "again_abort", "now_commit", "now_abort"),
    [
        (EMPTY, FENCED, FENCED, INVALID, NONE),
        (COMPLETE_ABORT, INVALID, NONE, INVALID, NONE),
        (COMPLETE_COMMIT, NONE, INVALID, INVALID, NONE),
        (PREPARE_COMMIT, CONCURRENT, INVALID, CONCURRENT, CONCURRENT),
        (PREPARE_ABORT, INVALID, CONCURRENT, CONCURRENT, CONCURRENT),
        (ONGOING, FENCED, FENCED, NONE, NONE),
    ],
)
def test_the_end_of_what_is_not_ongoing_is_kafkas_table(
    state: TransactionState,
    again_commit: ErrorCode,
    again_abort: ErrorCode,
    now_commit: ErrorCode,
    now_abort: ErrorCode,
) -> None:
    cases = ((EPOCH - 1, True, again_commit), (EPOCH - 1, False, again_abort), (EPOCH, True, now_commit))
    for epoch, is_commit, expected in (*cases, (EPOCH, False, now_abort)):
        transaction = made(state, client_version=EPOCH_EACH)
        out = transaction.end_each(ID, epoch, is_commit, "r", NOW + 9)
        if isinstance(out[0], Write):
            out = transaction.written(NONE)
            assert transaction.record.start_ms == (NOW if state is ONGOING else NOW + 9)
        assert errors(out) == [expected], (epoch, is_commit)
        if expected is NONE:
            assert isinstance(out[0], Answer)
            assert (out[0].producer_id, out[0].producer_epoch) == transaction.record.successor
        transaction.check()
    for producer_id, epoch, expected in ((ID + 1, EPOCH, MAPPING), (ID, EPOCH - 2, FENCED), (ID, EPOCH + 1, FENCED)):
        assert errors(made(state).end_each(producer_id, epoch, True, "r", NOW)) == [expected]


def test_who_asked_without_an_epoch_for_each_may_not_ask_again_with_the_one_before() -> None:
    assert errors(made(COMPLETE_COMMIT).end_each(ID, EPOCH - 1, True, "r", NOW)) == [FENCED]


def test_an_abort_of_nothing_raises_the_epoch_too_and_writes_no_markers_anywhere() -> None:
    transaction = made(EMPTY)
    answer, markers = carried_out(transaction, transaction.end_each(ID, EPOCH, False, "r", NOW + 5))
    assert answer == Answer("r", NONE, ID, EPOCH + 1)
    assert isinstance(markers, SendMarkers)
    assert not markers.record.partitions
    carried_out(transaction, transaction.markers_written(NOW))
    assert transaction.state is COMPLETE_ABORT


def test_an_end_without_epochs_left_hands_the_producer_to_a_fresh_id() -> None:
    transaction = made(ONGOING, EXHAUSTED_EPOCH)
    assert not made(ONGOING, EXHAUSTED_EPOCH - 1).needs_producer_id_after(ID, EXHAUSTED_EPOCH - 1, True)
    assert not made(EMPTY, EXHAUSTED_EPOCH).needs_producer_id_after(ID, EXHAUSTED_EPOCH, True)
    assert transaction.needs_producer_id_after(ID, EXHAUSTED_EPOCH, True)
    out = carried_out(transaction, transaction.end_each(ID, EXHAUSTED_EPOCH, True, "r", NOW, 50))
    assert out == [Answer("r", NONE, 50, 0), SendMarkers(transaction.record)]
    assert (transaction.record.producer_id, transaction.record.producer_epoch) == (ID, LAST_EPOCH), "of the markers"
    found = Transaction("id", read_transaction_value(transaction_value(transaction.record)))
    for each in (transaction, found):  # the next coordinator knows as much
        each.check()
        assert errors(each.end_each(ID, EXHAUSTED_EPOCH, True, "again", NOW)) == [CONCURRENT]
        assert errors(each.add_partitions(50, 0, [A], "early", NOW, EPOCH_EACH)) == [CONCURRENT]
        assert each.verify(50, 0, [A]) == {A: CONCURRENT}
        carried_out(each, each.markers_written(NOW))
    found = Transaction("id", read_transaction_value(transaction_value(transaction.record)))
    for each in (transaction, found):
        assert (each.record.producer_id, each.record.producer_epoch) == (50, 0)
        assert each.end_each(ID, EXHAUSTED_EPOCH, True, "again", NOW) == [Answer("again", NONE, 50, 0)]
        assert errors(each.end_each(ID, EXHAUSTED_EPOCH - 1, True, "again", NOW)) == [MAPPING]
        assert errors(each.add_partitions(ID, EXHAUSTED_EPOCH, [A], "late", NOW, EPOCH_EACH)) == [MAPPING]
        carried_out(each, each.add_partitions(50, 0, [A], "next", NOW, EPOCH_EACH))


def test_who_writes_with_its_next_id_while_the_last_record_is_on_its_way_is_told_to_come_again() -> None:
    transaction = made(ONGOING, EXHAUSTED_EPOCH)
    carried_out(transaction, transaction.end_each(ID, EXHAUSTED_EPOCH, True, "r", NOW, 50))
    transaction.markers_written(NOW)
    assert errors(transaction.add_partitions(50, 0, [A], "early", NOW, EPOCH_EACH)) == [CONCURRENT]
    assert errors(transaction.end_each(50, 0, False, "early", NOW)) == [CONCURRENT]


def test_a_producer_whose_transaction_took_too_long_may_ask_how_it_ended_and_goes_on() -> None:
    transaction = made(ONGOING)
    carried_out(transaction, transaction.time_out(NOW + 60_001, EPOCH_EACH))
    assert transaction.record.producer_epoch == EPOCH + 1
    assert errors(transaction.add_partitions(ID, EPOCH, [B], "r", NOW, EPOCH_EACH)) == [FENCED]
    carried_out(transaction, transaction.markers_written(NOW))
    assert errors(transaction.end_each(ID, EPOCH, True, "r", NOW)) == [INVALID]
    assert transaction.end_each(ID, EPOCH, False, "r", NOW) == [Answer("r", NONE, ID, EPOCH + 1)]
    carried_out(transaction, transaction.add_partitions(ID, EPOCH + 1, [B], "r", NOW, EPOCH_EACH))


def test_the_last_epoch_is_nobodys_also_where_a_transaction_took_too_long() -> None:
    transaction = made(ONGOING, EXHAUSTED_EPOCH)
    carried_out(transaction, transaction.time_out(NOW + 60_001, EPOCH_EACH))
    carried_out(transaction, transaction.markers_written(NOW))
    found = Transaction("id", read_transaction_value(transaction_value(transaction.record)))
    for each in (transaction, found):
        assert each.record.producer_epoch == LAST_EPOCH
        assert errors(each.end_each(ID, EXHAUSTED_EPOCH, False, "r", NOW)) == [FENCED]
        assert errors(each.init((ID, EXHAUSTED_EPOCH), 1, "r", NOW)) == [FENCED]
        assert carried_out(each, each.init(None, 1, "r", NOW, 50)) == [Answer("r", NONE, 50, 0)]


def test_another_producer_fences_by_an_epoch_that_no_end_of_the_one_before_would_lead_to() -> None:
    transaction = made(ONGOING)
    carried_out(transaction, transaction.init(None, 1, "r", NOW, version=EPOCH_EACH))
    assert (transaction.state, transaction.record.producer_epoch) == (PREPARE_ABORT, EPOCH + 2)
    for _ in range(2):  # while the end is under way, and after it
        found = Transaction("id", read_transaction_value(transaction_value(transaction.record)))
        for each in (transaction, found):
            assert errors(each.end_each(ID, EPOCH, False, "r", NOW)) == [FENCED]
            assert errors(each.add_partitions(ID, EPOCH, [A], "r", NOW, EPOCH_EACH)) == [FENCED]
        if transaction.state is PREPARE_ABORT:
            carried_out(transaction, transaction.markers_written(NOW))
    for each in (transaction, found):
        assert errors(each.init((ID, EPOCH), 1, "r", NOW)) == [FENCED]
        assert carried_out(each, each.init(None, 1, "r", NOW)) == [Answer("r", NONE, ID, EPOCH + 3)]


@pytest.mark.parametrize("epoch", [EXHAUSTED_EPOCH - 1, EXHAUSTED_EPOCH])
def test_another_producer_that_fences_with_the_last_epochs_gets_another_id(epoch: int) -> None:
    transaction = made(ONGOING, epoch=epoch)
    carried_out(transaction, transaction.init(None, 1, "r", NOW, version=EPOCH_EACH))
    assert transaction.record.producer_epoch == LAST_EPOCH
    transaction.check()
    carried_out(transaction, transaction.markers_written(NOW))
    found = Transaction("id", read_transaction_value(transaction_value(transaction.record)))
    for each in (transaction, found):
        assert errors(each.end_each(ID, epoch, False, "r", NOW)) == [FENCED]
        assert errors(each.init((ID, epoch), 1, "r", NOW)) == [FENCED]
        assert carried_out(each, each.init(None, 1, "r", NOW, 50)) == [Answer("r", NONE, 50, 0)]


def test_who_lost_the_answer_to_its_end_is_told_the_same_epoch_when_it_begins_anew() -> None:
    transaction = ended()
    found = Transaction("id", read_transaction_value(transaction_value(transaction.record)))
    for each in (transaction, found):
        assert carried_out(each, each.init((ID, EPOCH), 1, "r", NOW)) == [Answer("r", NONE, ID, EPOCH + 1)]


def test_a_fence_that_was_not_written_is_tried_again_with_the_same_epoch() -> None:
    transaction = made(ONGOING)
    for _ in range(2):
        transaction.init(None, 1, "r", NOW, version=EPOCH_EACH)
        transaction.written(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        transaction.check()
        assert transaction.record.producer_epoch == EPOCH
    carried_out(transaction, transaction.init(None, 1, "r", NOW, version=EPOCH_EACH))
    assert transaction.record.producer_epoch == EPOCH + 2


@pytest.mark.parametrize("version", [0, EPOCH_EACH])
def test_nobody_goes_on_with_the_epoch_that_only_ever_fences(version: int) -> None:
    transaction = made(COMPLETE_ABORT, LAST_EPOCH, last_producer_epoch=EXHAUSTED_EPOCH, client_version=version)
    asked = (ID, LAST_EPOCH)
    assert not transaction.needs_producer_id_after(*asked, False)
    assert errors(transaction.end_each(*asked, False, "r", NOW)) == [FENCED]
    assert errors(transaction.end(*asked, False, "r", NOW)) == [FENCED]
    assert errors(transaction.add_partitions(*asked, [A], "r", NOW, version)) == [FENCED]
    assert transaction.verify(*asked, [A]) == {A: FENCED}
    transaction.check()
