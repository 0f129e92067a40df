"""Sessions with the tests' ZooKeeper, each closed when its test ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from kbroker.controller.zookeeper import ZooKeeper
from tests.fixtures.zookeeper import ZooKeeperAddress

Connect = Callable[..., Awaitable[ZooKeeper]]


@pytest.fixture
async def connect(zookeeper: ZooKeeperAddress) -> AsyncIterator[Connect]:
    """Opens sessions in the test's chroot, the top-level paths made."""
    sessions: list[ZooKeeper] = []

    async def open_session(session_timeout_ms: int = 10_000) -> ZooKeeper:
        session = ZooKeeper(zookeeper.connect_string, session_timeout_ms)
        sessions.append(session)
        await session.connect()
        await session.ensure_top_level_paths()
        return session

    yield open_session
    for session in sessions:
        await session.close()


async def until(condition: Callable[[], bool], timeout: float = 60.0) -> None:
    """Wait until something holds; a server may let two attempts to connect run into their time-outs."""
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
