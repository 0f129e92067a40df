import asyncio
import logging
import threading
from collections.abc import Callable

import pytest

from kbroker.client.delivery import Batch, Delivery
from kbroker.client.errors import IllegalState, TimedOut
from kbroker.client.table_delivery import RowRange, TableDelivery


def batch_of_three() -> Batch:
    batch = Batch("t", 1, None, 0.0, 1.0)
    batch.count = 3
    return batch


def table_of(batch: Batch) -> TableDelivery:
    delivery = TableDelivery("t")
    delivery.add(batch, RowRange(1, 0, 2, 3))
    delivery.seal()
    return delivery


MAKERS: list[Callable[[Batch], Delivery | TableDelivery]] = [lambda batch: Delivery(batch, 2, 5), table_of]


@pytest.mark.parametrize("make", MAKERS)
def test_a_delivery_may_be_awaited_on_any_loop(make: Callable[[Batch], Delivery | TableDelivery]) -> None:
    batch = batch_of_three()

    async def wait() -> None:
        threading.Timer(0.05, batch.finish, (40,)).start()
        async with asyncio.timeout(20):
            await make(batch)

    asyncio.run(wait(), debug=True)  # which refuses calls from the wrong thread
    assert Delivery(batch, 2, 5).result(0) == ("t", 1, 42, 5)


@pytest.mark.parametrize("make", MAKERS)
def test_a_loop_that_is_closed_before_the_delivery_comes_is_left_alone(
    make: Callable[[Batch], Delivery | TableDelivery], caplog: pytest.LogCaptureFixture
) -> None:
    batch = batch_of_three()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await make(batch)

    asyncio.run(give_up())
    heard: list[int] = []
    batch.when_done(lambda: heard.append(1))
    with caplog.at_level(logging.INFO):
        batch.finish(40)
    assert (heard, caplog.text) == ([1], "")


def test_waiting_with_a_limit_ends_and_says_so() -> None:
    with pytest.raises(TimedOut, match=r"not acknowledged within 0\.01 s"):
        Delivery(batch_of_three(), 0, 5).result(0.01)


@pytest.mark.parametrize("make", MAKERS)
def test_the_thread_that_tells_the_outcome_is_not_left_to_wait_for_it(
    make: Callable[[Batch], Delivery | TableDelivery],
) -> None:
    batch = batch_of_three()
    batch.thread = threading.get_ident()
    delivery = make(batch)
    for wait in (delivery.result, delivery.exception):
        with pytest.raises(IllegalState, match=r"await it, or use add_done_callback"):
            wait(60)
    with pytest.raises(TimedOut):
        delivery.exception(0)
    batch.finish(40)
    assert delivery.exception() is None
