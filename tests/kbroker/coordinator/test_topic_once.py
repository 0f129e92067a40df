from __future__ import annotations

import asyncio

import pytest

from kbroker.coordinator.topic_once import TopicOnce


async def test_the_topic_is_created_once_however_many_ask() -> None:
    calls = 0

    async def create() -> None:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.01)

    topic = TopicOnce("t")
    await asyncio.gather(*(topic.create(create) for _ in range(5)))
    assert calls == 1
    await topic.create(create)
    assert calls == 2


async def test_an_attempt_that_fails_is_told_and_the_next_one_is_made(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise OSError("no ZooKeeper")

    topic = TopicOnce("t")
    await topic.create(fail)
    assert "t cannot be created" in caplog.text
    await topic.create(lambda: asyncio.sleep(0))


async def test_who_waits_for_the_topic_goes_on_when_it_is_given_up() -> None:
    topic = TopicOnce("t")
    waiting = asyncio.ensure_future(topic.create(lambda: asyncio.sleep(60)))
    await asyncio.sleep(0)
    topic.cancel()
    await asyncio.wait_for(waiting, 20)
