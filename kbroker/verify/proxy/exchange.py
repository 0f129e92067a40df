"""A request on its way, the answer to it, and what looks into both: a `Meddler` changes them, or answers itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kbroker.protocol import primitives
from kbroker.protocol.errors import ErrorCode, MalformedMessage
from kbroker.protocol.headers import request_header_version
from kbroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from kbroker.protocol.primitives import BytesLike, Reader
from kbroker.protocol.schema import Message, Struct, schema_of
from kbroker.verify.proxy.faults import LinkName

PRODUCE = schema_of(ProduceRequest).api_key
_PRODUCE_WITH_TRANSACTIONS = 3


@dataclass(frozen=True, slots=True)
class RequestHead:
    """What stands in front of every request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    is_answered: bool = True
    """Produce with acks=0 gets no answer."""


def read_head(head: BytesLike) -> RequestHead:
    """Read the first bytes of a request, which need not be all; raises MalformedMessage where they are too few."""
    reader = Reader(head)
    api_key, version, correlation_id = reader.read_int16(), reader.read_int16(), reader.read_int32()
    length = reader.read_int16()
    client_id = reader.read_text(length) if length >= 0 else None
    is_answered = api_key != PRODUCE or _acks(reader, version) != 0
    return RequestHead(api_key, version, correlation_id, client_id, is_answered)


def _acks(reader: Reader, version: int) -> int:
    """Read a Produce request's acks, behind the client id."""
    is_flexible = request_header_version(PRODUCE, version) == 2
    if is_flexible and reader.read_varint() != 0:
        raise MalformedMessage("tagged fields in a Produce request's header")
    if version >= _PRODUCE_WITH_TRANSACTIONS:
        length = reader.read_varint() - 1 if is_flexible else reader.read_int16()
        reader.advance(max(length, 0))
    return reader.read_int16()


@dataclass(slots=True)
class Exchange:
    """One request that a meddler looks into. Messages were decoded for it alone: it may change them in place."""

    link: LinkName
    version: int
    request: Any
    topic_names: Mapping[bytes, str]
    """Topic ids as far as Metadata has told them: newer versions name topics by these alone."""
    extra_requests: list[Message] = field(default_factory=list)
    """Sent behind the request, in its version; nobody hears their answers."""
    notes: dict[object, Any] = field(default_factory=dict)
    """What a meddler wants to know again when the answer comes, under its own name."""
    pause_seconds: float = 0.0
    """The answer waits so long."""

    def topic_of(self, topic: Any) -> str | None:
        """The name of a topic in a Fetch message of any version; None when nobody told it."""
        name: str = topic.topic
        return name or self.topic_names.get(topic.topic_id)


class Meddler(Protocol):
    """Looks into the requests and answers of some APIs."""

    api_keys: frozenset[int]

    def request(self, exchange: Exchange) -> Message | None:
        """Look at a request before it is passed on; an answer returned here is given in the broker's place."""

    def answer(self, exchange: Exchange, answer: Any) -> None:
        """Look at the answer, and change it in place."""


def produce_answer(request: Any, error: ErrorCode) -> ProduceResponse:
    """Make the answer that refuses all of a Produce request."""
    return ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    ProduceResponse.PartitionProduceResponse(index=partition.index, error_code=error, base_offset=-1)
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def set_errors(answer: Struct, error: ErrorCode) -> None:
    """Write an error into every place that an answer has for one: the innermost, where there are several."""
    inner = list(_inner_structs(answer))
    places = [field.name for field in schema_of(type(answer)).fields if field.kind == primitives.ERROR]
    for struct in inner:
        set_errors(struct, error)
    if not any(_has_error_place(struct) for struct in inner):
        for name in places:
            setattr(answer, name, error)


def _has_error_place(struct: Struct) -> bool:
    if any(field.kind == primitives.ERROR for field in schema_of(type(struct)).fields):
        return True
    return any(_has_error_place(inner) for inner in _inner_structs(struct))


def _inner_structs(struct: Struct) -> Iterator[Struct]:
    for declared in schema_of(type(struct)).fields:
        if declared.kind != primitives.STRUCT:
            continue
        value: Any = getattr(struct, declared.name)
        values: Sequence[Any] = value if declared.array else (value,)
        for each in values or ():
            if each is not None:
                yield each
