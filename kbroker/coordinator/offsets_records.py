"""Kafka's records in __consumer_offsets, byte for byte (pure).

    key    int16 version = 1 (0 is read too)   str group  str topic  int32 partition
    value  int16 version = 3                   int64 offset  int32 leaderEpoch  str metadata  int64 commitTimestamp
           int16 version = 1                   int64 offset  str metadata  int64 commitTimestamp  int64 expireTimestamp
    key    int16 version = 2                   str group
    value  int16 version = 3                   GroupMetadataValue (protocol/messages/internal_topics.py)

A str is its length as int16 and UTF-8. No value: a tombstone. Keys of versions 3 to 8 belong to the newer group
protocol (consumer_records.py). Commits are by far the most records, so they have code of their own; values of the
other versions (0, 2, 4) go through the schema.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from struct import error as StructError

from kbroker.coordinator.group_offsets import CommittedOffset
from kbroker.protocol.codec import decode, encode
from kbroker.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from kbroker.protocol.messages.internal_topics import GroupMetadataKey, GroupMetadataValue, OffsetCommitValue

COMMIT_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
VALUE_VERSION = 3
EXPIRING_VALUE_VERSION = 1
NO_TIMESTAMP = -1

COMMIT_KEY_START = b"\0\1"
COMMIT_VALUE_START = b"\0\3"
"""How the keys and values of nearly all commits begin."""

_SHORT = Struct(">h")
_INT = Struct(">i")
_COMMIT_START = Struct(">hqih")
_COMMIT_END = Struct(">q")
_EXPIRING_START = Struct(">hqh")
_EXPIRING_END = Struct(">qq")

CommitKey = tuple[str, str, int]
"""(group, topic, partition)"""


class UnknownRecord(Exception):
    """A key of a version that classic groups do not use: to be left alone."""


# --- writing --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=10_000)
def _commit_key_head(group_id: str, topic: str) -> bytes:
    return _SHORT.pack(COMMIT_KEY_VERSION) + _text(group_id) + _text(topic)


def commit_key(group_id: str, topic: str, partition: int) -> bytes:
    """Return the key under which a group's offset of a partition is kept."""
    return _commit_key_head(group_id, topic) + _INT.pack(partition)


def commit_value(committed: CommittedOffset) -> bytes:
    """Return the value of a commit: version 3, or 1 for one that has its own expiry."""
    metadata = committed.metadata.encode()
    if committed.expire_timestamp >= 0:
        start = _EXPIRING_START.pack(EXPIRING_VALUE_VERSION, committed.offset, len(metadata))
        return start + metadata + _EXPIRING_END.pack(committed.commit_timestamp, committed.expire_timestamp)
    start = _COMMIT_START.pack(VALUE_VERSION, committed.offset, committed.leader_epoch, len(metadata))
    return start + metadata + _COMMIT_END.pack(committed.commit_timestamp)


def group_key(group_id: str) -> bytes:
    """Return the key under which a group's members are kept."""
    return _SHORT.pack(GROUP_KEY_VERSION) + _text(group_id)


def group_value(value: GroupMetadataValue) -> bytes:
    """Return the value of a group's record."""
    return _SHORT.pack(VALUE_VERSION) + encode(value, VALUE_VERSION)


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) > 0x7FFF:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a text of {len(data)} bytes does not fit an offsets record")
    return _SHORT.pack(len(data)) + data


# --- reading --------------------------------------------------------------------------------------------------


def read_key(key: bytes) -> CommitKey | str:
    """Return (group, topic, partition) for a commit's key and the group id for a group's.

    Raises UnknownRecord for other versions, MalformedMessage for what is not a key.
    """
    try:
        (version,) = _SHORT.unpack_from(key)
        if version in (0, COMMIT_KEY_VERSION):
            length = _SHORT.unpack_from(key, 2)[0]
            middle = 4 + length
            topic_end = middle + 2 + _SHORT.unpack_from(key, middle)[0]
            if not 4 <= middle <= topic_end - 2:
                raise MalformedMessage("a commit's key with a negative length")
            partition = _INT.unpack_from(key, topic_end)[0]
            return str(key[4:middle], "utf-8"), str(key[middle + 2 : topic_end], "utf-8"), partition
        if version == GROUP_KEY_VERSION:
            return decode(GroupMetadataKey, key, GROUP_KEY_VERSION, 2).group
    except (StructError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"a key of {len(key)} bytes that cannot be read: {error}") from None
    raise UnknownRecord(f"key version {version}")


def read_commit(value: bytes) -> CommittedOffset:
    """Return what a commit's value says; raises MalformedMessage, also for versions that are not known."""
    try:
        (version,) = _SHORT.unpack_from(value)
        if version == VALUE_VERSION:
            _, offset, leader_epoch, length = _COMMIT_START.unpack_from(value)
            end = _COMMIT_START.size + length
            if length < 0 or end + _COMMIT_END.size > len(value):
                raise MalformedMessage(f"a commit of {len(value)} bytes with metadata of {length}")
            metadata = str(value[_COMMIT_START.size : end], "utf-8")
            return CommittedOffset(offset, leader_epoch, metadata, _COMMIT_END.unpack_from(value, end)[0])
        read = decode(OffsetCommitValue, value, version, 2)
    except (StructError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"a commit of {len(value)} bytes that cannot be read: {error}") from None
    except KafkaError as error:
        raise MalformedMessage(f"a commit of version {version}") from error
    return CommittedOffset(read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, read.expire_timestamp)


def read_group(value: bytes) -> GroupMetadataValue:
    """Return what a group's value says; raises MalformedMessage, also for versions that are not known."""
    try:
        (version,) = _SHORT.unpack_from(value)
        read = decode(GroupMetadataValue, value, version, 2)
    except StructError as error:
        raise MalformedMessage(f"a group of {len(value)} bytes that cannot be read: {error}") from None
    except KafkaError as error:
        raise MalformedMessage(f"a group of version {version}") from error
    if version == 0:
        for member in read.members:
            member.rebalance_timeout = member.session_timeout
    return read
