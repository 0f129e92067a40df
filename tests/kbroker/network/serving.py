"""A server with a stub in dispatch's place, and raw peers with bounded waits."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from kbroker.network.connection import Connection
from kbroker.network.limits import ServerLimits
from kbroker.network.server import Listener, Server

Stub = Callable[[Connection, memoryview], Any]


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def echo(connection: Connection, request: memoryview) -> list[bytes]:
    return [frame(bytes(request))]


@asynccontextmanager
async def serving(
    dispatch: Stub = echo, ip_rates: dict[str, float] | None = None, **limits: Any
) -> AsyncIterator[Server]:
    server = Server(dispatch, ServerLimits(**limits), ip_rates)
    server.bind([Listener("PLAINTEXT", "127.0.0.1", 0), Listener("BROKERS", "127.0.0.1", 0)])
    server.start()
    try:
        yield server
    finally:
        await server.stop(drain_timeout=0.2)


class Client:
    """A raw peer with bounded waits."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive(self) -> bytes:
        size = struct.unpack(">i", await asyncio.wait_for(self.reader.readexactly(4), 20))[0]
        return await asyncio.wait_for(self.reader.readexactly(size), 20)

    async def is_closed(self, timeout: float = 20) -> bool:
        try:
            return await asyncio.wait_for(self.reader.read(1), timeout) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@asynccontextmanager
async def connected(server: Server, listener: str = "PLAINTEXT") -> AsyncIterator[Client]:
    client = Client(*await asyncio.open_connection("127.0.0.1", server.ports[listener], limit=1 << 24))
    try:
        yield client
    finally:
        await client.close()


async def until(condition: Callable[[], bool], timeout: float = 20) -> None:
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
