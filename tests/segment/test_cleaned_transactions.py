"""Markers stay while there is data of their transaction before them."""

from kbroker.protocol.records.batch import BatchHeader, read_header
from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.segment.cleaned_transactions import CleanedTransactions
from kbroker.segment.transaction_index import AbortedTransaction
from tests.segment.batches import batch


def data(producer_id: int, base_offset: int, transactional: bool = True) -> BatchHeader:
    header = read_header(batch(2, producer_id=producer_id, producer_epoch=0, transactional=transactional))
    header.base_offset = base_offset
    return header


def marker(producer_id: int, offset: int) -> BatchHeader:
    return read_header(control_batch(ControlType.COMMIT, producer_id, 0, 0, 0, base_offset=offset))


def test_only_transactional_data_of_the_producer_within_the_transaction_is_aborted() -> None:
    transactions = CleanedTransactions()
    aborted = AbortedTransaction(5, 10, 20, 20)
    transactions.add([aborted, aborted])
    assert not transactions.on_data(data(5, 5))
    assert transactions.on_marker(marker(5, 8), ControlType.COMMIT) == (False, None)
    assert transactions.on_data(data(5, 10))
    assert not transactions.on_data(data(6, 12))
    assert not transactions.on_data(data(5, 14, transactional=False))
    assert transactions.on_data(data(5, 16))
    assert transactions.on_marker(marker(5, 20), ControlType.ABORT) == (False, aborted)
    assert not transactions.on_data(data(5, 21))
    assert transactions.on_marker(marker(6, 23), ControlType.COMMIT) == (False, None)


def test_a_marker_without_data_may_go_and_its_index_entry_with_it() -> None:
    transactions = CleanedTransactions()
    transactions.add([AbortedTransaction(5, 10, 20, 20)])
    assert transactions.on_marker(marker(5, 20), ControlType.ABORT) == (True, None)
    assert transactions.on_marker(marker(5, 30), ControlType.COMMIT) == (True, None)
    assert not transactions.on_data(data(5, 31))


def test_an_abort_marker_whose_data_was_met_and_that_no_index_knows_is_told() -> None:
    transactions = CleanedTransactions()
    transactions.add([AbortedTransaction(5, 10, 20, 20)])
    for first, pid, kind in [(5, 5, "COMMIT"), (10, 5, "ABORT"), (21, 6, "ABORT"), (24, 7, "COMMIT")]:
        transactions.on_data(data(pid, first))
        assert transactions.has_undecided
        transactions.on_marker(marker(pid, first + 2), ControlType[kind])
    transactions.on_marker(marker(6, 30), ControlType.ABORT)  # without data
    assert (transactions.lost, transactions.has_undecided) == ([23], False)


def test_an_emptied_marker_may_go_and_one_of_an_unknown_kind_stays() -> None:
    transactions = CleanedTransactions()
    assert transactions.on_marker(marker(5, 20), None) == (True, None)
    assert transactions.on_marker(marker(5, 21), ControlType.UNKNOWN) == (False, None)
