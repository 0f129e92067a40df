"""A raw client for the broker's tests: one request, one answer."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from kbroker.client.connection import Connection
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.codec import decode, encode

Ask = Callable[..., Any]


def told(answer: Any, version: int) -> Any:
    """What a client reads of a handler's answer: arrays may be encoded already."""
    return decode(type(answer), encode(answer, version), version)


@asynccontextmanager
async def asking(broker: BrokerProcess) -> AsyncIterator[Ask]:
    """Yield `await ask(request, version)`; every answer has to come within 20 seconds."""
    connection = await Connection.open("127.0.0.1", broker.port, client_id="test", timeout=10)
    await connection.negotiate()

    async def ask(request: Any, version: int | None = None) -> Any:
        return await connection.request(request, version, timeout=20)

    try:
        yield ask
    finally:
        await connection.close()
