"""Strangers who hold connections, and what is left for others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from kbroker.page import connections
from kbroker.page.connections import Connection, Listener

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
UPGRADE = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade, close\r\nUpgrade: h2c\r\n\r\n"
LIMIT_S = 20
REQUEST_S = 0.03


async def answer_late(scope: Any, receive: Any, send: Any) -> None:
    """An application that takes its time, and reads no body."""
    await asyncio.sleep(3 * REQUEST_S)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextlib.asynccontextmanager
async def serving(app: Any = answer_late) -> AsyncIterator[int]:
    """Serve; gives the port."""
    config = uvicorn.Config(app, http=Connection)
    config.load()
    state = ServerState()
    with Listener(socket.AF_INET) as listener:
        listener.bind(("127.0.0.1", 0))
        server = await asyncio.get_running_loop().create_server(lambda: Connection(config, state, {}), sock=listener)
        port = listener.getsockname()[1]
        try:
            yield port
        finally:
            server.close()
            for each in list(state.connections):
                each.transport.abort()
            await asyncio.gather(*state.tasks)


async def ended(port: int, *pieces: bytes, pause_s: float = 0.01) -> bytes:
    """Send pieces one after the other, and return what came until the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(OSError):
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(pause_s)
    try:
        async with asyncio.timeout(LIMIT_S):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([], id="nothing"),
        pytest.param([b"G", b"E", b"T", b" /"], id="half a head"),
        pytest.param([b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", b"abc"], id="half a body"),
    ],
)
async def test_who_does_not_ask_in_time_is_ended(monkeypatch: pytest.MonkeyPatch, pieces: list[bytes]) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", REQUEST_S)
    async with serving() as port:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            assert await ended(port, *pieces) == b""


async def test_an_answer_may_take_longer_than_its_request_and_the_next_request_has_a_limit_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", REQUEST_S)
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        async with asyncio.timeout(LIMIT_S):
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
            writer.write(GET[:9])
            assert await reader.read() == b""
            writer.close()


async def test_who_takes_nothing_of_an_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "TAKE_S", 0.1)
    sent = asyncio.Event()

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        with contextlib.suppress(OSError):
            for _ in range(1_000):
                await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})
        sent.set()

    async with serving(answer) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(GET)
        async with asyncio.timeout(LIMIT_S):
            await sent.wait()
        writer.transport.abort()


async def is_turned_away(client: socket.socket) -> bool:
    """Whether a request is answered with the connection's end."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(LIMIT_S):
            await loop.sock_sendall(client, GET)
            return await loop.sock_recv(client, 1) == b""
    except (ConnectionResetError, BrokenPipeError):
        return True


async def test_one_address_holds_not_all_places(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "MOST_OF_ADDRESS", 3)
    monkeypatch.setattr(connections, "MOST", 4)
    async with serving() as port:
        with contextlib.ExitStack() as open_here:

            def connect(address: str) -> socket.socket:
                client = socket.create_connection(("127.0.0.1", port), source_address=(address, 0))
                client.setblocking(False)
                return open_here.enter_context(client)

            silent = [connect("127.0.0.1") for _ in range(3)]
            assert await is_turned_away(connect("127.0.0.1")), "its address has as many as it may have"
            assert not await is_turned_away(connect("127.0.0.2"))
            assert await is_turned_away(connect("127.0.0.3")), "all have as many as there may be"
            assert caplog.text.count("is turned away") == 1
            silent[0].close()
            async with asyncio.timeout(LIMIT_S):
                while await is_turned_away(connect("127.0.0.1")):  # noqa: ASYNC110 - the system tells nobody
                    await asyncio.sleep(0.01)


@pytest.mark.parametrize("request_bytes", [b"\0\1\r\n\r\n", UPGRADE])
async def test_what_strangers_ask_for_fills_no_log(
    request_bytes: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as port:
        monkeypatch.setattr(logging.getLogger("uvicorn"), "propagate", True)  # its making of a server has set it
        assert await ended(port, request_bytes)
    assert not caplog.messages


async def test_what_goes_wrong_in_a_view_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(scope: Any, receive: Any, send: Any) -> None:
        raise ArithmeticError

    async with serving(fail) as port:
        assert await ended(port, GET)
    assert "Exception in ASGI application" in caplog.text
