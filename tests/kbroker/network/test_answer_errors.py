"""Which errors stand in an answer, and that a dispatcher counts them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.handlers.demands import nothing
from kbroker.handlers.registry import CloseConnection, handles
from kbroker.network.answer_errors import error_counter, error_counter_in_steps
from kbroker.network.dispatch import PENDING, Dispatcher
from kbroker.network.limits import MOST_AT_ONCE
from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.codec import EncodedArray
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.headers import encode_request
from kbroker.protocol.messages.groups import HeartbeatResponse, OffsetFetchResponse
from kbroker.protocol.messages.metadata import MetadataResponse
from kbroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.protocol.frames import joined

NOT_LEADER, MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR


def produced(*codes: ErrorCode) -> ProduceResponse:
    made = ProduceResponse.PartitionProduceResponse
    partitions = [made(index=0, error_code=code, base_offset=-1) for code in codes]
    topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=partitions)
    return ProduceResponse(responses=[topic, topic])


def test_each_partition_and_the_whole_count_and_none_is_no_error() -> None:
    errors: Counter[ErrorCode] = Counter()
    count = error_counter(ProduceResponse)
    count(produced(ErrorCode.NONE, ErrorCode.NONE), errors)
    assert errors == {}
    count(produced(NOT_LEADER, ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR), errors)
    assert errors == {NOT_LEADER: 2, ErrorCode.UNKNOWN_SERVER_ERROR: 2}
    error_counter(HeartbeatResponse)(HeartbeatResponse(error_code=MOVED), errors)
    assert errors[MOVED] == 1


def test_arrays_that_are_null_or_encoded_already_are_left_alone() -> None:
    errors: Counter[ErrorCode] = Counter()
    group = OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g", topics=None, error_code=MOVED)  # type: ignore[arg-type]
    error_counter(OffsetFetchResponse)(OffsetFetchResponse(groups=[group]), errors)
    assert errors == {MOVED: 1}
    topics: list[MetadataResponse.MetadataResponseTopic] = EncodedArray(1, [b"x"])  # type: ignore[assignment]
    error_counter(MetadataResponse)(MetadataResponse(brokers=[], topics=topics), errors)
    assert errors == {MOVED: 1}


def test_in_steps_the_same_are_found_a_partition_at_a_time() -> None:
    errors: Counter[ErrorCode] = Counter()
    steps = error_counter_in_steps(ProduceResponse)(produced(NOT_LEADER, NOT_LEADER), errors)
    for found in (1, 2):
        next(steps)
        assert errors == {NOT_LEADER: found}
    assert list(steps)
    assert errors == {NOT_LEADER: 4}


def test_every_answer_can_be_looked_at() -> None:
    for api in API_BY_KEY.values():
        error_counter(api.response)
        error_counter_in_steps(api.response)


class Peer:
    """A connection that keeps what it is to send."""

    client_software_name = client_software_version = listener = principal = host = "test"
    received = last_active = 0.0
    takes_brokers = True
    timing: Any = None

    def __init__(self) -> None:
        self.answers: asyncio.Queue[Any] = asyncio.Queue()

    def answer(self, parts: Any, timing: Any = None) -> None:
        self.answers.put_nowait(parts)

    def cancel_when_closed(self, answer: Any) -> None: ...


def produce_frame(topics: int = 1, acks: int = 1) -> memoryview:
    data = ProduceRequest.TopicProduceData(
        name="t", partition_data=[ProduceRequest.PartitionProduceData(index=0, records=b"r")]
    )
    request = ProduceRequest(acks=acks, timeout_ms=1, topic_data=[data] * topics)
    return memoryview(joined(encode_request(request, 9, 1, "x"))[4:])


async def counted(monkeypatch: pytest.MonkeyPatch, handler: Any, frame: memoryview) -> dict[ErrorCode, int]:
    """Have Produce answered so; returns the errors that were counted."""
    table: dict[int, Any] = {}
    monkeypatch.setattr("kbroker.handlers.registry.HANDLERS", table)
    monkeypatch.setattr("kbroker.network.dispatch.HANDLERS", table)
    handles(ProduceRequest, nothing("a test"))(handler)
    dispatcher = Dispatcher(SimpleNamespace())  # type: ignore[arg-type]
    peer: Any = Peer()
    with contextlib.suppress(CloseConnection):
        if dispatcher(peer, frame) is PENDING:
            await asyncio.wait_for(peer.answers.get(), 30)
    return dict(dispatcher.apis[0].requests.errors)


@pytest.mark.parametrize("is_late", [False, True])
async def test_partitions_that_an_answer_refuses_are_counted(monkeypatch: pytest.MonkeyPatch, is_late: bool) -> None:
    async def later() -> ProduceResponse:
        await asyncio.sleep(0)
        return produced(NOT_LEADER, ErrorCode.NONE)

    def handler(services: Any, ctx: Any, request: Any) -> Any:
        return later() if is_late else produced(NOT_LEADER, ErrorCode.NONE)

    assert await counted(monkeypatch, handler, produce_frame()) == {NOT_LEADER: 2}


async def test_those_of_a_large_answer_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def handler(services: Any, ctx: Any, request: Any) -> Any:
        return produced(*[NOT_LEADER, ErrorCode.NONE] * MOST_AT_ONCE)

    assert await counted(monkeypatch, handler, produce_frame()) == {NOT_LEADER: 2 * MOST_AT_ONCE}


@pytest.mark.parametrize("topics", [3, MOST_AT_ONCE])
async def test_a_request_that_is_refused_as_a_whole_is_counted_as_often_as_the_answer_says_so(
    monkeypatch: pytest.MonkeyPatch, topics: int
) -> None:
    def handler(services: Any, ctx: Any, request: Any) -> Any:
        raise KafkaError(NOT_LEADER)

    assert await counted(monkeypatch, handler, produce_frame(topics)) == {NOT_LEADER: topics}


async def test_what_cannot_be_encoded_is_counted_as_what_is_answered_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    def handler(services: Any, ctx: Any, request: Any) -> Any:
        return ProduceResponse(responses=[None])  # type: ignore[list-item]

    assert await counted(monkeypatch, handler, produce_frame()) == {ErrorCode.UNKNOWN_SERVER_ERROR: 1}


async def test_a_refusal_that_ends_the_connection_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def handler(services: Any, ctx: Any, request: Any) -> Any:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    assert await counted(monkeypatch, handler, produce_frame(acks=0)) == {ErrorCode.KAFKA_STORAGE_ERROR: 1}
