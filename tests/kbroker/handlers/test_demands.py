"""What is forbidden is taken out before the handler sees it, and answered in the API's own form."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.handlers import load_all
from kbroker.handlers.demands import quick_of
from kbroker.handlers.registry import HANDLERS, CloseConnection, Handling
from kbroker.network.dispatch import PENDING, Dispatcher, LateAnswer
from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.codec import decode
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.headers import encode_request
from kbroker.protocol.messages.groups import OffsetCommitRequest
from kbroker.protocol.messages.offsets import ListOffsetsRequest, ListOffsetsResponse
from kbroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from kbroker.protocol.schema import schema_of
from kbroker.security.acls import AclOperation, AclPattern, AclPermission, AclResource, Entry, Pattern
from kbroker.security.authorizer import EVERYTHING, Authorizer
from tests.protocol.frames import joined

load_all()

NONE, REFUSED = ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Peer:
    """A connection of somebody."""

    listener, host, port, principal, takes_brokers = "PLAINTEXT", "127.0.0.1", 1234, "User:me", True
    received, last_active, timing = 0.0, 0.0, None

    def __init__(self) -> None:
        self.authority: Any = EVERYTHING
        self.answers: asyncio.Queue[Any] = asyncio.Queue()

    def answer(self, parts: Any, timing: Any = None) -> None:
        self.answers.put_nowait(parts)

    def answer_late(self, late: Any, parts: Any) -> None:
        self.answers.put_nowait(parts)

    def close(self, reason: str, level: int = 0) -> None:
        self.answers.put_nowait(CloseConnection(reason))

    def cancel_when_closed(self, answer: Any) -> None: ...


def allowing(*topics: str, operation: AclOperation = AclOperation.ALL) -> Authorizer:
    authorizer = Authorizer()
    for topic in topics:
        entry = Entry("User:me", "*", operation, AclPermission.ALLOW)
        authorizer.replace(Pattern(AclResource.TOPIC, AclPattern.LITERAL, topic), {entry})
    return authorizer


async def asked(
    monkeypatch: pytest.MonkeyPatch, request: Any, version: int, handler: Any, authorizer: Authorizer
) -> tuple[Any, list[Any]]:
    """Have a handler answer a request under its API's real demands; returns the answer and what the handler saw."""
    key = schema_of(type(request)).api_key
    seen: list[Any] = []

    def handle(services: Any, ctx: Any, rest: Any) -> Any:
        seen.append(rest)
        return handler(rest)

    monkeypatch.setitem(HANDLERS, key, Handling(handle, HANDLERS[key].demands))
    services: Any = SimpleNamespace()
    peer = Peer()
    frame = joined(encode_request(request, version, 1, "x"))[4:]
    parts = Dispatcher(services, authorizer)(peer, memoryview(frame))  # type: ignore[arg-type]
    if parts is PENDING or type(parts) is LateAnswer:
        parts = await asyncio.wait_for(peer.answers.get(), 20)
    if isinstance(parts, CloseConnection):
        raise parts
    api = API_BY_KEY[key]
    response: Any = api.response
    data = b"".join(bytes(part) for part in parts)
    return decode(response, memoryview(data), version, 9 if version >= api.flexible_from else 8), seen


def offsets_request(*topics: str) -> ListOffsetsRequest:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=3, timestamp=-1)
    made = [ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition]) for topic in topics]
    return ListOffsetsRequest(replica_id=-1, topics=made)


def offsets_answer(request: ListOffsetsRequest) -> ListOffsetsResponse:
    made = ListOffsetsResponse.ListOffsetsPartitionResponse
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name, partitions=[made(partition_index=3, error_code=NONE, offset=7)]
            )
            for topic in request.topics
        ]
    )


def codes(answer: Any) -> dict[str, ErrorCode]:
    return {topic.name: topic.partitions[0].error_code for topic in answer.topics}


async def test_refused_topics_are_answered_beside_those_that_the_handler_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    async def later(request: Any) -> Any:
        await asyncio.sleep(0)
        return offsets_answer(request)

    for handler in (offsets_answer, later):
        answer, seen = await asked(monkeypatch, offsets_request("a", "b", "c"), 7, handler, allowing("a", "c"))
        assert codes(answer) == {"a": NONE, "b": REFUSED, "c": NONE}
        assert [topic.name for topic in seen[0].topics] == ["a", "c"]


async def test_a_handler_that_would_see_nothing_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, seen = await asked(monkeypatch, offsets_request("a", "b"), 7, offsets_answer, allowing())
    assert codes(answer) == {"a": REFUSED, "b": REFUSED}
    assert not seen
    answer, seen = await asked(monkeypatch, offsets_request(), 7, offsets_answer, allowing())
    assert len(seen) == 1, "who asks for nothing is refused nothing"


async def test_what_fails_for_the_rest_is_said_beside_the_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(request: Any) -> Any:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def failing_later(request: Any) -> Any:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    for handler in (failing, failing_later):
        answer, _ = await asked(monkeypatch, offsets_request("a", "b"), 7, handler, allowing("a"))
        assert codes(answer) == {"a": ErrorCode.NOT_LEADER_OR_FOLLOWER, "b": REFUSED}


async def test_a_request_with_very_many_topics_is_judged_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t{number}" for number in range(3_000)]
    answer, seen = await asked(monkeypatch, offsets_request(*names), 7, offsets_answer, allowing(*names[::2]))
    found = codes(answer)
    assert [found[name] for name in names] == [NONE, REFUSED] * 1_500
    assert len(seen[0].topics) == 1_500


async def test_a_refusal_of_the_whole_request_is_in_each_place_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="a", partitions=[partition])
    request = OffsetCommitRequest(group_id="g", member_id="", topics=[topic])
    answer, seen = await asked(monkeypatch, request, 8, lambda rest: None, allowing("a"))
    assert codes(answer) == {"a": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    assert not seen


async def test_produce_without_acknowledgement_ends_the_connection_when_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def request(acks: int) -> ProduceRequest:
        data = ProduceRequest.PartitionProduceData(index=0, records=b"x" * 70)
        made = [ProduceRequest.TopicProduceData(name=name, partition_data=[data]) for name in ("a", "b")]
        return ProduceRequest(acks=acks, timeout_ms=1, topic_data=made)

    def handler(rest: Any) -> Any:
        return None if rest.acks == 0 else ProduceResponse(responses=[])

    answer, _ = await asked(monkeypatch, request(1), 9, handler, allowing("a"))
    (topic,) = answer.responses
    assert (topic.name, topic.partition_responses[0].error_code) == ("b", REFUSED)
    with pytest.raises(CloseConnection, match="not allowed"):
        await asked(monkeypatch, request(0), 9, handler, allowing("a"))


def produced(transactional_id: str | None, *topics: str) -> Any:
    named = [SimpleNamespace(name=topic) for topic in topics]
    return SimpleNamespace(transactional_id=transactional_id, topic_data=named)


def test_what_is_granted_is_let_through_at_once_and_nothing_else_is() -> None:
    quick = quick_of(HANDLERS[0].demands)
    assert quick is not None
    authorizer = allowing("a", "b")
    authority = authorizer.authority("User:me", "127.0.0.1")
    assert not quick(authority, produced(None, "a")), "nobody has asked yet"
    for topic in ("a", "b", "c"):
        authority.may(AclOperation.WRITE, AclResource.TOPIC, topic)
    authority.may(AclOperation.READ, AclResource.TOPIC, "a")
    assert quick(authority, produced(None, "a", "b"))
    assert not quick(authority, produced(None, "a", "c"))
    assert not quick(authority, produced("id", "a")), "the id is to be asked about, too"
    authorizer.replace(Pattern(AclResource.TOPIC, AclPattern.LITERAL, "a"), ())
    assert not quick(authority, produced(None, "a")), "the rules have changed"


def test_every_handler_says_what_it_demands() -> None:
    assert all(handling.demands for handling in HANDLERS.values())
