from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from kbroker.coordinator.transaction import Answer
from kbroker.coordinator.waiting_room import MOST_OF_A_NAME, WaitingRoom
from kbroker.protocol.errors import ErrorCode, KafkaError

NONE, CONCURRENT = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
LIMIT_S = 30


class Ends:
    """Transactions by name, which are busy until they are ended; `asked` tells who was answered with NONE."""

    def __init__(self, longest_s: float = LIMIT_S, most: int = 100) -> None:
        self.busy = {"a", "b"}
        self.asked: list[str] = []
        self.refusal: KafkaError | None = None
        self.room = WaitingRoom(self.busy.__contains__, longest_s, most)

    async def _question(self, name: str, who: str) -> Answer:
        if self.refusal is not None:
            raise self.refusal
        if name in self.busy:
            return Answer(who, CONCURRENT)
        self.asked.append(who)
        return Answer(who, NONE)

    async def ask(self, name: str, who: str) -> ErrorCode:
        return (await asyncio.wait_for(self.room.ask(name, lambda: self._question(name, who)), LIMIT_S)).error

    async def asking(self, name: str, who: str) -> asyncio.Task[ErrorCode]:
        """One that has been asked, and waits."""
        task = asyncio.create_task(self.ask(name, who))
        await several_turns()
        return task

    def end(self, name: str) -> None:
        self.busy.discard(name)
        self.room.call_in(name)

    def check_is_empty(self) -> None:
        assert (self.room._count, self.room._waiting) == (0, {})


async def several_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_waits_is_asked_again_in_turn_when_the_end_is_there() -> None:
    ends = Ends()
    waiting = [await ends.asking("a", who) for who in ("first", "second", "third")]
    other = await ends.asking("b", "other")
    assert not any(task.done() for task in (*waiting, other))
    ends.end("a")
    assert await asyncio.gather(*waiting) == [NONE] * 3
    assert ends.asked == ["first", "second", "third"]
    assert not other.done()
    ends.end("b")
    assert await other is NONE
    ends.check_is_empty()


async def test_who_is_called_in_and_finds_it_busy_again_waits_on() -> None:
    ends = Ends()
    waiting = await ends.asking("a", "patient")
    ends.room.call_all_in()
    await several_turns()
    assert not waiting.done()
    ends.end("a")
    assert await waiting is NONE


async def test_nobody_waits_longer_than_the_longest_time_and_no_more_than_so_many() -> None:
    ends = Ends(longest_s=0.01)
    assert await ends.ask("a", "impatient") is CONCURRENT
    ends.check_is_empty()
    ends = Ends(most=1)
    waiting = await ends.asking("a", "first")
    assert await ends.ask("b", "one too many") is CONCURRENT
    ends.end("a")
    assert await waiting is NONE
    ends.check_is_empty()


async def test_one_name_does_not_take_the_places_of_all() -> None:
    ends = Ends()
    waiting = [await ends.asking("a", f"{number}") for number in range(MOST_OF_A_NAME)]
    asked: list[str] = []

    def question() -> Awaitable[Answer]:
        asked.append("one too many")
        return ends._question("a", "one too many")

    refused = await asyncio.wait_for(ends.room.ask("a", question), LIMIT_S)
    assert (refused.error, asked) == (CONCURRENT, []), "a producer may be shut out by the question alone"
    another = await ends.asking("b", "another")
    ends.end("a")
    ends.end("b")
    assert [await each for each in (*waiting, another)] == [NONE] * (MOST_OF_A_NAME + 1)
    assert ends.asked == [*(f"{number}" for number in range(MOST_OF_A_NAME)), "another"]
    assert await ends.ask("a", "who comes again") is NONE
    ends.check_is_empty()


async def test_an_end_that_comes_before_its_answer_is_heard_of_is_not_waited_for() -> None:
    ends = Ends()
    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def fences() -> Answer:
        return await answer

    questions: list[Awaitable[Answer]] = [fences()]

    def question() -> Awaitable[Answer]:
        return questions.pop() if questions else ends._question("a", "asks again")

    waiting = asyncio.ensure_future(ends.room.ask("a", question))
    answer.set_result(Answer("r", CONCURRENT))
    ends.end("a")
    assert (await asyncio.wait_for(waiting, LIMIT_S)).error is NONE


async def test_whose_own_record_is_being_written_gets_that_answer_without_a_task() -> None:
    ends = Ends()
    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    assert ends.room.ask("a", lambda: answer) is answer
    ends.check_is_empty()


async def test_who_goes_away_is_not_asked_again() -> None:
    ends = Ends()
    waiting = await ends.asking("a", "gone")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    ends.check_is_empty()
    ends.end("a")
    await several_turns()
    assert ends.asked == []


async def test_what_asking_again_raises_is_raised_to_who_waits() -> None:
    ends = Ends()
    waiting = await ends.asking("a", "unlucky")
    ends.refusal = KafkaError(ErrorCode.NOT_COORDINATOR)
    ends.room.call_all_in()
    with pytest.raises(KafkaError, check=lambda error: error.code is ErrorCode.NOT_COORDINATOR):
        await waiting
    ends.check_is_empty()


async def test_an_answer_that_is_there_at_once_is_given_without_a_turn_of_the_loop() -> None:
    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    answer.set_result(Answer("r", NONE))
    assert Ends().room.ask("a", lambda: answer) is answer


async def test_whose_first_answer_took_longer_is_asked_again_in_its_turn_all_the_same() -> None:
    ends = Ends()
    answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def slow() -> Answer:
        await answered
        return await ends._question("a", "first")

    first = asyncio.ensure_future(ends.room.ask("a", slow))
    second = await ends.asking("a", "second")
    answered.set_result(None)
    await several_turns()
    ends.end("a")
    assert ((await first).error, await second) == (NONE, NONE)
    assert ends.asked == ["first", "second"]
    ends.check_is_empty()


async def test_who_comes_in_the_turn_in_which_others_are_called_in_stands_behind_them() -> None:
    ends = Ends()
    first = await ends.asking("a", "first")

    def at_once() -> Awaitable[Answer]:
        ends.asked.append("late")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        answer.set_result(Answer("late", NONE))
        return answer

    ends.end("a")
    late = asyncio.ensure_future(ends.room.ask("a", at_once))
    assert (await first, (await asyncio.wait_for(late, LIMIT_S)).error) == (NONE, NONE)
    assert ends.asked == ["first", "late"]
    ends.check_is_empty()
