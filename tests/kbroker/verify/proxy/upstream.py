"""A scripted other side: what a broker that we do not have would answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.headers import encode_response, read_request_header
from kbroker.protocol.messages.api_versions import ApiVersionsResponse
from kbroker.protocol.messages.metadata import MetadataResponse
from tests.fixtures.streams import stream_server
from tests.protocol.frames import joined

Answer = Callable[[bytes], bytes | None]


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


@asynccontextmanager
async def upstream(answer: Answer) -> AsyncIterator[int]:
    """Listen, and answer each request's frame with what the function makes of it; yields the port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            told = answer(await read_frame(reader))
            if told is not None:
                writer.write(framed(told))
                await writer.drain()

    async with stream_server(serve) as port:
        yield port


def correlation_id(request: bytes) -> bytes:
    return request[4:8]


def encoded(request: bytes, answer: Any) -> bytes:
    """An answer to this request, in its version."""
    header, _ = read_request_header(request)
    return joined(encode_response(answer, header.api_version, header.correlation_id))[4:]


def metadata(*brokers: tuple[int, int]) -> MetadataResponse:
    """Brokers by id and port."""
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=broker, host="127.0.0.1", port=port)
            for broker, port in brokers
        ],
        topics=[],
    )


def versions(*offered: tuple[int, int]) -> ApiVersionsResponse:
    """APIs and the newest version of each."""
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=newest) for key, newest in offered
        ],
    )
