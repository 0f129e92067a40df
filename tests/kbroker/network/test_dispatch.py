"""Dispatch as a client meets it, on a real broker; and with handlers of the test's own, in this process."""

import asyncio
import logging
import struct
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.handlers.context import RequestContext
from kbroker.handlers.registry import HANDLERS, CloseConnection, handles
from kbroker.network.dispatch import PENDING, Dispatcher
from kbroker.network.limits import MOST_ELEMENTS
from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.headers import decode_response, encode_request
from kbroker.protocol.messages.api_versions import ApiVersionsRequest
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.messages.metadata import DescribeClusterRequest, DescribeClusterResponse, MetadataRequest
from kbroker.protocol.messages.offsets import ListOffsetsRequest
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.replication import AllocateProducerIdsRequest, StopReplicaRequest
from kbroker.protocol.schema import schema_of


async def exchange(broker: BrokerProcess, frame: bytes) -> bytes:
    """Send one frame on a connection of its own; return the answer, b"" when the broker closes instead."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    try:
        writer.write(struct.pack(">i", len(frame)) + frame)
        async with asyncio.timeout(10):
            size = await reader.read(4)
            return await reader.readexactly(struct.unpack(">i", size)[0]) if size else b""
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        (b"", "nothing"),
        (b"\x00\x12\x00", "half a header"),
        (struct.pack(">hhih", 999, 0, 1, -1), "an unknown key"),
        (struct.pack(">hhih", -1, 0, 1, -1), "a negative key"),
        (struct.pack(">hhih", 68, 0, 1, -1) + b"\x00", "an API that is not built yet"),
        (struct.pack(">hhih", 3, 99, 1, -1), "an unknown version"),
        (struct.pack(">hhih", 3, -1, 1, -1), "a negative version"),
        (struct.pack(">hhih", 3, 1, 1, 30000), "a client id that is longer than the frame"),
        (struct.pack(">hhih", 3, 1, 1, -5), "a negative client id below null"),
        (struct.pack(">hhihi", 3, 1, 1, -1, 1 << 30), "a huge array"),
        (struct.pack(">hhihi", 3, 0, 1, -1, -7), "a negative array"),
        (struct.pack(">hhihih", 3, 1, 1, -1, 1, 500), "a string beyond the end"),
        (struct.pack(">hhih", 3, 12, 1, -1) + b"\xff" * 10, "varints without end"),
        (bytes(range(256)), "garbage"),
    ],
)
async def test_what_cannot_be_read_ends_its_connection_and_no_other(
    broker: BrokerProcess, frame: bytes, what: str
) -> None:
    before = broker.log_file.stat().st_size
    assert await exchange(broker, frame) == b"", what
    good = b"".join(
        bytes(part)
        for part in encode_request(DescribeClusterRequest(include_cluster_authorized_operations=False), 0, 5, "test")
    )
    assert decode_response(await exchange(broker, good[4:]), DescribeClusterResponse, 0)[0] == 5
    lines = broker.log_file.read_bytes()[before:].decode().splitlines()
    assert len([line for line in lines if "closing the connection from 127.0.0.1" in line]) == 1
    assert not [line for line in lines if "Traceback" in line]


# -- with handlers of the test's own --------------------------------------------------------------------------------


class Peer:
    """Stands for a connection: keeps what it is told."""

    listener, host, port, principal = "PLAINTEXT", "127.0.0.1", 1234, "User:ANONYMOUS"

    def __init__(self, takes_brokers: bool = True) -> None:
        self.takes_brokers = takes_brokers
        self.answers: asyncio.Queue[Any] = asyncio.Queue()

    def answer(self, parts: Any) -> None:
        self.answers.put_nowait(parts)

    def close(self, reason: str, level: int = 0) -> None:
        self.answers.put_nowait(CloseConnection(reason))


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> dict[int, Any]:
    """An empty dispatch table."""
    table: dict[int, Any] = {}
    monkeypatch.setattr("kbroker.handlers.registry.HANDLERS", table)
    monkeypatch.setattr("kbroker.network.dispatch.HANDLERS", table)
    return table


def dispatcher() -> Dispatcher:
    return Dispatcher(SimpleNamespace())  # type: ignore[arg-type]


def describe_cluster_frame() -> memoryview:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    return memoryview(b"".join(bytes(part) for part in encode_request(request, 1, 9, "test"))[4:])


def cluster(code: ErrorCode = ErrorCode.NONE) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, cluster_id="c", brokers=[])


def read(parts: Any) -> DescribeClusterResponse:
    frame = b"".join(bytes(part) for part in parts)
    assert struct.unpack(">i", frame[:4])[0] == len(frame) - 4
    correlation_id, response = decode_response(frame[4:], DescribeClusterResponse, 1)
    assert correlation_id == 9
    return response


def test_a_plain_answer_is_given_at_once(handlers: dict[int, Any]) -> None:
    @handles(DescribeClusterRequest)
    def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        assert (ctx.client_id, ctx.api_version, ctx.listener) == ("test", 1, "PLAINTEXT")
        return cluster()

    answer = dispatcher()(Peer(), describe_cluster_frame())  # type: ignore[arg-type]
    assert read(answer).cluster_id == "c"


async def test_an_answer_that_takes_time_comes_later(handlers: dict[int, Any]) -> None:
    @handles(DescribeClusterRequest)
    async def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        await asyncio.sleep(0)
        return cluster()

    peer = Peer()
    assert dispatcher()(peer, describe_cluster_frame()) is PENDING  # type: ignore[arg-type]
    assert read(await asyncio.wait_for(peer.answers.get(), 5)).cluster_id == "c"


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_refusal_becomes_the_apis_own_error_response(handlers: dict[int, Any], is_late: bool) -> None:
    answer = await outcome(KafkaError(ErrorCode.NOT_CONTROLLER, "ask another"), is_late)
    assert read(answer).error_code is ErrorCode.NOT_CONTROLLER
    assert read(answer).error_message == "ask another"


FROM_BROKERS: dict[str, tuple[Any, int]] = {
    "StopReplica": (StopReplicaRequest(controller_id=1, controller_epoch=1), 3),
    "AllocateProducerIds": (AllocateProducerIdsRequest(broker_id=1, broker_epoch=1), 0),
    "a follower's Fetch": (FetchRequest(replica_id=2, max_wait_ms=1, min_bytes=1, topics=[]), 12),
    "a newer follower's Fetch": (
        FetchRequest(
            replica_state=FetchRequest.ReplicaState(replica_id=2, replica_epoch=1),
            max_wait_ms=1,
            min_bytes=1,
            topics=[],
        ),
        17,
    ),
}
FROM_CLIENTS: dict[str, tuple[Any, int]] = {
    "a consumer's Fetch": (FetchRequest(max_wait_ms=1, min_bytes=1, topics=[]), 12),
    "a newer consumer's Fetch": (FetchRequest(max_wait_ms=1, min_bytes=1, topics=[]), 17),
    "a consumer's ListOffsets": (ListOffsetsRequest(replica_id=-1, topics=[]), 9),
}


@pytest.mark.parametrize("what", [*FROM_BROKERS, *FROM_CLIENTS])
@pytest.mark.parametrize("takes_brokers", [False, True])
def test_what_only_brokers_send_is_refused_on_the_clients_listener(
    handlers: dict[int, Any], what: str, takes_brokers: bool
) -> None:
    request, version = (FROM_BROKERS | FROM_CLIENTS)[what]
    served = []

    @handles(type(request))
    def handler(services: Any, ctx: RequestContext, request: Any) -> None:
        served.append(request)

    frame = memoryview(b"".join(bytes(part) for part in encode_request(request, version, 9, "test"))[4:])
    answer = dispatcher()(Peer(takes_brokers), frame)  # type: ignore[arg-type]
    assert bool(served) == (takes_brokers or what in FROM_CLIENTS)
    if not served:
        response = b"".join(bytes(part) for part in answer)
        _, refused = decode_response(response[4:], API_BY_KEY[schema_of(type(request)).api_key].response, version)
        assert refused.error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # type: ignore[attr-defined]


@pytest.mark.parametrize("more", [0, 1])
def test_a_request_of_more_elements_than_its_api_may_have_ends_the_connection(
    handlers: dict[int, Any], more: int
) -> None:
    @handles(MetadataRequest)
    def handler(services: Any, ctx: RequestContext, request: Any) -> None:
        assert len(request.topics) == MOST_ELEMENTS

    topics = [MetadataRequest.MetadataRequestTopic(name="t")] * (MOST_ELEMENTS + more)
    frame = memoryview(b"".join(bytes(part) for part in encode_request(MetadataRequest(topics=topics), 8, 9, "t"))[4:])
    if more:
        with pytest.raises(CloseConnection, match="1 elements more than are allowed"):
            dispatcher()(Peer(), frame)  # type: ignore[arg-type]
    else:
        assert dispatcher()(Peer(), frame) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_bug_is_logged_with_its_traceback_and_answered(
    handlers: dict[int, Any], is_late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await outcome(ZeroDivisionError("oops"), is_late)
    assert read(answer).error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    record = next(record for record in caplog.records if record.levelno == logging.ERROR)
    assert record.exc_info is not None
    assert "DescribeCluster" in record.getMessage()


async def outcome(error: Exception, is_late: bool) -> Any:
    """What becomes of a handler that raises."""

    def raising(services: Any, ctx: RequestContext, request: Any) -> Any:
        raise error

    async def raising_later(services: Any, ctx: RequestContext, request: Any) -> Any:
        raise error

    handles(DescribeClusterRequest)(raising_later if is_late else raising)
    peer = Peer()
    answer = dispatcher()(peer, describe_cluster_frame())  # type: ignore[arg-type]
    return await asyncio.wait_for(peer.answers.get(), 5) if answer is PENDING else answer


async def test_a_handler_may_end_the_connection(handlers: dict[int, Any]) -> None:
    with pytest.raises(CloseConnection, match="enough"):
        await outcome(CloseConnection("enough"), is_late=False)
    closed = await outcome(CloseConnection("enough"), is_late=True)
    assert isinstance(closed, CloseConnection)


def test_an_error_with_acks_zero_ends_the_connection(handlers: dict[int, Any]) -> None:
    @handles(ProduceRequest)
    def handler(services: Any, ctx: RequestContext, request: Any) -> Awaitable[Any]:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    request = ProduceRequest(acks=0, timeout_ms=1, topic_data=[])
    frame = memoryview(b"".join(bytes(part) for part in encode_request(request, 9, 1, "x"))[4:])
    with pytest.raises(CloseConnection, match="KAFKA_STORAGE_ERROR"):
        dispatcher()(Peer(), frame)  # type: ignore[arg-type]


def test_an_api_without_a_handler_is_unknown(handlers: dict[int, Any]) -> None:
    with pytest.raises(CloseConnection, match="API key 60"):
        dispatcher()(Peer(), describe_cluster_frame())  # type: ignore[arg-type]


def test_handlers_are_registered_under_their_key(handlers: dict[int, Any]) -> None:
    def handler(services: Any, ctx: RequestContext, request: Any) -> None: ...

    assert handles(ApiVersionsRequest)(handler) is handler
    assert handlers == {18: handler}
    assert HANDLERS is not handlers
