import asyncio

import pytest

from kbroker.client.closing import Closing


async def test_who_is_cancelled_ends_nothing_and_others_wait_for_the_end() -> None:
    done: list[float] = []
    goes_on = asyncio.Event()

    async def close(timeout: float) -> None:
        await goes_on.wait()
        done.append(timeout)

    closing = Closing(close)
    first = asyncio.ensure_future(closing.run(3.0))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.ensure_future(closing.run(5.0))
    goes_on.set()
    await second
    await closing.run(7.0)
    assert done == [3.0]


async def test_what_is_called_on_the_way_does_not_wait_for_itself() -> None:
    async def close() -> None:
        await closing.run()
        raise ZeroDivisionError

    closing = Closing(close)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await closing.run()
