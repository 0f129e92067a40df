"""What goes through one link: all frames, in order and untouched, but for what has to be changed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.headers import decode_response, encode_request
from kbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.schema import Message
from kbroker.verify.proxy import link as link_module
from kbroker.verify.proxy.server import Server
from tests.fixtures.streams import stream_server
from tests.kbroker.verify.proxy.upstream import (
    Answer,
    correlation_id,
    encoded,
    framed,
    read_frame,
    upstream,
    versions,
)
from tests.protocol.frames import joined

MAX_FRAME = 8 << 20
TIMEOUT = 30.0
UNKNOWN_API = b"\x7f\x00\x00\x03"


def request(message: Message, version: int, number: int = 1) -> bytes:
    return joined(encode_request(message, version, number, "me"))


def echo(frame: bytes) -> bytes:
    return correlation_id(frame) + frame[8:]


@asynccontextmanager
async def link_to(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client's side of a link."""
    server = Server("127.0.0.1", MAX_FRAME)
    reader, writer = await asyncio.open_connection(*server.listen_for(("127.0.0.1", port)).address)
    try:
        async with asyncio.timeout(TIMEOUT):
            yield reader, writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        await server.close()


@asynccontextmanager
async def link(answer: Answer) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client's side of a link, with a scripted broker behind it."""
    async with upstream(answer) as port, link_to(port) as (reader, writer):
        yield reader, writer


def unknown(number: int, body: bytes) -> bytes:
    return framed(UNKNOWN_API + number.to_bytes(4, "big") + b"\x00\x02me" + body)


@pytest.mark.parametrize("size", [0, 100, 1_000_000])
async def test_an_api_that_nobody_knows_passes_untouched(size: int) -> None:
    async with link(echo) as (reader, writer):
        writer.write(unknown(1, bytes(size)) + unknown(2, b"second"))
        assert await read_frame(reader) == b"\0\0\0\1\0\2me" + bytes(size)
        assert await read_frame(reader) == b"\0\0\0\2\0\2mesecond"


async def test_a_produce_without_acks_waits_for_no_answer() -> None:
    def answer(frame: bytes) -> bytes | None:
        return None if frame[:2] == b"\0\0" else echo(frame)

    async with link(answer) as (reader, writer):
        produce = ProduceRequest(acks=0, timeout_ms=1, topic_data=[])
        writer.write(request(produce, 9, 1) + unknown(2, b"answered"))
        assert await read_frame(reader) == b"\0\0\0\2\0\2meanswered"


async def test_versions_with_unknown_addresses_are_not_offered() -> None:
    async with link(lambda frame: encoded(frame, versions((3, 99), (11, 99)))) as (reader, writer):
        writer.write(request(ApiVersionsRequest(), 3))
        _, answer = decode_response(await read_frame(reader), ApiVersionsResponse, 3)
    assert {each.api_key: each.max_version for each in answer.api_keys} == {3: API_BY_KEY[3].max_version, 11: 99}


async def test_an_answer_in_version_0_to_a_newer_question_is_understood() -> None:
    refusal = b"\0\0\0\1\0\x23\0\0\0\1\0\3\0\0\0\x7f"  # UNSUPPORTED_VERSION, and Metadata 0-127
    async with link(lambda frame: refusal) as (reader, writer):
        writer.write(request(ApiVersionsRequest(), 4))
        answer = await read_frame(reader)
    assert answer == refusal[:-1] + bytes([API_BY_KEY[3].max_version])


async def is_reset(reader: asyncio.StreamReader) -> bool:
    with pytest.raises(ConnectionResetError):
        await reader.read()
    return True


@pytest.mark.parametrize(
    "sent",
    [
        (MAX_FRAME + 1).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        framed(b"\0\3\0\0\0\0\0\1\x7f\xff"),  # a client id that is not there
        framed(b"\0\x11\0\0\0\0\0\1\0\2me\0\5PLAIN"),  # SaslHandshake v0
        framed(b"\0\3\0\x63\0\0\0\1\0\2me\0\0"),  # Metadata v99
    ],
)
async def test_what_cannot_be_followed_ends_the_link(sent: bytes) -> None:
    async with link(echo) as (reader, writer):
        writer.write(unknown(1, b"good"))
        await read_frame(reader)
        writer.write(sent)
        assert await is_reset(reader)


async def test_an_answer_to_nobody_ends_the_link() -> None:
    async with link(lambda frame: b"\0\0\0\x09" + frame) as (reader, writer):
        writer.write(request(MetadataRequest(topics=[]), 1))
        assert await is_reset(reader)


async def test_an_answer_that_is_none_ends_the_link() -> None:
    async with link(lambda frame: correlation_id(frame) + b"\x7f\xff\xff\xff") as (reader, writer):
        writer.write(request(MetadataRequest(topics=[]), 1))
        assert await is_reset(reader)


async def test_a_broker_that_is_not_there_is_a_reset() -> None:
    async with upstream(echo) as port:
        pass
    async with link_to(port) as (reader, writer):
        writer.write(unknown(1, b""))
        assert await is_reset(reader)


async def test_the_end_of_a_client_arrives_and_so_does_its_last_word() -> None:
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.put_nowait(await reader.read())
        writer.write(framed(b"\0\0\0\1bye"))
        writer.close()

    async with stream_server(serve) as port, link_to(port) as (reader, writer):
        writer.write(unknown(1, b"last"))
        writer.write_eof()
        assert await got.get() == unknown(1, b"last")
        assert await reader.read() == framed(b"\0\0\0\1bye")


async def test_a_broker_that_does_not_read_is_not_read_for() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    async with stream_server(serve) as port, link_to(port) as (_, writer):
        frame = unknown(1, bytes(1 << 20))
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 256:
                writer.write(frame)
                await asyncio.wait_for(writer.drain(), 0.5)
                sent += 1
        assert sent < 64  # what the kernel's buffers hold, and one piece here


async def test_no_more_requests_wait_for_answers_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "MOST_UNANSWERED", 3)
    waiting: asyncio.Queue[bytes] = asyncio.Queue()
    most = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most
        answering = asyncio.create_task(answer(writer))
        try:
            while True:
                waiting.put_nowait(await read_frame(reader))
                most = max(most, waiting.qsize())
        finally:
            answering.cancel()

    async def answer(writer: asyncio.StreamWriter) -> None:
        while True:
            await asyncio.sleep(0.02)  # in which all would come that may
            writer.write(framed(echo(await waiting.get())))

    async with stream_server(serve) as port, link_to(port) as (reader, writer):
        for number in range(10):
            writer.write(unknown(number, b""))
        for number in range(10):
            assert (await read_frame(reader))[:4] == number.to_bytes(4, "big")
    assert most <= 3
