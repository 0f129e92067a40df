"""A producer that could not be fenced at once is so later, also when each transaction has its own epoch by then."""

from __future__ import annotations

import pytest

from kbroker.coordinator.transaction import (
    COMPLETE_ABORT,
    EPOCH_EACH,
    EXHAUSTED_EPOCH,
    LAST_EPOCH,
    ONGOING,
    Answer,
    Transaction,
)
from kbroker.coordinator.transaction_records import read_transaction_value, transaction_value
from kbroker.protocol.errors import ErrorCode
from tests.kbroker.coordinator.test_transaction import ID, NOW, carried_out, errors, made

NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED


def not_fenced(epoch: int) -> Transaction:
    """Of a producer that another one tried to fence before transactions had an epoch each; the log did not take it."""
    transaction = made(ONGOING, epoch)
    transaction.init(None, 1, "r", NOW)
    transaction.written(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    transaction.check()
    return transaction


def with_successor(transaction: Transaction) -> tuple[Transaction, Transaction]:
    """The transaction, and what the next coordinator knows of it."""
    return transaction, Transaction("id", read_transaction_value(transaction_value(transaction.record)))


@pytest.mark.parametrize("epoch", [0, 3, *range(EXHAUSTED_EPOCH - 3, EXHAUSTED_EPOCH + 1)])
@pytest.mark.parametrize("fails_again", [0, 1, 3])
def test_another_producer_fences_after_a_fence_that_failed_before_the_upgrade(epoch: int, fails_again: int) -> None:
    transaction = not_fenced(epoch)
    for _ in range(fails_again):
        transaction.init(None, 1, "r", NOW, version=EPOCH_EACH)
        transaction.check()
        transaction.written(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    carried_out(transaction, transaction.init(None, 1, "r", NOW, version=EPOCH_EACH))
    assert transaction.record.producer_epoch == min(epoch + 2, LAST_EPOCH)
    for each in with_successor(transaction):
        assert errors(each.end_each(ID, epoch, False, "r", NOW)) == [FENCED]
    carried_out(transaction, transaction.markers_written(NOW))
    for each in with_successor(transaction):
        each.check()
        assert each.state is COMPLETE_ABORT
        assert errors(each.end_each(ID, epoch, False, "r", NOW)) == [FENCED]
        assert errors(each.init((ID, epoch), 1, "r", NOW)) == [FENCED]
        following = (ID, epoch + 3) if epoch + 2 < EXHAUSTED_EPOCH else (50, 0)
        assert carried_out(each, each.init(None, 1, "r", NOW, 50)) == [Answer("r", NONE, *following)]


def test_a_transaction_that_takes_too_long_after_such_a_fence_ends_as_the_next_coordinator_sees_it() -> None:
    transaction = not_fenced(3)
    carried_out(transaction, transaction.time_out(NOW + 60_001, version=EPOCH_EACH))
    carried_out(transaction, transaction.markers_written(NOW))
    for each in with_successor(transaction):
        each.check()
        assert each.end_each(ID, 3, False, "r", NOW) == [Answer("r", NONE, ID, 4)]
        assert carried_out(each, each.init((ID, 3), 1, "r", NOW)) == [Answer("r", NONE, ID, 4)]
