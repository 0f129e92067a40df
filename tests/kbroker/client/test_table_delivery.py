"""The one future of many batches."""

import asyncio
import pickle

import pytest

from kbroker.client.delivery import Batch
from kbroker.client.table_delivery import PartitionOffsets, RowRange, TableDelivery, TableNotWritten


def batch(partition: int, count: int = 10) -> Batch:
    made = Batch("t", partition, None, 0.0, 1.0)
    made.count = count
    return made


def test_it_is_done_when_the_last_batch_is() -> None:
    delivery = TableDelivery("t")
    batches = [batch(0), batch(0), batch(1)]
    for number, one in enumerate(batches):
        delivery.add(one, RowRange(one.partition, number, number, 10))
    delivery.seal()
    for number, one in enumerate(batches):
        with pytest.raises(TimeoutError):
            delivery.result(0.01)
        one.finish(100 * number)
    written = delivery.result(0)
    assert written.partitions == {0: PartitionOffsets(0, 109, 20), 1: PartitionOffsets(200, 209, 10)}


async def test_it_can_be_awaited_and_pickled_with_its_failures() -> None:
    delivery = TableDelivery("t")
    one = batch(3, 5)
    delivery.add(one, RowRange(3, 5, 9, 5))
    delivery.fail(RowRange(None, 10, 11, 2), ValueError("x"))
    delivery.seal()
    asyncio.get_running_loop().call_later(0.01, lambda: one.finish(-1, error=ConnectionError("gone")))
    with pytest.raises(TableNotWritten) as caught:
        await delivery
    assert caught.value.failed_rows == 7
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_the_rows_of_a_batch_that_was_split_are_named_each() -> None:
    delivery = TableDelivery("t")
    whole, shared = batch(0), batch(1)
    delivery.add(whole, RowRange(0, 20, 29, 10))
    delivery.add(shared, RowRange(1, 30, 59, 10))
    delivery.seal()
    for one in (whole, shared):
        parts = [batch(one.partition, count) for count in (4, 1, 5)]
        one.split_into(parts)
        for number, part in enumerate(parts):
            part.finish(7, error=ValueError("too large") if number == 1 else None)
    failed = [rows for rows, _ in delivery.exception(0).failures]  # type: ignore[union-attr]
    assert failed == [RowRange(0, 24, 24, 1), RowRange(1, 34, 54, 1)]
    assert delivery.exception(0).failed_rows == 2  # type: ignore[union-attr]
