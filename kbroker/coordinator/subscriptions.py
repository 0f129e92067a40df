"""The topics in the blobs that consumers send with JoinGroup (pure).

    int16 version, then ConsumerProtocolSubscription: int32 count, { int16 length, name }…, …

Whatever the version says, the topics come first; fields are only ever appended. So all versions are read as version 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct

from kbroker.protocol.codec import decode
from kbroker.protocol.errors import MalformedMessage
from kbroker.protocol.messages.groups import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"

MOST_TOPICS = 50_000
"""In all the subscriptions that are looked at together: more would hold others up."""
MOST_BEGINNINGS = 10

_VERSION = Struct(">h")
_COUNT_SIZE, _LENGTH_SIZE = 4, 2


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all these subscriptions; None when one of them cannot be read, or they are too many.

    Members of one group mostly say the same: what begins like one that was read before names the same topics.
    """
    topics: set[str] = set()
    beginnings: list[bytes] = []
    left = MOST_TOPICS
    for blob in metadata:
        if len(blob) < _VERSION.size or _VERSION.unpack_from(blob)[0] < 0:
            return None
        said = blob[_VERSION.size :]
        if said.startswith(tuple(beginnings)):
            continue
        try:
            names = decode(ConsumerProtocolSubscription, said, 0, 0, left).topics
        except MalformedMessage:
            return None
        left -= len(names)
        topics.update(names)
        if len(beginnings) < MOST_BEGINNINGS:
            beginnings.append(_beginning(said, names))
    return frozenset(topics)


def _beginning(said: bytes, names: Sequence[str]) -> bytes:
    """Return the part of a subscription that names its topics."""
    return said[: _COUNT_SIZE + sum(_LENGTH_SIZE + len(name.encode()) for name in names)]
