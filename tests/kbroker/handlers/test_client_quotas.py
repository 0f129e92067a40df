"""Limits of clients at a real broker: set, told, kept to."""

from __future__ import annotations

import gc
import math
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.client.connection import Connection
from kbroker.dev.broker_process import BrokerProcess
from kbroker.handlers.client_quotas import _place, alter_client_quotas
from kbroker.handlers.refusals import blank
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.fetch import FetchRequest, FetchResponse
from kbroker.protocol.messages.groups import ListGroupsRequest
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from kbroker.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from kbroker.protocol.records.builder import BatchBuilder
from tests.kbroker.asking import Ask

NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
Entry = AlterClientQuotasRequest.EntryData


def entry(entity: Mapping[str, str | None], **limits: float | None) -> Entry:
    return Entry(
        entity=[AlterClientQuotasRequest.EntityData(entity_type=k, entity_name=n) for k, n in entity.items()],
        ops=[
            AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in limits.items()
        ],
    )


async def alter(ask: Ask, *entries: Entry, validate_only: bool = False) -> list[ErrorCode]:
    answer = await ask(AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only))
    return [each.error_code for each in answer.entries]


async def describe(ask: Ask, strict: bool = False, **components: Any) -> list[tuple[dict[str, Any], dict[str, float]]]:
    """Components: type=(match type, name)."""
    made = DescribeClientQuotasRequest.ComponentData
    asked = [made(entity_type=t.replace("_", "-"), match_type=m, match=n) for t, (m, n) in components.items()]
    answer = await ask(DescribeClientQuotasRequest(components=asked, strict=strict))
    if answer.error_code is not NONE:
        raise AssertionError(answer.error_code.name)
    return [
        ({each.entity_type: each.entity_name for each in found.entity}, {v.key: v.value for v in found.values})
        for found in answer.entries
    ]


@pytest.fixture
async def limited(own_broker: BrokerProcess) -> Any:
    """Asks under a client id: `await limited(client id)` gives a connection."""
    opened = []

    async def connect(client_id: str) -> Any:
        connection = await Connection.open("127.0.0.1", own_broker.port, client_id=client_id, timeout=20)
        opened.append(connection)
        await connection.negotiate()

        async def ask(request: Any, version: int | None = None) -> Any:
            return await connection.request(request, version, timeout=30)

        return ask

    yield connect
    for connection in opened:
        await connection.close()


async def test_limits_are_set_told_and_removed(limited: Any) -> None:
    ask = await limited("admin")
    ann, both, ip = {"user": "ann"}, {"user": None, "client-id": "app"}, {"ip": "10.0.0.1"}
    codes = await alter(
        ask,
        entry(ann, producer_byte_rate=1024, request_percentage=12.5),
        entry(both, consumer_byte_rate=5),
        entry(ip, connection_creation_rate=7),
    )
    assert codes == [NONE] * 3
    assert await alter(ask, entry({"user": "bob"}, producer_byte_rate=1), validate_only=True) == [NONE]
    told = {"producer_byte_rate": 1024.0, "request_percentage": 12.5}
    assert (ann, told) in await describe(ask)
    assert len(await describe(ask)) == 3
    assert await describe(ask, user=(EXACT, "ann")) == [(ann, told)]
    assert await describe(ask, user=(DEFAULT, None)) == [(both, {"consumer_byte_rate": 5.0})]
    assert await describe(ask, strict=True, user=(SPECIFIED, None)) == [(ann, told)]
    assert await describe(ask, ip=(SPECIFIED, None)) == [(ip, {"connection_creation_rate": 7.0})]
    assert await alter(ask, entry(ann, producer_byte_rate=None, request_percentage=None)) == [NONE]
    assert len(await describe(ask)) == 2


async def test_what_makes_no_limit_is_refused_by_itself(limited: Any) -> None:
    ask = await limited("admin")
    codes = await alter(
        ask,
        entry({}, producer_byte_rate=1),
        entry({"user": ""}, producer_byte_rate=1),
        entry({"sandwich": "ham"}, producer_byte_rate=1),
        entry({"user": "a"}, connection_creation_rate=1),
        entry({"user": "a"}, producer_byte_rate=1.5),
        entry({"user": "a"}, producer_byte_rate=-1),
        entry({"ip": "10.0.0.1", "user": "a"}, connection_creation_rate=1),
        entry({"user": "a"}, producer_byte_rate=math.nan),
        entry({"user": "a"}, request_percentage=math.inf),
        entry({"user": "a"}, request_percentage=math.nan),
        entry({"ip": "nowhere.invalid"}, connection_creation_rate=1),
        entry({"user": "a"}, producer_byte_rate=1),
    )
    assert codes == [INVALID] * 11 + [NONE]
    several = entry({"user": "a"}, producer_byte_rate=1)
    for too_many in (
        Entry(entity=[*several.entity] * 1001, ops=several.ops),
        Entry(entity=several.entity, ops=[*several.ops] * 1001),
    ):
        assert await alter(ask, too_many) == [INVALID], "of one entity there are not as many"
    for components, said in (
        ({"ip": (SPECIFIED, None), "user": (SPECIFIED, None)}, "INVALID_REQUEST"),
        ({"sandwich": (SPECIFIED, None)}, "UNSUPPORTED_VERSION"),
        ({"user": (EXACT, None)}, "INVALID_REQUEST"),
    ):
        with pytest.raises(AssertionError, match=said):
            await describe(ask, False, **components)


async def test_what_is_refused_leaves_nothing_for_the_garbage_collector() -> None:
    """It looks at old objects once in minutes: a request in a cycle of references would be held for as long."""
    wrong: Any = AlterClientQuotasRequest(
        entries=[entry({"sandwich": str(number)}, producer_byte_rate=1) for number in range(500)], validate_only=False
    )
    services: Any = SimpleNamespace(quotas=object())
    gc.collect()
    gc.disable()
    try:
        answer = await alter_client_quotas(services, wrong, wrong)
        assert {each.error_code for each in answer.entries} == {INVALID}
        del answer, wrong
        assert gc.collect() < 500
    finally:
        gc.enable()


def production(topic: str, size: int) -> ProduceRequest:
    builder = BatchBuilder(1 << 20, 0)
    builder.append(None, bytes(size), [], 1_700_000_000_000)
    data = ProduceRequest.PartitionProduceData(index=0, records=bytearray(bytes(builder.build())))
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=1, timeout_ms=10_000, topic_data=topics)


async def produced(ask: Ask, topic: str, size: int = 20_000) -> int:
    """Produce as soon as the topic can be written to; returns for how long to wait."""
    deadline = time.monotonic() + 30
    while True:
        answer = await ask(production(topic, size), 9)
        if answer.responses[0].partition_responses[0].error_code is NONE:
            return int(answer.throttle_time_ms)
        assert time.monotonic() < deadline


async def test_a_client_over_its_rate_is_told_and_not_read_for_so_long(limited: Any) -> None:
    greedy, modest = await limited("greedy"), await limited("modest")
    wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
    await modest(wanted, 8)
    assert await produced(greedy, "t") == 0
    assert await alter(modest, entry({"client-id": "greedy"}, producer_byte_rate=10_000)) == [NONE]
    for _ in range(5):
        told_ms = await produced(greedy, "t", 30_000)
    began = time.monotonic()
    assert told_ms >= 1_000
    await greedy(ListGroupsRequest(), 3)
    assert time.monotonic() - began >= 0.8 * told_ms / 1000, "who was told to wait is not served before"
    assert await produced(modest, "t", 30_000) == 0
    assert await alter(modest, entry({"client-id": "greedy"}, producer_byte_rate=None)) == [NONE]
    assert await produced(greedy, "t", 30_000) == 0, "the limit is gone at once"


async def test_what_is_fetched_too_fast_is_not_sent_and_comes_later(limited: Any) -> None:
    ask = await limited("reader")
    await ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 8)
    for _ in range(4):
        await produced(ask, "t")
    assert await alter(ask, entry({"user": "ANONYMOUS"}, consumer_byte_rate=9_000)) == [NONE]
    wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic="t", partitions=[wanted])
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, session_epoch=-1, topics=[topic], forgotten_topics_data=[], replica_id=-1
    )
    first = await ask(request, 12)
    assert first.responses[0].partitions[0].records
    second = await ask(request, 12)
    assert second.throttle_time_ms > 0
    assert not second.responses
    third = await ask(request, 12)
    assert third.throttle_time_ms < 30_000, "what was not sent is not counted"


async def test_what_a_session_was_not_sent_is_told_when_it_may_be(limited: Any) -> None:
    ask = await limited("reader")
    await ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 8)
    await produced(ask, "t")

    async def read(session: int, epoch: int, offset: int) -> FetchResponse:
        wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=20_000)
        topic = FetchRequest.FetchTopic(topic="t", partitions=[wanted])
        asked = blank(FetchRequest, max_bytes=1 << 20, session_id=session, session_epoch=epoch, topics=[topic])
        answer: FetchResponse = await ask(asked, 12)
        return answer

    session = (await read(0, 0, 0)).session_id
    assert session
    assert await alter(ask, entry({"user": "ANONYMOUS"}, consumer_byte_rate=3_600)) == [NONE]
    for epoch in range(1, 50):
        await produced(ask, "t")
        withheld = await read(session, epoch, 0)
        if not withheld.responses:
            break
    assert withheld.throttle_time_ms > 0
    assert withheld.session_id == session
    assert await alter(ask, entry({"user": "ANONYMOUS"}, consumer_byte_rate=None)) == [NONE]
    told = await read(session, epoch + 1, epoch + 1)
    assert told.responses[0].partitions[0].high_watermark == epoch + 1


async def test_partitions_are_made_and_deleted_as_fast_as_allowed(limited: Any) -> None:
    ask = await limited("maker")
    assert await alter(ask, entry({"client-id": "maker"}, controller_mutation_rate=0.5)) == [NONE]

    def creation(name: str) -> CreateTopicsRequest:
        made = CreateTopicsRequest.CreatableTopic
        topic = made(name=name, num_partitions=8, replication_factor=1, assignments=[], configs=[])
        return CreateTopicsRequest(topics=[topic], timeout_ms=20_000)

    exceeded = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    first = await ask(creation("a"), 7)
    assert (first.topics[0].error_code, first.throttle_time_ms) == (NONE, 0), "what is owed is owed later"
    second = await ask(creation("b"), 5)
    assert second.topics[0].error_code is NONE, "older clients are not refused"
    assert second.throttle_time_ms > 1_000
    more = CreatePartitionsRequest.CreatePartitionsTopic(name="a", count=9, assignments=None)
    await alter(await limited("admin"), entry({"client-id": "other"}, controller_mutation_rate=0.01))
    other = await limited("other")
    third = await other(CreatePartitionsRequest(topics=[more], timeout_ms=20_000, validate_only=False), 3)
    assert third.results[0].error_code is NONE
    gone = DeleteTopicsRequest.DeleteTopicState(name="b", topic_id=bytes(16))
    refused = await other(DeleteTopicsRequest(topics=[gone], timeout_ms=20_000), 6)
    assert refused.responses[0].error_code is exceeded
    assert refused.throttle_time_ms > 0


async def test_an_address_that_connects_too_often_is_not_served(limited: Any, own_broker: BrokerProcess) -> None:
    ask = await limited("admin")
    ip = {"ip": "localhost"}
    assert await alter(ask, entry(ip, connection_creation_rate=1)) == [NONE]
    assert await describe(ask, ip=(SPECIFIED, None)) == [(ip, {"connection_creation_rate": 1.0})]
    address = ("127.0.0.1", own_broker.port)
    opened = [socket.create_connection(address) for _ in range(40)]  # ten at once are within the rate
    try:
        ended: list[bytes] = []
        deadline = time.monotonic() + 30
        with selectors.DefaultSelector() as selector:
            for each in opened:
                selector.register(each, selectors.EVENT_READ, each.recv)
            while len(ended) < 5 and time.monotonic() < deadline:
                ended = [key.data(1) for key, _ in selector.select(1)]
        assert len(ended) >= 5
        assert set(ended) == {b""}
    finally:
        for each in opened:
            each.close()
    assert await alter(ask, entry(ip, connection_creation_rate=None)) == [NONE]
    assert await (await limited("later"))(ListGroupsRequest()) is not None


async def test_where_no_thread_can_be_started_a_host_is_refused_saying_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(KafkaError, match="localhost is not looked up: can't start new thread"):
        await _place(entry({"ip": "localhost"}, connection_creation_rate=1))
