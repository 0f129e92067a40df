"""Messages that stand alone behind their version: an int16, then the message.

So are the keys and values of __consumer_offsets and __transaction_state kept, and the subscriptions and assignments
that consumers put into JoinGroup and SyncGroup as opaque bytes.
"""

from typing import TypeVar

from kbroker.protocol.codec import decode, encode
from kbroker.protocol.errors import KafkaError, MalformedMessage
from kbroker.protocol.primitives import NO_LIMIT, BytesLike
from kbroker.protocol.schema import Message, schema_of

M = TypeVar("M", bound=Message)

_PREFIX_SIZE = 2


def encode_versioned(message: Message, version: int) -> bytes:
    """Return a message with its version in front; raises UNSUPPORTED_VERSION as `encode` does."""
    return version.to_bytes(_PREFIX_SIZE, "big", signed=True) + encode(message, version)


def version_of(buffer: BytesLike) -> int:
    """Return the version in front; in an internal topic's key it says which kind of record it is."""
    if len(buffer) < _PREFIX_SIZE:
        raise MalformedMessage(f"{len(buffer)} bytes are too few for a version")
    return int.from_bytes(buffer[:_PREFIX_SIZE], "big", signed=True)


def decode_versioned(
    message_type: type[M], buffer: BytesLike, newer_as_newest: bool = False, most_elements: int = NO_LIMIT
) -> M:
    """Read a message with its version in front; raises MalformedMessage, also for a version that is not known.

    Args:
        message_type: what the bytes should be.
        buffer: the version and the message; what is behind the message is ignored.
        newer_as_newest: read versions of the future as the newest that is known: what clients agreed upon for
            subscriptions and assignments, to which later versions only add at the end.
        most_elements: of all arrays together.
    """
    version = version_of(buffer)
    if newer_as_newest:
        version = min(version, schema_of(message_type).versions.last)
    try:
        return decode(message_type, buffer, version, _PREFIX_SIZE, most_elements)
    except KafkaError as error:
        raise MalformedMessage(error.message) from None
