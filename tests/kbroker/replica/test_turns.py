"""Long work leaves the event loop to others in between; short work is done at once."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Generator
from itertools import count
from weakref import WeakSet

import pytest

from kbroker.replica import turns
from kbroker.replica.turns import MOST_AT_A_TURN, PORTION, TURN_S, Turn, in_turns, portions


@pytest.fixture(autouse=True)
def no_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier test left unfinished takes no share here."""
    monkeypatch.setattr(turns, "_under_way", WeakSet())


def work(items: int, seconds: float, ends_with: Exception | None = None) -> Generator[None, None, int]:
    for _ in range(items):
        time.sleep(seconds)
        yield
    if ends_with is not None:
        raise ends_with
    return items


def test_short_work_is_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", 10)
    assert in_turns(work(3, 0)) == 3


async def test_long_work_lets_others_in_between() -> None:
    taken = 0

    async def other() -> None:
        nonlocal taken
        while True:
            taken += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    begun = in_turns(work(30, TURN_S / 2))
    assert not isinstance(begun, int)
    assert await begun == 30
    task.cancel()
    assert taken > 8


@pytest.mark.slow
async def test_much_work_at_once_shares_a_turn() -> None:
    longest = 0.0

    async def other() -> None:
        nonlocal longest
        while True:
            begun = time.thread_time()  # what others take of the processor is not counted
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - begun)

    async def one() -> None:
        begun = in_turns(work(200, TURN_S / 100))
        assert not isinstance(begun, int)
        await begun

    task = asyncio.create_task(other())
    await asyncio.gather(*(one() for _ in range(40)))
    task.cancel()
    assert longest < 40 * TURN_S


async def test_an_error_ends_the_work_at_once_or_later(monkeypatch: pytest.MonkeyPatch) -> None:
    later = in_turns(work(10, 2 * TURN_S, ValueError("later")))
    monkeypatch.setattr(turns, "TURN_S", 10)
    with pytest.raises(ValueError, match="at once"):
        in_turns(work(0, 0, ValueError("at once")))
    assert not isinstance(later, int)
    with pytest.raises(ValueError, match="later"):
        await later


async def test_what_has_begun_shares_the_turn_with_what_begins_after_it() -> None:
    before = turns._turn_s()
    begun = [in_turns(work(100, TURN_S / 4)) for _ in range(3)]
    assert turns._turn_s() == pytest.approx(before / 4)
    for each in begun:
        assert not isinstance(each, int)
        each.close()  # type: ignore[attr-defined]
    del begun, each
    assert turns._turn_s() == before, "what nobody waits for takes no share"


async def test_what_only_waits_for_its_answer_takes_no_turn_from_others() -> None:
    replicated: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def append() -> Generator[None, None, str | Awaitable[str]]:
        yield from work(3, 2 * TURN_S)
        asyncio.get_running_loop().call_soon(look)
        return replicated

    def look() -> None:
        replicated.set_result("under way" if turns.is_long_work_under_way() else "waiting")

    begun = in_turns(append())
    assert not isinstance(begun, str)
    assert turns.is_long_work_under_way()
    assert await begun == "waiting"


def test_portions_hold_all_items_in_their_order() -> None:
    items = list(range(2 * PORTION + 1))
    cut = list(portions(items))
    assert [len(portion) for portion in cut] == [PORTION, PORTION, 1]
    assert [item for portion in cut for item in portion] == items


async def test_coroutines_share_the_turn_with_all_other_long_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "monotonic", iter(range(100)).__next__)
    before = turns._turn_s()
    turn = Turn()
    await turn.end_if_over()
    assert turns._turn_s() == pytest.approx(before / 2)
    assert turns.is_long_work_under_way()
    del turn
    assert turns._turn_s() == before


async def test_of_very_many_only_some_go_on_in_one_turn_each_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "monotonic", count(step=TURN_S).__next__)  # each step takes a turn
    went_on: list[tuple[int, int]] = []
    turn = 0

    async def one(number: int) -> None:
        mine = Turn()
        for _ in range(3):
            await mine.end_if_over()
            went_on.append((number, turn))

    many = asyncio.gather(*(one(number) for number in range(10 * MOST_AT_A_TURN)))
    while not many.done():
        turn += 1
        await asyncio.sleep(0)
    in_a_turn = Counter(turn for _, turn in went_on)
    assert max(in_a_turn.values()) <= 2 * MOST_AT_A_TURN, "those in line, and when few are left the rest"
    assert sorted(number for number, _ in went_on[: 10 * MOST_AT_A_TURN]) == list(range(10 * MOST_AT_A_TURN))


async def test_what_begins_while_much_is_under_way_has_one_turn_for_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    begun: list[int] = []

    def of_one(number: int) -> Generator[None, None, int]:
        nonlocal now
        for step in range(20):
            now += TURN_S / 4
            if step == 0:
                begun.append(number)
            yield
        return number

    monkeypatch.setattr(turns, "monotonic", lambda: now)
    many = [in_turns(of_one(number)) for number in range(10 * MOST_AT_A_TURN)]
    assert begun == list(range(MOST_AT_A_TURN + 4)), "the first ones, and after them what fits into a turn"
    assert await asyncio.gather(*many) == list(range(10 * MOST_AT_A_TURN))  # type: ignore[arg-type]
