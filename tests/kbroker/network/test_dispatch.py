"""Dispatch as a client meets it, on a real broker; and with handlers of the test's own, in this process."""

import asyncio
import logging
import struct
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.handlers import demands
from kbroker.handlers.context import RequestContext
from kbroker.handlers.demands import Asked, nothing, on_cluster
from kbroker.handlers.refusals import refusal
from kbroker.handlers.registry import HANDLERS, CloseConnection, handles
from kbroker.network import dispatch
from kbroker.network.dispatch import PENDING, Dispatcher, LateAnswer
from kbroker.network.limits import MOST_AT_ONCE, MOST_ELEMENTS
from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.errors import AnswerTooLarge, ErrorCode, KafkaError
from kbroker.protocol.headers import decode_response, encode_request
from kbroker.protocol.messages.api_versions import ApiVersionsRequest
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.messages.groups import JoinGroupRequest
from kbroker.protocol.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
)
from kbroker.protocol.messages.offsets import ListOffsetsRequest
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.replication import AllocateProducerIdsRequest, StopReplicaRequest
from kbroker.protocol.messages.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kbroker.protocol.schema import Message, schema_of
from kbroker.security.acls import CLUSTER_NAME, AclOperation, AclPattern, AclPermission, AclResource, Entry, Pattern
from kbroker.security.authorizer import EVERYTHING, Authorizer
from kbroker.security.limited_lines import LINES_EACH
from kbroker.security.quotas import ANY, REQUESTED, ClientQuotas, Entity
from tests.protocol.frames import joined


async def exchange(broker: BrokerProcess, frame: bytes, port: int | None = None) -> bytes:
    """Send one frame on a connection of its own; return the answer, b"" when the broker closes instead."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port or broker.port)
    try:
        writer.write(struct.pack(">i", len(frame)) + frame)
        async with asyncio.timeout(20):
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
    good = joined(encode_request(DescribeClusterRequest(include_cluster_authorized_operations=False), 0, 5, "test"))
    assert decode_response(await exchange(broker, good[4:]), DescribeClusterResponse, 0)[0] == 5
    lines = broker.log_file.read_bytes()[before:].decode().splitlines()
    assert len([line for line in lines if "closing the connection from 127.0.0.1" in line]) == 1
    assert not [line for line in lines if "Traceback" in line]


# -- with handlers of the test's own --------------------------------------------------------------------------------


class Peer:
    """Stands for a connection: keeps what it is told."""

    listener, host, port, principal = "PLAINTEXT", "127.0.0.1", 1234, "User:ANONYMOUS"
    received, last_active, timing = 0.0, 0.0, None

    def __init__(self, takes_brokers: bool = True) -> None:
        self.takes_brokers = takes_brokers
        self.authority = EVERYTHING
        self.answers: asyncio.Queue[Any] = asyncio.Queue()
        self.waiting: asyncio.Queue[asyncio.Future[Any]] = asyncio.Queue()

    def cancel_when_closed(self, answer: asyncio.Future[Any]) -> None:
        self.waiting.put_nowait(answer)

    def answer(self, parts: Any, timing: Any = None) -> None:
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
    return frame_of(DescribeClusterRequest(include_cluster_authorized_operations=False), 1)


def cluster(code: ErrorCode = ErrorCode.NONE) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, cluster_id="c", brokers=[])


def read(parts: Any) -> DescribeClusterResponse:
    frame = b"".join(bytes(part) for part in parts)
    assert struct.unpack(">i", frame[:4])[0] == len(frame) - 4
    correlation_id, response = decode_response(frame[4:], DescribeClusterResponse, 1)
    assert correlation_id == 9
    return response


def test_a_plain_answer_is_given_at_once(handlers: dict[int, Any]) -> None:
    @handles(DescribeClusterRequest, nothing("a test"))
    def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        assert (ctx.client_id, ctx.api_version, ctx.listener) == ("test", 1, "PLAINTEXT")
        return cluster()

    answer = dispatcher()(Peer(), describe_cluster_frame())  # type: ignore[arg-type]
    assert read(answer).cluster_id == "c"


async def test_an_answer_that_takes_time_comes_later(handlers: dict[int, Any]) -> None:
    @handles(DescribeClusterRequest, nothing("a test"))
    async def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        await asyncio.sleep(0)
        return cluster()

    peer = Peer()
    assert dispatcher()(peer, describe_cluster_frame()) is PENDING  # type: ignore[arg-type]
    assert read(await asyncio.wait_for(peer.answers.get(), 20)).cluster_id == "c"


async def test_the_answer_of_a_request_that_was_let_be_overtaken_after_a_while_has_its_place_among_the_late_ones(
    handlers: dict[int, Any],
) -> None:
    late: list[tuple[Any, Any]] = []

    @handles(DescribeClusterRequest, nothing("a test"))
    async def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        await asyncio.sleep(0)
        ctx.let_overtake()
        await asyncio.sleep(0)
        return cluster()

    class Letting(Peer):
        def let_overtake(self, ctx: RequestContext) -> None:
            ctx.late = LateAnswer()

        def answer_late(self, place: Any, parts: Any) -> None:
            late.append((place, parts))
            self.answer(parts)

    peer = Letting()
    assert dispatcher()(peer, describe_cluster_frame()) is PENDING  # type: ignore[arg-type]
    parts = await asyncio.wait_for(peer.answers.get(), 20)
    assert read(parts).cluster_id == "c"
    ((place, told),) = late
    assert (type(place), told) == (LateAnswer, parts)


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
    handlers: dict[int, Any], what: str, takes_brokers: bool, caplog: pytest.LogCaptureFixture
) -> None:
    request, version = (FROM_BROKERS | FROM_CLIENTS)[what]
    served = []

    @handles(type(request), nothing("a test"))
    def handler(services: Any, ctx: RequestContext, request: Any) -> None:
        served.append(request)

    asked, peer, frame = dispatcher(), Peer(takes_brokers), frame_of(request, version)
    with caplog.at_level("INFO", dispatch.__name__):
        answer = [asked(peer, frame) for _ in range(100)][-1]  # type: ignore[arg-type]
    assert len(caplog.messages) <= LINES_EACH
    assert bool(served) == (takes_brokers or what in FROM_CLIENTS)
    if not served:
        _, refused = decode_response(joined(answer)[4:], API_BY_KEY[schema_of(type(request)).api_key].response, version)
        assert refused.error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # type: ignore[attr-defined]


@pytest.mark.parametrize("operation", [None, AclOperation.DESCRIBE, AclOperation.ALTER, AclOperation.CLUSTER_ACTION])
def test_operators_end_hanging_transactions_through_the_clients_listener(
    handlers: dict[int, Any], operation: AclOperation | None
) -> None:
    """They send what coordinators send (KIP-664). None: there are no rules, so that nobody is known to be one."""
    served = []

    @handles(WriteTxnMarkersRequest, on_cluster(AclOperation.ALTER, AclOperation.CLUSTER_ACTION))
    def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        served.append(request)
        return WriteTxnMarkersResponse(markers=[])

    authorizer = Authorizer()
    entry = Entry(Peer.principal, "*", operation or AclOperation.ALL, AclPermission.ALLOW)
    authorizer.replace(Pattern(AclResource.CLUSTER, AclPattern.LITERAL, CLUSTER_NAME), {entry})
    asked = Dispatcher(SimpleNamespace(), authorizer if operation else None)  # type: ignore[arg-type]
    asked(Peer(takes_brokers=False), frame_of(WriteTxnMarkersRequest(markers=[]), 1))  # type: ignore[arg-type]
    assert bool(served) == (operation in (AclOperation.ALTER, AclOperation.CLUSTER_ACTION))


def frame_of(request: Message, version: int) -> memoryview:
    return memoryview(joined(encode_request(request, version, 9, "test"))[4:])


def metadata_frame(topics: int) -> memoryview:
    return frame_of(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")] * topics), 8)


def join_frame(protocols: int) -> memoryview:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="p", metadata=bytes(20))
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="", protocol_type="p", protocols=[protocol] * protocols
    )
    return frame_of(request, 5)


async def served(frame: memoryview) -> Any:
    """What becomes of a frame, now or later."""
    peer = Peer()
    answer = dispatcher()(peer, frame)  # type: ignore[arg-type]
    return await asyncio.wait_for(peer.answers.get(), 30) if answer is PENDING else answer


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize(
    ("request_type", "frame_with", "most"),
    [(MetadataRequest, metadata_frame, MOST_ELEMENTS), (JoinGroupRequest, join_frame, MOST_AT_ONCE)],
    ids=["Metadata", "JoinGroup"],
)
async def test_a_request_of_more_elements_than_its_api_may_have_ends_the_connection(
    handlers: dict[int, Any],
    request_type: type[Message],
    frame_with: Callable[[int], memoryview],
    most: int,
    more: int,
) -> None:
    @handles(request_type, nothing("a test"))
    def handler(services: Any, ctx: RequestContext, request: Any) -> None:
        assert len(getattr(request, "topics", ()) or request.protocols) == most

    outcome = await served(frame_with(most + more))
    if more:
        assert "1 elements more than are allowed" in str(outcome)
    else:
        assert outcome is None


# -- in turns -------------------------------------------------------------------------------------------------------


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many steps there were of what is done in turns."""
    taken: Counter[str] = Counter()

    def counted(what: str, function: Any) -> Any:
        def steps(*arguments: Any) -> Generator[None, None, Any]:
            work = function(*arguments)
            while True:
                try:
                    next(work)
                except StopIteration as end:
                    return end.value
                taken[what] += 1
                yield

        return steps

    for name, what in (("decode_in_steps", "decoding"), ("encode_response_in_steps", "encoding")):
        monkeypatch.setattr(dispatch, name, counted(what, getattr(dispatch, name)))
    return taken


def metadata_answer(topics: int) -> MetadataResponse:
    topic = MetadataResponse.MetadataResponseTopic(error_code=ErrorCode.NONE, name="t", partitions=[])
    return MetadataResponse(brokers=[], controller_id=1, topics=[topic] * topics)


async def test_large_requests_are_decoded_in_turns_and_small_ones_at_once(
    handlers: dict[int, Any], steps: Counter[str]
) -> None:
    @handles(MetadataRequest, nothing("a test"))
    def handler(services: Any, ctx: RequestContext, request: Any) -> None:
        steps["handled"] += len(request.topics)

    assert dispatcher()(Peer(), metadata_frame(MOST_AT_ONCE)) is None  # type: ignore[arg-type]
    assert steps == {"handled": MOST_AT_ONCE}
    await served(metadata_frame(40_000))
    assert steps["handled"] == MOST_AT_ONCE + 40_000
    assert steps["decoding"] >= 400


@pytest.mark.slow
@pytest.mark.parametrize("is_late", [False, True])
async def test_large_answers_are_encoded_in_turns(handlers: dict[int, Any], steps: Counter[str], is_late: bool) -> None:
    topics = MOST_AT_ONCE

    async def later() -> MetadataResponse:
        await asyncio.sleep(0)
        return metadata_answer(topics)

    @handles(MetadataRequest, nothing("a test"))
    def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        return later() if is_late else metadata_answer(topics)

    assert len(answered(await served(metadata_frame(1))).topics) == topics
    assert not steps
    topics = 40_000
    assert len(answered(await served(metadata_frame(1))).topics) == topics
    assert steps["encoding"] >= 400


def answered(parts: Any) -> MetadataResponse:
    frame = b"".join(bytes(part) for part in parts)
    assert struct.unpack(">i", frame[:4])[0] == len(frame) - 4
    return decode_response(frame[4:], MetadataResponse, 8)[1]


@pytest.mark.parametrize("how", ["at once", "later", "a part of it"])
async def test_large_requests_are_refused_beside_the_loop_and_small_ones_at_once(
    handlers: dict[int, Any], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by: list[int] = []

    def refuse(*arguments: Any) -> Any:
        made_by.append(threading.get_ident())
        return refusal(*arguments)

    monkeypatch.setattr(dispatch, "refusal", refuse)
    monkeypatch.setattr(demands, "refusal", refuse)

    async def later() -> None:
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def demand(asked: Asked) -> None:
        if how == "a part of it":
            asked.take_out("topics", asked.request.topics, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    @handles(MetadataRequest, demand)
    def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        if how == "later":
            return later()
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    peer: Any = Peer()
    peer.authority = SimpleNamespace(principal=peer.principal)
    serves = Dispatcher(SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]
    for topics, is_here in ((1, True), (MOST_AT_ONCE + 1, False)):
        answer = serves(peer, metadata_frame(topics))
        parts = await asyncio.wait_for(peer.answers.get(), 30) if answer is PENDING else answer
        assert [each.error_code for each in answered(parts).topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * topics
        assert (threading.get_ident() in made_by, len(made_by)) == (is_here, 1)
        made_by.clear()


async def test_a_handler_that_fails_after_a_large_request_is_answered_with_its_error(handlers: dict[int, Any]) -> None:
    @handles(MetadataRequest, nothing("a test"))
    async def handler(services: Any, ctx: RequestContext, request: Any) -> None:
        await asyncio.sleep(0)
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    refused = answered(await served(metadata_frame(3_000)))
    assert [topic.error_code for topic in refused.topics] == [ErrorCode.NOT_CONTROLLER] * 3_000


async def test_a_large_answer_that_cannot_be_encoded_is_answered_with_an_error(handlers: dict[int, Any]) -> None:
    @handles(MetadataRequest, nothing("a test"))
    def handler(services: Any, ctx: RequestContext, request: Any) -> MetadataResponse:
        answer = metadata_answer(3_000)
        answer.topics = [*answer.topics, None]  # type: ignore[list-item]
        return answer

    refused = answered(await served(metadata_frame(1)))
    assert [topic.error_code for topic in refused.topics] == [ErrorCode.UNKNOWN_SERVER_ERROR]


async def test_waiting_after_a_large_request_ends_with_the_connection_where_nobody_else_wants_the_answer(
    handlers: dict[int, Any],
) -> None:
    @handles(MetadataRequest, nothing("a test"))
    def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        ctx.ends_with_connection = True
        return asyncio.get_running_loop().create_future()

    peer = Peer()
    assert dispatcher()(peer, metadata_frame(3_000)) is PENDING  # type: ignore[arg-type]
    waiting = await asyncio.wait_for(peer.waiting.get(), 30)
    waiting.cancel()
    assert isinstance(await asyncio.wait_for(peer.answers.get(), 20), CloseConnection)


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_bug_is_logged_with_its_traceback_and_answered(
    handlers: dict[int, Any], is_late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await outcome(ZeroDivisionError("oops"), is_late)
    assert read(answer).error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    record = next(record for record in caplog.records if record.levelno == logging.ERROR)
    assert record.exc_info is not None
    assert "DescribeCluster" in record.getMessage()


@pytest.mark.parametrize("is_late", [False, True])
async def test_an_answer_that_would_be_too_large_is_refused_and_logged(
    handlers: dict[int, Any], is_late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    refused = read(await outcome(AnswerTooLarge(1000), is_late))
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "the answer would have more than 1000 bytes: ask for less at a time",
    )
    (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.levelno == logging.WARNING
    assert "refusing DescribeCluster version 1 from" in line.getMessage()
    assert "more than 1000 bytes" in line.getMessage()
    assert line.exc_info is None


async def outcome(error: Exception, is_late: bool) -> Any:
    """What becomes of a handler that raises."""

    def raising(services: Any, ctx: RequestContext, request: Any) -> Any:
        raise error

    async def raising_later(services: Any, ctx: RequestContext, request: Any) -> Any:
        raise error

    handles(DescribeClusterRequest, nothing("a test"))(raising_later if is_late else raising)
    peer = Peer()
    answer = dispatcher()(peer, describe_cluster_frame())  # type: ignore[arg-type]
    return await asyncio.wait_for(peer.answers.get(), 20) if answer is PENDING else answer


async def test_a_handler_may_end_the_connection(handlers: dict[int, Any]) -> None:
    with pytest.raises(CloseConnection, match="enough"):
        await outcome(CloseConnection("enough"), is_late=False)
    closed = await outcome(CloseConnection("enough"), is_late=True)
    assert isinstance(closed, CloseConnection)


def test_an_error_with_acks_zero_ends_the_connection(handlers: dict[int, Any]) -> None:
    @handles(ProduceRequest, nothing("a test"))
    def handler(services: Any, ctx: RequestContext, request: Any) -> Awaitable[Any]:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    request = ProduceRequest(acks=0, timeout_ms=1, topic_data=[])
    frame = memoryview(joined(encode_request(request, 9, 1, "x"))[4:])
    with pytest.raises(CloseConnection, match="KAFKA_STORAGE_ERROR"):
        dispatcher()(Peer(), frame)  # type: ignore[arg-type]


class Muted(Peer):
    """A peer that clients' limits may slow down."""

    client_id = "test"
    login_limits = None

    def mute(self, seconds: float) -> None:
        """Nothing waits in this test."""


@pytest.fixture
def counting(handlers: dict[int, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Dispatcher, list[RequestContext]]:
    """A dispatcher that counts, and what it has counted."""
    contexts: list[RequestContext] = []

    @handles(DescribeClusterRequest, nothing("a test"))
    def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        return cluster()

    quotas = ClientQuotas(11, 1000, 11)
    quotas.replace(Entity(ANY, None), {REQUESTED: 1000.0})
    counts = Dispatcher(SimpleNamespace(), quotas=quotas)  # type: ignore[arg-type]
    count = counts.meter.count

    def noted(ctx: RequestContext, request: Any, answer: Any) -> Any:
        contexts.append(ctx)
        return count(ctx, request, answer)

    monkeypatch.setattr(counts.meter, "count", noted)
    return counts, contexts


def test_all_requests_together_are_counted_for_no_more_than_the_time_that_passed(
    counting: tuple[Dispatcher, list[RequestContext]],
) -> None:
    counts, contexts = counting
    began = time.monotonic()
    for _ in range(500):
        counts(Muted(), describe_cluster_frame())  # type: ignore[arg-type]
    passed_ms = 1000 * (time.monotonic() - began)
    assert 0 < sum(ctx.busy_ms for ctx in contexts) <= passed_ms
    assert len(contexts) == 500
    assert {ctx.request_bytes for ctx in contexts} == {len(describe_cluster_frame())}


async def test_large_requests_are_counted_too(
    counting: tuple[Dispatcher, list[RequestContext]], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, contexts = counting
    peer = Muted()
    monkeypatch.setattr(dispatch, "MOST_AT_ONCE", -1)
    assert counts(peer, describe_cluster_frame()) is PENDING  # type: ignore[arg-type]
    async with asyncio.timeout(30):
        await peer.answers.get()
    (ctx,) = contexts
    assert ctx.is_large
    assert ctx.request_bytes == len(describe_cluster_frame())
    assert ctx.busy_ms > 0


def test_counting_that_fails_is_a_refusal_and_no_silence(
    counting: tuple[Dispatcher, list[RequestContext]], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, _ = counting

    def fail(*_: Any) -> None:
        raise OverflowError("too much")

    monkeypatch.setattr(counts.meter, "count", fail)
    answer = read(counts(Muted(), describe_cluster_frame()))  # type: ignore[arg-type]
    assert answer.error_code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_api_without_a_handler_is_unknown(handlers: dict[int, Any]) -> None:
    with pytest.raises(CloseConnection, match="API key 60"):
        dispatcher()(Peer(), describe_cluster_frame())  # type: ignore[arg-type]


def test_handlers_are_registered_under_their_key(handlers: dict[int, Any]) -> None:
    def handler(services: Any, ctx: RequestContext, request: Any) -> None: ...

    assert handles(ApiVersionsRequest, nothing("a test"))(handler) is handler
    assert handlers[18].handler is handler
    assert HANDLERS is not handlers
