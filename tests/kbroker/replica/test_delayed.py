from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from kbroker.protocol.errors import ErrorCode
from kbroker.replica.delayed import DelayedFetch, DelayedProduce, settle_reached


async def test_a_produce_is_answered_when_its_last_partition_is_settled() -> None:
    acks: list[Any] = []
    delayed = DelayedProduce(1000, dict)
    delayed.wait_for(0, acks, 5)
    delayed.wait_for(1, acks, 7)
    acks = settle_reached(acks, 6)
    assert not delayed.future.done()
    assert settle_reached(acks, 7, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND) == []
    assert await delayed.future == {1: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}


async def test_a_produce_times_out_for_what_is_not_settled() -> None:
    acks: list[Any] = []
    delayed = DelayedProduce(10, dict)
    delayed.wait_for(0, acks, 5)
    delayed.wait_for(1, acks, 7)
    settle_reached(acks, 5)
    assert await asyncio.wait_for(delayed.future, 1) == {1: ErrorCode.REQUEST_TIMED_OUT}
    delayed.settle(1, ErrorCode.NONE)


class Attempts:
    by_log_end = False

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.finals: list[bool] = []

    def attempt(self, final: bool) -> Any:
        self.finals.append(final)
        return self.answers.pop(0) if self.answers else "late"


def partition() -> Any:
    return SimpleNamespace(consumers=set(), followers=set())


async def test_many_events_of_one_turn_are_one_attempt() -> None:
    fetch, watched = Attempts("found"), [partition(), partition()]
    delayed = DelayedFetch(fetch, watched, 1000)
    assert all(delayed in each.consumers for each in watched)
    for _ in range(5):
        delayed.touch()
    assert await asyncio.wait_for(delayed.future, 1) == "found"
    assert fetch.finals == [False]
    assert not any(each.consumers for each in watched)


async def test_when_its_time_is_over_a_fetch_is_answered_in_any_case() -> None:
    fetch = Attempts(None, None)
    delayed = DelayedFetch(fetch, [partition()], 20)
    delayed.touch()
    fetch.answers = [None]
    assert await asyncio.wait_for(delayed.future, 1) == "late"
    assert fetch.finals == [False, True]


async def test_a_failing_attempt_is_the_answer() -> None:
    class Failing(Attempts):
        def attempt(self, final: bool) -> Any:
            raise ZeroDivisionError

    delayed = DelayedFetch(Failing(), [], 1000)
    delayed.touch()
    await asyncio.wait([delayed.future], timeout=1)
    assert isinstance(delayed.future.exception(), ZeroDivisionError)


async def test_a_cancelled_fetch_waits_for_nothing() -> None:
    watched = partition()
    delayed = DelayedFetch(Attempts(), [watched], 1000)
    delayed.future.cancel()
    await asyncio.sleep(0)
    assert not watched.consumers
