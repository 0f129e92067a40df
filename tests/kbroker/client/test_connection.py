import asyncio
import errno
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from kbroker.client.client_config import AdminConfig
from kbroker.client.connection import WAKE_BYTES, Connection
from kbroker.client.errors import NotConnected
from kbroker.client.security import PLAINTEXT, Security
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.headers import encode_response
from kbroker.protocol.messages.fetch import FetchRequest, FetchResponse
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.produce import ProduceRequest
from tests.fixtures.certificates import Authority, Identity
from tests.fixtures.streams import stream_server
from tests.kbroker.client.tls_peer import server_context
from tests.kbroker.network.serving import until
from tests.protocol.frames import joined


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


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await reader.read()


@asynccontextmanager
async def peer(behave: Callable[..., Awaitable[None]]) -> AsyncIterator[tuple[str, int]]:
    """A peer for one connection; yields its address, and leaves no socket behind."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await behave(reader, writer)
            writer.close()
            await writer.wait_closed()
        ended.set()

    async with stream_server(serve) as port:
        yield "127.0.0.1", port
        async with asyncio.timeout(20):
            await ended.wait()


async def test_a_silent_broker_is_given_up_after_the_timeout() -> None:
    async with peer(silent) as address:
        connection = await Connection.open(*address)
        waiting = connection.send(MetadataRequest(topics=[]), 9)
        with pytest.raises(TimeoutError, match="did not answer MetadataRequest"):
            await connection.request(MetadataRequest(topics=[]), 9, timeout=0.1)
        with pytest.raises(ConnectionError):
            await waiting
        await connection.close()


@pytest.mark.parametrize(
    ("host", "port"), [("broker..example", 9092), ("x" * 64, 9092), ("a\0b", 9092), ("127.0.0.1", 70_000)]
)
async def test_what_cannot_be_an_address_is_nowhere_connected(host: str, port: int) -> None:
    with pytest.raises(NotConnected, match=f"no connection to {host}:{port}: no host has such a name"):
        await Connection.open(host, port, timeout=30)


async def hanging_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)


async def test_a_peer_that_hangs_up_on_a_tls_handshake_is_named_with_what_may_be_wrong() -> None:
    async with peer(hanging_up) as address:
        with pytest.raises(ConnectionError, match=r"no connection to 127\.0\.0\.1:\d+: \w"):
            await Connection.open(*address, security=AdminConfig(bootstrap="h:1", security_protocol="SSL"))


async def test_garbage_ends_the_connection_and_fails_what_waits() -> None:
    async with peer(garbage) as address:
        connection = await Connection.open(*address)
        with pytest.raises(ConnectionError, match="it speaks HTTP"):
            await connection.request(MetadataRequest(topics=[]), 9, timeout=5)
        await connection.close()


async def test_parts_arrive_whole_and_in_order_when_the_peer_reads_slowly() -> None:
    received = bytearray()
    done = asyncio.Event()
    parts = [bytes([number % 251]) * (1 << 18) for number in range(40)]

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.1)
        while len(received) < 2 * sum(map(len, parts)):
            received.extend(await reader.read(1 << 16))
        done.set()

    async with peer(slow) as address:
        connection = await Connection.open(*address)
        connection._write(parts)
        connection._write(parts)
        async with asyncio.timeout(60):
            await done.wait()
        await connection.close()
    assert received == b"".join(parts) * 2


def unanswered(size: int) -> ProduceRequest:
    """A Produce that wants no answer."""
    data = ProduceRequest.PartitionProduceData(index=0, records=bytes(size))
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    return ProduceRequest(acks=0, timeout_ms=1000, topic_data=[topic])


async def test_a_request_without_an_answer_is_done_once_the_system_has_all_of_it() -> None:
    may_read = asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await may_read.wait()
        while await reader.read(1 << 20):
            pass

    async with peer(late) as address:
        connection = await Connection.open(*address)
        assert connection.send_without_answer(unanswered(10), 9).done()
        large = connection.send_without_answer(unanswered(8 << 20), 9)
        small = connection.send_without_answer(unanswered(10), 9)
        await asyncio.sleep(0.02)
        assert not large.done()
        assert not small.done()
        may_read.set()
        async with asyncio.timeout(60):
            await asyncio.gather(large, small)
        await connection.close()


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_what_wants_no_answer_arrives_though_the_connection_is_closed_behind_it(
    is_encrypted: bool, authority: Authority, broker_identity: Identity
) -> None:
    received = 0
    at_end = asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        await asyncio.sleep(0.05)
        with suppress(OSError):
            while data := await reader.read(1 << 20):
                received += len(data)
        writer.close()
        at_end.set()

    context = server_context(broker_identity, authority) if is_encrypted else None
    security = AdminConfig(
        bootstrap="h:1", security_protocol="SSL" if is_encrypted else "PLAINTEXT", ssl_cafile=str(authority.file)
    )
    async with stream_server(late, context) as port, asyncio.timeout(60):
        connection = await Connection.open("127.0.0.1", port, security=security)
        await connection.send_without_answer(unanswered(12 << 20), 9)
        await connection.close()
        await at_end.wait()
    assert received > 12 << 20


async def test_a_request_without_an_answer_fails_where_the_connection_ends_before_all_of_it_is_written() -> None:
    for sends_more in (False, True):
        async with peer(silent) as address:
            connection = await Connection.open(*address)
            large = connection.send_without_answer(unanswered(8 << 20), 9)
            if sends_more:
                connection.send(MetadataRequest(topics=[]), 9)
            connection.abort()
            if sends_more:
                assert await large is None, "the broker may have all of it: sent again it might be there twice"
            else:
                with pytest.raises(NotConnected, match="closed here"):
                    await large
            await connection.close()


async def test_what_waited_for_a_login_that_failed_was_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = asyncio.Event()

    async def refused(connection: Connection, security: Security) -> float:
        await waits.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(0.02):
                await connection.ask_first(MetadataRequest(topics=[]), 9)
        raise NotConnected("nobody lets us in")

    monkeypatch.setattr("kbroker.client.authentication.authenticate_again", refused)
    async with peer(silent) as address:
        connection = await Connection.open(*address)
        connection._begin_login(PLAINTEXT)
        await asyncio.sleep(0)
        waiting = connection.send_without_answer(unanswered(10), 9)
        waits.set()
        with pytest.raises(NotConnected, match="nobody lets us in"):
            await waiting
        await connection.close()


async def test_the_receive_buffer_may_be_set_or_left_to_the_system() -> None:
    async with peer(silent) as (host, port):
        connection = await Connection.open(host, port)
        assert connection._transport is not None
        sock = connection._transport.get_extra_info("socket")
        before = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        connection.set_receive_buffer(-1)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == before
        connection.set_receive_buffer(20_000)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 40_000  # Linux takes twice what is asked for
        await connection.close()


def large_answer(size: int) -> bytes:
    """To a first request, a Fetch of version 4, of so many bytes of records."""
    item = FetchResponse.PartitionData(
        partition_index=0, error_code=ErrorCode.NONE, high_watermark=0, aborted_transactions=None, records=bytes(size)
    )
    topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[item])
    return joined(encode_response(FetchResponse(responses=[topic]), 4, 1))


async def fetch_large_answer(connection: Connection, size: int) -> None:
    """Ask for it, and find all of it."""
    found = await connection.request(FetchRequest(max_wait_ms=0, min_bytes=1, topics=[]), 4)
    assert bytes(found.responses[0].partitions[0].records) == bytes(size)


def woken_at(connection: Connection) -> int:
    """How many bytes the system waits for."""
    assert connection._transport is not None
    sock = connection._transport.get_extra_info("socket")
    return int(sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux is told how much to wait for")
async def test_a_receive_buffer_set_in_the_middle_of_a_large_answer_leaves_nobody_asleep() -> None:
    size = 3 * WAKE_BYTES
    answer = large_answer(size)

    async def in_pieces(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(answer[:100_000])
        await until(lambda: woken_at(connection) == WAKE_BYTES)
        connection.set_receive_buffer(20_000)
        writer.write(answer[100_000:])
        await reader.read()

    async with peer(in_pieces) as address:
        connection = await Connection.open(*address)
        await fetch_large_answer(connection, size)
        assert woken_at(connection) == 1
        await connection.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux is told how much to wait for")
async def test_of_a_large_answer_much_is_waited_for_at_once_and_never_more_than_is_to_come() -> None:
    size = 3 * WAKE_BYTES
    answer = large_answer(size)

    async def in_pieces(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(answer[:100_000])
        await until(lambda: woken_at(connection) == WAKE_BYTES)
        writer.write(answer[100_000:-1])
        await until(lambda: connection.session.missing <= WAKE_BYTES)
        writer.write(answer[-1:])
        await reader.read()

    async with peer(in_pieces) as address:
        connection = await Connection.open(*address)
        await fetch_large_answer(connection, size)
        assert woken_at(connection) == 1
        await connection.close()


async def test_where_nobody_can_wait_for_much_at_once_a_large_answer_is_read_all_the_same() -> None:
    class Refusing:
        """The socket of a system that has the option's number and not the option."""

        def setsockopt(self, *option: object) -> None:
            raise OSError(errno.ENOPROTOOPT, "Protocol not available")

    answer = large_answer(3 * WAKE_BYTES)

    async def at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(answer)
        await reader.read()

    async with peer(at_once) as address:
        connection = await Connection.open(*address)
        connection._socket = Refusing()
        await fetch_large_answer(connection, 3 * WAKE_BYTES)
        await connection.close()


async def test_where_no_thread_can_be_started_names_are_resolved_all_the_same(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        connection = await Connection.open("localhost", broker.port)
    await connection.negotiate()
    assert connection.versions
    await connection.close()
