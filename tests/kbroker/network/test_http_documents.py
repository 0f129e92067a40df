"""Documents at addresses: in a file, whole, too large, and of servers that take their time."""

import asyncio
import contextlib
import json
import socket
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.network import http_documents
from kbroker.network.http_documents import _Redirects, fetch

HEAD = b"HTTP/1.0 200 OK\r\n\r\n"


@contextlib.asynccontextmanager
async def slowly(at_once: bytes, drop: bytes, gone: asyncio.Event) -> AsyncIterator[str]:
    """The address of who sends something, and then the same few bytes every now and then until the client has gone."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(at_once)
        with contextlib.suppress(OSError):
            while not reader.at_eof():
                writer.write(drop)
                await writer.drain()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 0.02)
        writer.close()
        gone.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at_once", "drop"),
    [(HEAD, b" "), (b"", b"x"), (b"HTTP/1.0 200 OK\r\n", b"x"), (b"", b"HTTP/1.1 100 Continue\r\n\r\n")],
    ids=["body", "first line", "a line of the head", "interim answers"],
)
async def test_who_answers_byte_by_byte_has_no_more_time_than_others(
    monkeypatch: pytest.MonkeyPatch, at_once: bytes, drop: bytes
) -> None:
    monkeypatch.setattr("kbroker.network.http_documents.TIMEOUT_S", 1.0)
    gone = asyncio.Event()
    async with slowly(at_once, drop, gone) as url:
        with pytest.raises(TimeoutError, match=r"not answered to the end|timed out"):
            await asyncio.wait_for(asyncio.to_thread(fetch, url), 30)
        await asyncio.wait_for(gone.wait(), 30)


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/keys"


def test_who_says_nothing_has_its_time(monkeypatch: pytest.MonkeyPatch, silent: str) -> None:
    monkeypatch.setattr("kbroker.network.http_documents.TIMEOUT_S", 0.1)
    with pytest.raises(TimeoutError):
        fetch(silent)


async def test_documents_are_read_whole_and_no_larger_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        if path in (b"/elsewhere", b"/ftp"):
            where = b"/keys" if path == b"/elsewhere" else b"ftp://127.0.0.1:1/keys"
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: " + where + b"\r\nContent-Length: 0\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n[1, 2,\r\n3\r\n 3]\r\n0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for path in ("/keys", "/elsewhere"):
            assert await asyncio.to_thread(fetch, url + path) == [1, 2, 3]
        with pytest.raises(OSError, match="not read by http or https: ftp://"):
            await asyncio.to_thread(fetch, url + "/ftp")
        monkeypatch.setattr(http_documents, "LARGEST_DOCUMENT", 8)
        with pytest.raises(ValueError, match="more than 8 bytes"):
            await asyncio.to_thread(fetch, url + "/keys")


@pytest.mark.parametrize("proxy", ["http", "https"])
@pytest.mark.parametrize("asked", ["http", "https"])
def test_a_redirect_is_judged_by_what_was_asked_for_and_not_by_the_proxy(asked: str, proxy: str) -> None:
    request = urllib.request.Request(f"{asked}://idp.example/keys")
    request.set_proxy("proxy.example:3128", proxy)
    answer: Any = None, 302, "Found", {}
    for new in ("http://idp.example/new", "https://idp.example/new"):
        if (asked, new[:5]) == ("https", "http:"):
            with pytest.raises(OSError, match="not read by https or https"):
                _Redirects().redirect_request(request, *answer, new)
        else:
            found = _Redirects().redirect_request(request, *answer, new)
            assert found is not None
            assert found.full_url == new


def test_a_document_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": []}))
    assert fetch(file.as_uri()) == {"keys": []}
