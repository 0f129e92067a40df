"""Calls from other threads to the loop."""

import asyncio
import threading

import pytest

from kbroker.controller.handover import Handover, Reply

PATIENCE_S = 30


async def test_calls_of_a_thread_come_in_their_order() -> None:
    handover, done = Handover(asyncio.get_running_loop()), asyncio.Event()
    heard: list[int] = []

    def hear(number: int) -> None:
        assert threading.current_thread() is threading.main_thread()
        heard.append(number)
        if number == 999:
            done.set()

    await asyncio.to_thread(lambda: [handover.put(hear, number) for number in range(1000)])
    async with asyncio.timeout(PATIENCE_S):
        await done.wait()
    assert heard == list(range(1000))


async def test_a_call_that_fails_keeps_those_behind_it_from_nobody(caplog: pytest.LogCaptureFixture) -> None:
    handover, heard = Handover(asyncio.get_running_loop()), asyncio.Event()

    def fail(argument: object) -> None:
        raise ValueError("nobody expects this")

    handover.put(fail, None)
    handover.put(lambda argument: heard.set(), None)
    async with asyncio.timeout(PATIENCE_S):
        await heard.wait()
    assert "nobody expects this" in caplog.text


async def test_an_answer_or_its_failure_ends_the_wait() -> None:
    loop = asyncio.get_running_loop()
    handover = Handover(loop)
    answered, failed = loop.create_future(), loop.create_future()
    await asyncio.to_thread(Reply(handover, answered).set, "x")
    await asyncio.to_thread(Reply(handover, failed).set_exception, ValueError("y"))
    async with asyncio.timeout(PATIENCE_S):
        assert await answered == "x"
        with pytest.raises(ValueError, match="y"):
            await failed


async def test_nobody_hears_of_what_was_given_up() -> None:
    loop = asyncio.get_running_loop()
    handover, future = Handover(loop), asyncio.get_running_loop().create_future()
    future.cancel()
    reply = Reply(handover, future)
    reply.set("x")
    reply.set_exception(ValueError("y"))
    await asyncio.sleep(0)
    assert future.cancelled()


def test_what_comes_after_the_loops_end_is_dropped() -> None:
    loop = asyncio.new_event_loop()
    handover = Handover(loop)
    loop.close()
    handover.put(pytest.fail, "called")
