"""A raw client for the broker's tests: one request, one answer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from kbroker.client.connection import Connection
from kbroker.protocol.codec import decode, encode
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.groups import FindCoordinatorRequest

TRANSACTION = 1

Ask = Callable[..., Any]


class HasPort(Protocol):
    """A broker, in a process of its own or in the test's."""

    port: int


def told(answer: Any, version: int) -> Any:
    """What a client reads of a handler's answer: arrays may be encoded already."""
    return decode(type(answer), encode(answer, version), version)


@asynccontextmanager
async def asking(broker: HasPort) -> AsyncIterator[Ask]:
    """Yield `await ask(request, version)`; every answer has to come within 20 seconds."""
    connection = await Connection.open("127.0.0.1", broker.port, client_id="test", timeout=20)
    await connection.negotiate()

    async def ask(request: Any, version: int | None = None) -> Any:
        return await connection.request(request, version, timeout=20)

    try:
        yield ask
    finally:
        await connection.close()


async def coordinator_of(ask: Ask, transactional_id: str) -> int:
    """Let a transactional id's coordinator be there; returns its broker."""
    async with asyncio.timeout(20):
        while True:
            request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id])
            (found,) = (await ask(request, 4)).coordinators
            if found.error_code is ErrorCode.NONE:
                return int(found.node_id)
            await asyncio.sleep(0.02)
