"""What all readers together hold."""

from __future__ import annotations

import asyncio

import pytest

from kbroker.page.held import FREE, WORKED, Held, TooMany, size_of
from kbroker.protocol.records.record import Record

LARGE = WORKED // 2 + 1
LIMIT_S = 20


def test_all_of_a_record_counts() -> None:
    headers = (("name", b"12"), ("n", None))
    assert size_of([Record(0, 0, 0, b"key", b"value", headers), Record(1, 0, 0, None, None)]) == 3 + 5 + 4 + 2 + 1


async def test_small_reads_wait_for_nobody() -> None:
    held = Held()
    async with held.hold(FREE):
        assert not held.is_littered()
    async with held.hold(WORKED), held.hold(FREE), held.hold(FREE):
        assert held.worked == WORKED
    assert [held.is_littered(), held.is_littered()] == [True, False]


async def test_large_ones_wait_for_each_other_and_one_that_is_larger_than_all_there_is_goes_alone() -> None:
    held = Held()
    order: list[str] = []

    async def work(name: str, size: int) -> None:
        async with held.hold(size):
            order.append(f"{name} begins")
            await asyncio.sleep(0.01)
            order.append(f"{name} ends")

    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(work("a", 3 * WORKED), work("b", LARGE))
    assert order == ["a begins", "a ends", "b begins", "b ends"]
    assert (held.worked, held.waiting) == (0, 0)


async def test_those_for_whom_there_is_no_room_to_wait_are_told_so() -> None:
    held = Held()
    async with held.hold(LARGE):
        waiting = asyncio.ensure_future(held.hold(LARGE).__aenter__())
        await asyncio.sleep(0)
        with pytest.raises(TooMany, match="when they have ended"):
            await held.hold(LARGE).__aenter__()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert held.waiting == 0, "whoever has gone waits no more"
    async with asyncio.timeout(LIMIT_S), held.hold(LARGE):
        assert held.worked == LARGE
