from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.replica.delayed import DelayedAnswer, DelayedFetch, settle_reached


def codes(results: list[Any]) -> list[Any]:
    return [each.code if isinstance(each, KafkaError) else each for each in results]


def two_results(timeout_ms: int = 1000) -> tuple[Any, list[Any]]:
    answer, acks = DelayedAnswer(timeout_ms, codes), list[Any]()
    for place, offset in enumerate((5, 7)):
        answer.results.append(f"result {place}")
        answer.wait_for(place, acks, offset)
    return answer, acks


def test_what_waits_for_nothing_has_no_future() -> None:
    answer = DelayedAnswer(1000, codes)
    answer.results.append("result")
    answer.settle(0)
    assert answer.future is None


async def test_a_request_is_answered_when_its_last_result_counts() -> None:
    answer, acks = two_results()
    acks = settle_reached(acks, 6)
    assert not answer.future.done()
    assert settle_reached(acks, 7, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND) == []
    assert await answer.future == ["result 0", ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


async def test_a_request_times_out_for_what_does_not_count_yet() -> None:
    answer, acks = two_results(timeout_ms=10)
    settle_reached(acks, 5)
    assert await asyncio.wait_for(answer.future, 1) == ["result 0", ErrorCode.REQUEST_TIMED_OUT]
    answer.settle(1)


async def test_a_result_that_comes_later_is_waited_for() -> None:
    answer = DelayedAnswer(1000, codes)
    answer.results += [None, None]
    answer.expect(0)
    answer.expect(1)
    answer.results[1] = "late"
    answer.settle(1)
    assert answer.future is not None
    assert not answer.future.done()
    answer.fail(0, KafkaError(ErrorCode.CORRUPT_MESSAGE))
    assert await answer.future == [ErrorCode.CORRUPT_MESSAGE, "late"]


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
