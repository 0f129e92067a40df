"""Nothing ends the work behind the application's back, and nothing that went wrong there stays unsaid."""

import asyncio
import logging

import pytest

from kbroker.client.background import Background
from kbroker.client.client_config import ConsumerConfig
from kbroker.client.cluster import Cluster

LIMIT_S = 30.0
CONFIG = ConsumerConfig(bootstrap="127.0.0.1:1", retry_backoff_ms=1, connect_timeout_ms=100)


async def test_a_plan_that_fails_is_told_and_made_again(caplog: pytest.LogCaptureFixture) -> None:
    plans = []
    again = asyncio.Event()

    def plan() -> None:
        plans.append(1)
        if len(plans) == 1:
            raise ZeroDivisionError
        again.set()

    background = Background(CONFIG, Cluster(CONFIG), plan)
    background.wake()
    await asyncio.wait_for(again.wait(), LIMIT_S)
    assert isinstance(background.problems.popleft(), ZeroDivisionError)
    assert background.arrived.is_set()
    assert "did not expect" in caplog.text
    await background.close()


async def test_a_task_that_fails_is_told_and_a_plan_is_made(caplog: pytest.LogCaptureFixture) -> None:
    planned = asyncio.Event()
    background = Background(CONFIG, Cluster(CONFIG), planned.set)

    async def fail() -> None:
        raise KeyError("x")

    with caplog.at_level(logging.ERROR):
        background.spawn(fail())
        await asyncio.wait_for(planned.wait(), LIMIT_S)
    assert isinstance(background.problems.popleft(), KeyError)
    await background.close()


async def test_closing_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    cluster = Cluster(CONFIG)
    background = Background(CONFIG, cluster, lambda: None)
    background.spawn(asyncio.sleep(60))
    background.wake()
    await asyncio.sleep(0.01)
    await background.close()
    await cluster.close()
    assert asyncio.all_tasks() == before
