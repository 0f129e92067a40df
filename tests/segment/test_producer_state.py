"""The rules for idempotent producers, and snapshots."""

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import BatchHeader, read_header
from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.segment.producer_state import Marker, ProducerState, Verification, marker_of, read_snapshot, snapshot_bytes
from kbroker.segment.transaction_index import AbortedTransaction
from tests.segment.batches import NOW, batch


def header(
    sequence: int, count: int = 1, epoch: int = 0, transactional: bool = False, producer_id: int = 7
) -> BatchHeader:
    return read_header(
        batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional)
    )


def state_after(*sequences: int, epoch: int = 0) -> ProducerState:
    state = ProducerState()
    for offset, sequence in enumerate(sequences):
        state.append(header(sequence, epoch=epoch), offset, NOW, None)
    return state


def code_of(state: ProducerState, batch_header: BatchHeader) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        state.check(batch_header, from_client=True)
    return caught.value.code


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert ProducerState().check(header(42), from_client=True) is None


def test_the_next_sequence_is_taken_and_a_gap_refused() -> None:
    state = state_after(0, 1, 2)
    assert state.check(header(3), from_client=True) is None
    assert code_of(state, header(4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(header(9), from_client=False) is None


def test_each_of_the_last_five_batches_is_recognised() -> None:
    state = state_after(*range(7))
    for sequence in range(2, 7):
        repeated = state.check(header(sequence), from_client=True)
        assert repeated is not None
        assert repeated.first_offset == sequence
    assert code_of(state, header(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero() -> None:
    state = state_after(0, 1, epoch=3)
    assert code_of(state, header(2, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(state, header(2, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(header(0, epoch=4), from_client=True) is None


def test_sequences_wrap_around_to_zero() -> None:
    state = ProducerState()
    state.append(header(2**31 - 2, count=4), 0, NOW, None)
    assert state.check(header(2), from_client=True) is None
    repeated = state.check(header(2**31 - 2, count=4), from_client=True)
    assert repeated is not None
    assert repeated.first_sequence == 2**31 - 2


def test_a_batch_outside_of_an_open_transaction_is_refused() -> None:
    state = ProducerState()
    state.append(header(0, transactional=True), 10, NOW, None)
    assert state.transactions.first_unstable_offset == 10
    assert code_of(state, header(1)) is ErrorCode.INVALID_TXN_STATE


def test_silent_producers_are_forgotten_unless_a_transaction_is_open() -> None:
    state = state_after(0)
    for steady_ms in (500, 1499):  # noticed, and not silent for long enough
        state.remove_expired(steady_ms, 1000)
        assert 7 in state.producers
    state.append(header(1), 1, NOW, None)
    state.remove_expired(1500, 1000)
    assert 7 in state.producers, "something came since"
    state.remove_expired(2500, 1000)
    assert not state.producers
    state.append(header(0, transactional=True), 5, NOW, None)
    for steady_ms in (3000, 8000):
        state.remove_expired(steady_ms, 1000)
    assert 7 in state.producers


def test_neither_old_records_nor_a_clock_set_forward_make_a_producer_forgotten() -> None:
    state = ProducerState()
    state.append(header(0), 0, 1_000_000, None)
    state.remove_expired(500, 1000)
    state.remove_expired(600, 1000)
    assert 7 in state.producers
    again = ProducerState()
    again.load(read_snapshot(snapshot_bytes(state.producers.values())), 1, NOW, 1000)
    assert again.check(header(0), from_client=True) is not None, "what it repeats is known"


def test_a_snapshot_leaves_out_producers_that_had_expired_when_its_last_records_came() -> None:
    state = ProducerState()
    for producer_id, timestamp in ((1, NOW - 1000), (2, NOW - 999), (3, NOW)):
        state.append(header(0, producer_id=producer_id), producer_id, timestamp, None)
    entries = read_snapshot(snapshot_bytes(state.producers.values()))
    for now, kept in ((NOW + 10**9, {2, 3}), (NOW - 500, {1, 2, 3})):
        state.load(entries, 4, now, 1000)
        assert set(state.producers) == kept


def test_a_snapshot_brings_back_the_last_batch_and_the_open_transaction() -> None:
    state = state_after(0, 1)
    state.append(header(2, count=3, transactional=True), 20, NOW, None)
    again = ProducerState()
    again.load(read_snapshot(snapshot_bytes(state.producers.values())), 23, NOW, 1000)
    assert again.transactions.first_unstable_offset == 20
    repeated = again.check(header(2, count=3, transactional=True), from_client=True)
    assert repeated is not None
    assert (repeated.first_offset, repeated.last_offset) == (20, 22)
    assert again.check(header(5, transactional=True), from_client=True) is None


def marker(
    control_type: ControlType = ControlType.COMMIT, epoch: int = 0, offset: int = 0
) -> tuple[BatchHeader, Marker | None]:
    data = control_batch(control_type, 7, epoch, 3, NOW, base_offset=offset)
    return read_header(data), marker_of(read_header(data), data)


def test_an_abort_with_data_gets_an_index_entry_and_nothing_else_does() -> None:
    state = ProducerState()
    commit, abort = marker(offset=1), marker(ControlType.ABORT, offset=3)
    state.append(header(0, transactional=True), 0, NOW, None)
    assert state.append(commit[0], 1, NOW, commit[1]) is None
    state.append(header(1, transactional=True), 2, NOW, None)
    assert state.append(abort[0], 3, NOW, abort[1]) == AbortedTransaction(7, 2, 3, 4)
    assert state.append(abort[0], 4, NOW, abort[1]) is None
    assert state.producers[7].coordinator_epoch == 3


def test_an_emptied_marker_tells_its_producers_epoch_and_opens_nothing() -> None:
    state = state_after(0)
    emptied, _ = marker(epoch=4, offset=9)
    emptied.count = 0
    assert marker_of(emptied, b"") is None
    assert state.append(emptied, 9, NOW, None) is None
    assert state.transactions.first_unstable_offset is None
    assert code_of(state, header(1, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert state.check(header(0, epoch=4), from_client=True) is None


@pytest.mark.parametrize("position", range(0, 56, 5))
def test_a_damaged_snapshot_is_refused(position: int) -> None:
    data = bytearray(snapshot_bytes(state_after(0).producers.values()))
    assert len(data) == 10 + 46
    data[position] ^= 0x10
    with pytest.raises(ValueError, match=r"version|checksum|entries"):
        read_snapshot(bytes(data))


# --- verification of transactions (KIP-890) -------------------------------------------------------------------


def first(sequence: int = 0, epoch: int = 0) -> BatchHeader:
    return header(sequence, epoch=epoch, transactional=True)


def verified_code(state: ProducerState, batch_header: BatchHeader, verified: Verification | None) -> ErrorCode:
    try:
        state.check(batch_header, True, verified)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def end(state: ProducerState, offset: int, control_type: ControlType, epoch: int = 0) -> None:
    marker = control_batch(control_type, 7, epoch, 3, NOW)
    state.append(read_header(marker), offset, NOW, marker_of(read_header(marker), marker))


@pytest.mark.parametrize("known", [False, True], ids=["of a producer that is unknown", "of one that is known"])
def test_the_first_batch_of_a_transaction_has_to_be_verified(known: bool) -> None:
    state = ProducerState()
    sequence = 0
    if known:
        state.append(first(), 0, NOW, None)
        end(state, 1, ControlType.COMMIT)
        sequence = 1
    assert verified_code(state, first(sequence), None) is ErrorCode.INVALID_TXN_STATE
    verification = state.verify(7, sequence, 0)
    assert verification is not None
    assert verified_code(state, first(sequence), None) is ErrorCode.INVALID_TXN_STATE
    assert verified_code(state, first(sequence), verification) is ErrorCode.NONE
    assert state.check(header(sequence), True, None) is None, "what is in no transaction need not be"


def test_the_batch_that_opens_a_transaction_uses_its_verification_up() -> None:
    state = ProducerState()
    verification = state.verify(7, 0, 0)
    state.append(first(), 0, NOW, None)
    assert not state.verifications
    assert state.verify(7, 1, 0) is None
    assert verified_code(state, first(1), None) is ErrorCode.NONE
    end(state, 1, ControlType.ABORT)
    assert verified_code(state, first(1), verification) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_between_the_question_and_the_append_makes_the_append_fail() -> None:
    state = ProducerState()
    stale = state.verify(7, 0, 0)
    end(state, 0, ControlType.ABORT)
    assert verified_code(state, first(), stale) is ErrorCode.INVALID_TXN_STATE
    fresh = state.verify(7, 0, 0)
    assert verified_code(state, first(), stale) is ErrorCode.INVALID_TXN_STATE, "verified for the one before"
    assert verified_code(state, first(), fresh) is ErrorCode.NONE


def test_a_batch_repeated_after_its_transaction_is_over_is_recognised_without_verification() -> None:
    state = ProducerState()
    state.append(first(), 5, NOW, None)
    end(state, 6, ControlType.COMMIT)
    repeated = state.check(first(), True, None)
    assert repeated is not None
    assert repeated.first_offset == 5


def test_a_later_batch_waits_for_the_one_that_could_not_be_verified() -> None:
    state = ProducerState()
    state.verify(7, 5, 0)
    verification = state.verify(7, 2, 0)
    assert verification is state.verify(7, 5, 0)
    assert verified_code(state, first(5), verification) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verified_code(state, first(2), verification) is ErrorCode.NONE
    assert state.check(first(5), False, verification) is None, "coordinators count no sequences"
    state.verify(7, 0, 1)
    assert verified_code(state, first(0, epoch=1), verification) is ErrorCode.NONE
    assert verified_code(state, first(2, epoch=1), verification) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_that_wait_for_verification_are_those_of_the_newest_epoch() -> None:
    state = ProducerState()
    verification = state.verify(7, 2, 0)
    assert verification is not None
    for sequence, epoch, expected in ((3, 1, (1, 3)), (1, 0, (1, 3)), (4, 1, (1, 3)), (2, 1, (1, 2))):
        state.verify(7, sequence, epoch)
        assert (verification.epoch, verification.lowest_sequence) == expected


def test_the_transaction_of_a_newer_epoch_has_to_be_verified_though_the_older_one_is_open() -> None:
    state = ProducerState()
    state.append(first(), 0, NOW, None)
    assert verified_code(state, first(0, epoch=1), None) is ErrorCode.INVALID_TXN_STATE
    assert state.verify(7, 0, 1) is not None


def test_an_older_epoch_is_told_so_while_a_newer_ones_transaction_is_open() -> None:
    state = ProducerState()
    state.append(first(epoch=1), 0, NOW, None)
    assert verified_code(state, first(1), None) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_verifications_that_nobody_has_used_are_forgotten() -> None:
    state = ProducerState()
    verification = state.verify(7, 0, 0)
    state.remove_expired(1_000, 500)
    state.remove_expired(1_499, 500)
    assert state.verify(7, 0, 0) is verification
    state.remove_expired(1_500, 500)
    assert not state.verifications


def test_a_marker_that_is_refused_leaves_the_verification_as_it_is() -> None:
    state = state_after(0, epoch=3)
    verification = state.verify(7, 1, 3)
    marker = read_header(control_batch(ControlType.ABORT, 7, 2, 0, NOW))
    assert code_of(state, marker) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert verified_code(state, first(1, epoch=3), verification) is ErrorCode.NONE
