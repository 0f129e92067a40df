from __future__ import annotations

import asyncio

import pytest

from kbroker.replica.reply import Reply


async def test_whoever_waits_for_a_reply_is_called_before_its_giver_goes_on() -> None:
    reply, heard = Reply(), list[object]()
    reply.add_done_callback(lambda done: heard.append(done.result()))
    assert not reply.done()
    reply.set_result("answer")
    assert heard == ["answer"]
    assert reply.done()
    assert await reply == "answer"


async def test_a_reply_can_be_awaited_and_raises_its_error() -> None:
    reply = Reply()
    waiting = asyncio.ensure_future(reply)
    await asyncio.sleep(0)
    assert not waiting.done()
    reply.set_exception(OSError("no disk"))
    with pytest.raises(OSError, match="no disk"):
        await waiting


async def test_a_reply_that_nobody_wants_says_so_once_and_has_no_result() -> None:
    reply, heard = Reply(), list[bool]()
    reply.add_done_callback(lambda done: heard.append(done.cancelled()))
    assert reply.cancel()
    assert not reply.cancel()
    assert heard == [True]
    with pytest.raises(asyncio.CancelledError):
        reply.result()


async def test_a_waiting_task_that_is_cancelled_cancels_the_reply() -> None:
    reply = Reply()
    waiting = asyncio.ensure_future(reply)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert reply.cancelled()
