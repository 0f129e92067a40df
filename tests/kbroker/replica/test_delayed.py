from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.replica.delayed import (
    LONGEST_PAUSE_S,
    SHORTEST_PAUSE_S,
    DelayedAnswer,
    DelayedFetch,
    EachAnswer,
    settle_reached,
)
from tests.kbroker.network.serving import until


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
    assert settle_reached(acks, 7) == []
    assert await answer.future == ["result 0", "result 1"]


async def test_a_request_times_out_for_what_does_not_count_yet() -> None:
    answer, acks = two_results(timeout_ms=10)
    settle_reached(acks, 5)
    assert await asyncio.wait_for(answer.future, 20) == ["result 0", ErrorCode.REQUEST_TIMED_OUT]
    answer.settle(1)


def each_told(timeout_ms: int = 60_000) -> tuple[EachAnswer, list[Any]]:
    told: list[Any] = []
    return EachAnswer(timeout_ms, lambda place, result: told.append((place, *codes([result])))), told


async def test_each_result_is_told_once_and_as_soon_as_it_counts() -> None:
    answer, told = each_told()
    acks: list[Any] = []
    answer.results.append("at once")
    answer.tell(0)
    assert told == [(0, "at once")]
    assert not answer.is_over
    for place, offset in ((1, 5), (2, 7)):
        answer.results.append(f"result {place}")
        answer.wait_for(place, acks, offset)
        answer.tell(place)
    assert told == [(0, "at once")]
    acks = settle_reached(acks, 6)
    assert told[1:] == [(1, "result 1")]
    assert not answer.is_over
    answer.settle(2, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    settle_reached(acks, 7)
    assert told[2:] == [(2, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert answer.is_over


async def test_what_does_not_count_in_time_is_told_so_each_by_itself() -> None:
    answer, told = each_told(timeout_ms=1)
    acks: list[Any] = []
    for place in range(3):
        answer.results.append(f"result {place}")
        answer.wait_for(place, acks, 5 + place)
    acks = settle_reached(acks, 5)
    await until(lambda: answer.is_over)
    assert told[0] == (0, "result 0")
    assert sorted(told[1:]) == [(1, ErrorCode.REQUEST_TIMED_OUT), (2, ErrorCode.REQUEST_TIMED_OUT)]
    settle_reached(acks, 9)
    assert len(told) == 3


async def test_results_are_told_while_others_are_still_gathered_and_answered_together() -> None:
    told: list[Any] = []
    answer, acks = EachAnswer(60_000, lambda place, result: told.append((place, result)), codes), list[Any]()
    answer.hold()
    for place in range(2):
        answer.results.append(f"result {place}")
        answer.wait_for(place, acks, 5 + place)
    acks = settle_reached(acks, 5)
    assert told == [(0, "result 0")]
    future = answer.release()
    assert not future.done()
    settle_reached(acks, 6)
    assert told[1:] == [(1, "result 1")]
    assert await future == ["result 0", "result 1"]


async def test_what_is_late_while_others_are_gathered_is_told_so_when_all_are() -> None:
    answer, told = each_told(timeout_ms=1)
    answer.hold()
    answer.results.append("result")
    answer.wait_for(0, [], 5)
    await asyncio.sleep(0.01)
    assert told == []
    assert answer.release().done()
    assert told == [(0, ErrorCode.REQUEST_TIMED_OUT)]


async def test_a_result_that_cannot_be_told_keeps_no_other_from_being_told() -> None:
    told: list[int] = []

    def tell(place: int, result: Any) -> None:
        if place == 0:
            raise OSError("full")
        told.append(place)

    answer, acks = EachAnswer(60_000, tell), list[Any]()
    for place in range(2):
        answer.results.append(None)
        answer.wait_for(place, acks, 5)
    assert settle_reached(acks, 5) == []
    assert told == [1]
    assert answer.is_over


async def test_what_is_late_at_once_has_one_error_for_all() -> None:
    answer = DelayedAnswer(10, list)
    for place in range(3):
        answer.results.append(None)
        answer.expect(place)
    assert answer.future is not None
    late, *others = await asyncio.wait_for(answer.future, 20)
    assert late.code is ErrorCode.REQUEST_TIMED_OUT
    assert all(each is late for each in others)


async def test_nothing_is_answered_while_results_are_still_gathered() -> None:
    answer, acks = DelayedAnswer(1000, codes), list[Any]()
    answer.hold()
    answer.results.append("first")
    answer.wait_for(0, acks, 5)
    settle_reached(acks, 5)
    assert answer.future is not None
    assert not answer.future.done()
    answer.results.append("second")
    assert await answer.release() == ["first", "second"]


async def test_time_that_is_over_while_results_are_gathered_is_over_at_the_end() -> None:
    answer, acks = DelayedAnswer(5, codes), list[Any]()
    answer.hold()
    await asyncio.sleep(0.02)
    answer.results += ["first", "second"]
    answer.wait_for(1, acks, 5)
    assert await answer.release() == ["first", ErrorCode.REQUEST_TIMED_OUT]


async def test_an_answer_that_cannot_be_made_fails_and_those_behind_it_are_settled_all_the_same() -> None:
    def refuse(results: list[Any]) -> list[Any]:
        raise ValueError("no answer")

    acks = list[Any]()
    answers = [DelayedAnswer(1000, refuse), DelayedAnswer(1000, codes)]
    for answer in answers:
        answer.results.append("result")
        answer.wait_for(0, acks, 5)
    assert settle_reached(acks, 5) == []
    first, second = (answer.future for answer in answers)
    assert first is not None
    assert second is not None
    with pytest.raises(ValueError, match="no answer"):
        await first
    assert await second == ["result"]


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


class Played:
    """A fetch that has enough at its n-th look."""

    by_log_end = False

    def __init__(self, enough_at: int) -> None:
        self.enough_at = enough_at
        self.looks: list[list[Any]] = []
        self.cold: list[Any] = []
        self.expiries = 0

    def expired(self) -> None:
        self.expiries += 1

    def is_enough(self, changed: Any) -> bool:
        self.looks.append(list(changed))
        return len(self.looks) >= self.enough_at

    def attempt(self, final: bool, patient: bool = False) -> Any:
        if patient:
            self.cold = []
        return "what there is" if (final or patient) and not self.cold else None


def reading(cold: list[Any]) -> Any:
    """A disk that takes its time."""
    return asyncio.ensure_future(asyncio.sleep(0.05))


class Watched:
    def __init__(self) -> None:
        self.consumers: dict[Any, None] = {}
        self.followers: dict[Any, None] = {}


async def test_many_events_of_one_turn_are_one_look_at_what_has_changed() -> None:
    fetch, watched = Played(1), [Watched() for _ in range(3)]
    delayed: Any = DelayedFetch(fetch, watched, 60_000, reading)  # type: ignore[arg-type]
    assert all(delayed in each.consumers for each in watched)
    for _ in range(5):
        delayed.touch(watched[0])
        delayed.touch(watched[2])
    assert await asyncio.wait_for(delayed.reply, 20) == "what there is"
    assert fetch.looks == [[watched[0], watched[2]]]
    assert not any(each.consumers for each in watched)


async def test_looks_become_rarer_and_miss_nothing() -> None:
    fetch, watched = Played(99), Watched()
    delayed: Any = DelayedFetch(fetch, [watched], 60_000, reading)  # type: ignore[list-item]
    begun = time.monotonic()
    async with asyncio.timeout(20):
        while len(fetch.looks) < 8:
            delayed.touch(watched)
            await asyncio.sleep(0)
    assert len(fetch.looks) <= 5 + (time.monotonic() - begun) / LONGEST_PAUSE_S
    fetch.enough_at = len(fetch.looks) + 1
    delayed.touch(watched)
    assert await asyncio.wait_for(delayed.reply, 20) == "what there is"


async def test_when_its_time_is_over_a_fetch_is_answered_in_any_case() -> None:
    fetch, watched = Played(99), Watched()
    delayed: Any = DelayedFetch(fetch, [watched], 20, reading)  # type: ignore[list-item]
    delayed.touch(watched)
    assert await asyncio.wait_for(delayed.reply, 20) == "what there is"
    assert len(fetch.looks) == 1
    assert fetch.expiries == 1


async def test_a_failing_look_is_the_answer() -> None:
    class Failing(Played):
        def is_enough(self, changed: Any) -> bool:
            raise ZeroDivisionError

    watched = Watched()
    delayed: Any = DelayedFetch(Failing(1), [watched], 60_000, reading)  # type: ignore[list-item]
    delayed.touch(watched)
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(delayed.reply, 20)


async def test_a_cancelled_fetch_waits_for_nothing() -> None:
    watched = Watched()
    delayed = DelayedFetch(Played(1), [watched], 60_000, reading)  # type: ignore[list-item]
    delayed.reply.cancel()
    await asyncio.sleep(0)
    assert not watched.consumers


async def test_what_is_not_in_memory_is_waited_for_though_the_time_is_over() -> None:
    fetch, watched = Played(1), Watched()
    fetch.cold = ["cold"]
    delayed: Any = DelayedFetch(fetch, [watched], 0, reading)  # type: ignore[list-item]
    delayed.touch(watched)
    await asyncio.sleep(0.02)
    assert not delayed.reply.done()
    assert await asyncio.wait_for(delayed.reply, 20) == "what there is"


class InTurns(Played):
    """A fetch of so much that an attempt takes several turns; it says when it is to end, and how."""

    def __init__(self, enough_at: int) -> None:
        super().__init__(enough_at)
        self.attempts: list[asyncio.Future[Any]] = []

    def attempt(self, final: bool, patient: bool = False) -> Any:
        self.attempts.append(asyncio.get_running_loop().create_future())
        return self.attempts[-1]


async def test_what_changes_while_an_attempt_takes_turns_is_looked_at_after_it() -> None:
    fetch, watched = InTurns(1), Watched()
    delayed: Any = DelayedFetch(fetch, [watched], 10_000, reading)  # type: ignore[list-item]
    delayed.touch(watched)
    await until(lambda: len(fetch.attempts) == 1)
    delayed.touch(watched)
    await asyncio.sleep(4 * SHORTEST_PAUSE_S)
    assert len(fetch.looks) == 1, "nothing is asked of a fetch that is at it"
    fetch.attempts[0].set_result(None)
    await until(lambda: len(fetch.attempts) == 2)
    assert len(fetch.looks) == 2
    fetch.attempts[1].set_result("what there is")
    assert await asyncio.wait_for(delayed.reply, 20) == "what there is"


async def test_a_fetch_whose_time_is_over_while_an_attempt_takes_turns_is_attempted_once_more() -> None:
    fetch, watched = InTurns(1), Watched()
    delayed: Any = DelayedFetch(fetch, [watched], 10_000, reading)  # type: ignore[list-item]
    delayed.touch(watched)
    await until(lambda: len(fetch.attempts) == 1)
    delayed.end()
    assert len(fetch.attempts) == 1
    fetch.attempts[0].set_result(None)
    await until(lambda: len(fetch.attempts) == 2)
    fetch.attempts[1].set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(delayed.reply, 20)


async def test_an_attempt_that_takes_turns_ends_with_the_client() -> None:
    fetch, watched = InTurns(1), Watched()
    delayed: Any = DelayedFetch(fetch, [watched], 10_000, reading)  # type: ignore[list-item]
    delayed.touch(watched)
    await until(lambda: len(fetch.attempts) == 1)
    delayed.reply.cancel()
    await until(fetch.attempts[0].cancelled)


class LooksInTurns(Played):
    """A fetch of so much that a look at what has changed takes several turns; it says when it is to end, and how."""

    def __init__(self) -> None:
        super().__init__(0)
        self.ends: list[asyncio.Future[bool]] = []

    def is_enough(self, changed: Any) -> Any:
        super().is_enough(changed)
        self.ends.append(asyncio.get_running_loop().create_future())
        return self.ends[-1]


Looking = tuple[LooksInTurns, Any, Any]


@pytest.fixture
async def looking() -> Looking:
    """A fetch that looks at what has changed, and takes its time; what it waits for; what waits."""
    fetch, watched = LooksInTurns(), Watched()
    delayed: Any = DelayedFetch(fetch, [watched], 10_000, reading)  # type: ignore[list-item]
    delayed.touch(watched)
    await until(lambda: len(fetch.ends) == 1)
    return fetch, watched, delayed


async def test_what_changes_during_a_look_in_turns_is_looked_at_after_it(looking: Looking) -> None:
    fetch, watched, delayed = looking
    delayed.touch(watched)
    await asyncio.sleep(4 * SHORTEST_PAUSE_S)
    assert len(fetch.looks) == 1, "nothing is asked of a fetch that is at it"
    fetch.ends[0].set_result(False)
    await until(lambda: len(fetch.ends) == 2)
    assert fetch.looks[1] == [watched]
    fetch.ends[1].set_result(True)
    assert await asyncio.wait_for(delayed.reply, 20) == "what there is"


async def test_the_time_that_is_over_during_a_look_in_turns_is_over(looking: Looking) -> None:
    fetch, _, delayed = looking
    delayed.end()
    assert not delayed.reply.done()
    fetch.ends[0].set_result(False)
    assert await asyncio.wait_for(delayed.reply, 20) == "what there is"


async def test_a_look_in_turns_that_fails_is_the_answer(looking: Looking) -> None:
    fetch, _, delayed = looking
    fetch.ends[0].set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(delayed.reply, 20)


async def test_a_look_that_takes_turns_ends_with_the_client(looking: Looking) -> None:
    fetch, _, delayed = looking
    delayed.reply.cancel()
    await until(fetch.ends[0].cancelled)


async def test_what_comes_into_memory_during_a_look_in_turns_is_not_waited_for_any_longer() -> None:
    fetch, watched = LooksInTurns(), Watched()
    fetch.cold = ["cold"]
    delayed: Any = DelayedFetch(fetch, [watched], 10_000, reading)  # type: ignore[list-item]
    delayed.touch(watched)
    await until(lambda: len(fetch.ends) == 1)
    await asyncio.sleep(0.1)
    assert not delayed.reply.done(), "nothing is asked of a fetch that is at it"
    fetch.ends[0].set_result(False)
    assert await asyncio.wait_for(delayed.reply, 5) == "what there is"
