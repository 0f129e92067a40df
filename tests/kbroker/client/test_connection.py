import asyncio

import pytest

from kbroker.client.connection import Connection
from protocol.messages.metadata import MetadataRequest


async def test_requests_are_pipelined(bootstrap: str) -> None:
    host, port = bootstrap.split(":")
    connection = await Connection.open(host, int(port), client_id="test")
    await connection.negotiate()
    answers = await asyncio.gather(*(connection.request(MetadataRequest(topics=[])) for _ in range(50)))
    assert len({answer.cluster_id for answer in answers}) == 1
    await connection.close()
    with pytest.raises(ConnectionError, match="closed"):
        await connection.request(MetadataRequest(topics=[]))


async def test_a_refused_connection_names_the_address() -> None:
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:1"):
        await Connection.open("127.0.0.1", 1)


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await reader.read()
    writer.close()


async def test_a_silent_broker_is_given_up_after_the_timeout() -> None:
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        connection = await Connection.open(*server.sockets[0].getsockname())
        waiting = connection.send(MetadataRequest(topics=[]), 9)
        with pytest.raises(TimeoutError, match="did not answer MetadataRequest"):
            await connection.request(MetadataRequest(topics=[]), 9, timeout=0.1)
        with pytest.raises(ConnectionError):
            await waiting
        await connection.close()


async def test_garbage_ends_the_connection_and_fails_what_waits() -> None:
    async with await asyncio.start_server(garbage, "127.0.0.1", 0) as server:
        connection = await Connection.open(*server.sockets[0].getsockname())
        with pytest.raises(ConnectionError, match="announces"):
            await connection.request(MetadataRequest(topics=[]), 9, timeout=5)
        await connection.close()
