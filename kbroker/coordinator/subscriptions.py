"""The topics in the blobs that consumers send with JoinGroup (pure).

    int16 version, then ConsumerProtocolSubscription: int32 count, { int16 length, name }…, …

Whatever the version says, the topics come first; fields are only ever appended. So all versions are read as version 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from kbroker.protocol.codec import decode
from kbroker.protocol.errors import MalformedMessage
from kbroker.protocol.messages.groups import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"

_VERSION = Struct(">h")


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all these subscriptions; None when one of them cannot be read."""
    topics: set[str] = set()
    for blob in metadata:
        if len(blob) < _VERSION.size or _VERSION.unpack_from(blob)[0] < 0:
            return None
        try:
            topics.update(decode(ConsumerProtocolSubscription, blob, 0, _VERSION.size).topics)
        except MalformedMessage:
            return None
    return frozenset(topics)
