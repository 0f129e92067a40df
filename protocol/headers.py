"""Request and response headers, and whole frames: size, header, body.

request v1   ApiKey int16, ApiVersion int16, CorrelationId int32, ClientId nullable string (int16 length)
request v2   v1 and tagged fields: for flexible versions; the client id keeps its int16 length
request v0   v1 without the client id: only ControlledShutdown v0
response v0  CorrelationId int32
response v1  v0 and tagged fields: for flexible versions, but never for ApiVersions, so that a client that asked
             in a version the broker does not know can read the answer
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

from kbroker.protocol.codec import decode, write_message, write_message_in_steps
from kbroker.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from kbroker.protocol.primitives import MOST_ANSWER_BYTES, NO_LIMIT, BytesLike, Part, Reader, Writer
from kbroker.protocol.schema import API_BY_KEY, Message, schema_of

M = TypeVar("M", bound=Message)

API_VERSIONS_KEY = 18
CONTROLLED_SHUTDOWN_KEY = 7
MOST_TAGS = 1000
"""Tagged fields of a header: none is known to anybody yet."""


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """What stands before a request's body."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def request_header_version(api_key: int, api_version: int) -> int:
    """Return the version of the header before a request; raises UNSUPPORTED_VERSION for an unknown API.

    Versions of a known API that lie beyond what it has get the header of its newest, as in Kafka.
    """
    api = API_BY_KEY.get(api_key)
    if api is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"unknown API key {api_key}")
    if api_key == CONTROLLED_SHUTDOWN_KEY and api_version == 0:
        return 0
    return 2 if api_version >= api.flexible_from else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """Return the version of the header before a response."""
    if api_key == API_VERSIONS_KEY:
        return 0
    return 1 if api_version >= API_BY_KEY[api_key].flexible_from else 0


def read_request_header(frame: BytesLike) -> tuple[RequestHeader, int]:
    """Read the header of a frame (without its size) and return it with the position of the body.

    Raises MalformedMessage, and KafkaError(UNSUPPORTED_VERSION) for an API key nobody knows. Whether the version is
    served is the caller's question: an ApiVersions request in a version of the future must be answered (in v0).
    """
    reader = Reader(frame)
    api_key, api_version, correlation_id = reader.read_int16(), reader.read_int16(), reader.read_int32()
    version = request_header_version(api_key, api_version)
    client_id = None
    if version >= 1:
        length = reader.read_int16()
        client_id = reader.read_text(length) if length >= 0 else None
    if version >= 2:
        _skip_tagged_fields(reader)
    return RequestHeader(api_key, api_version, correlation_id, client_id), reader.position


def _skip_tagged_fields(reader: Reader) -> None:
    """Skip the tagged fields of a header: none is known yet."""
    count = reader.read_varint()
    if count > min(MOST_TAGS, reader.remaining() // 2):
        raise MalformedMessage(f"{count} tagged fields announced in a header, {reader.remaining()} bytes are left")
    for _ in range(count):
        reader.read_varint()
        reader.advance(reader.read_varint())


def encode_request(request: Message, version: int, correlation_id: int, client_id: str | None) -> list[Part]:
    """Return a request's frame, its size in front, as pieces to be sent in this order."""
    api_key = schema_of(type(request)).api_key
    header_version = request_header_version(api_key, version)
    writer = Writer()
    writer.write_int32(0)
    writer.write_int16(api_key)
    writer.write_int16(version)
    writer.write_int32(correlation_id)
    if header_version >= 1:
        _write_client_id(writer, client_id)
    if header_version >= 2:
        writer.write_varint(0)
    write_message(writer, request, version)
    return writer.frame()


def _write_client_id(writer: Writer, client_id: str | None) -> None:
    """Write a nullable string with an int16 length."""
    if client_id is None:
        writer.write_int16(-1)
        return
    text = client_id.encode()
    writer.write_int16(len(text))
    writer.write_raw(text)


def encode_response(response: Message, version: int, correlation_id: int, most_elements: int = NO_LIMIT) -> list[Part]:
    """Return a response's frame, its size in front, as pieces to be sent in this order.

    Raises TooManyElements for one whose arrays hold more than `most_elements` that are not encoded yet, AnswerTooLarge
    for one of more than MOST_ANSWER_BYTES beside what is a piece of its own.
    """
    writer = Writer(most_elements=most_elements, most_bytes=MOST_ANSWER_BYTES)
    _write_response_header(writer, response, version, correlation_id)
    write_message(writer, response, version)
    return writer.frame()


def encode_response_in_steps(response: Message, version: int, correlation_id: int) -> Generator[None, None, list[Part]]:
    """Make a response's frame as `encode_response` does, in steps; the generator returns it."""
    writer = Writer(most_bytes=MOST_ANSWER_BYTES)
    _write_response_header(writer, response, version, correlation_id)
    yield from write_message_in_steps(writer, response, version)
    return writer.frame()


def _write_response_header(writer: Writer, response: Message, version: int, correlation_id: int) -> None:
    """Write what stands before a response's body, and room for the frame's size."""
    writer.write_int32(0)
    writer.write_int32(correlation_id)
    if response_header_version(schema_of(type(response)).api_key, version) == 1:
        writer.write_varint(0)


def decode_response(frame: BytesLike, response_type: type[M], version: int) -> tuple[int, M]:
    """Read a response's frame (without its size): its correlation id and the message. Raises MalformedMessage."""
    reader = Reader(frame)
    correlation_id = reader.read_int32()
    if response_header_version(schema_of(response_type).api_key, version) == 1:
        _skip_tagged_fields(reader)
    return correlation_id, decode(response_type, frame, version, reader.position)
