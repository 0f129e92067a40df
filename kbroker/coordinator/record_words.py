"""What the records of __consumer_offsets and __transaction_state say, in words: for people who look at log files.

    words_for("__transaction_state-3")   a function: key, value -> {"type": …, "transactional_id": …}, {"state": …}

Fields have the names of protocol/messages/internal_topics.py, and those that a record's version does not have are left
out. What cannot be read, as it is newer or damaged, is said as such, never an error: the rest of the file is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbroker.cluster.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kbroker.coordinator.transaction import TransactionState
from kbroker.protocol.errors import MalformedMessage
from kbroker.protocol.messages import internal_topics as records
from kbroker.protocol.messages.groups import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kbroker.protocol.primitives import UUID, uuid_to_text
from kbroker.protocol.schema import Message, Struct, schema_of
from kbroker.protocol.versioned import decode_versioned, version_of
from kbroker.segment.names import parse_folder_name

Words = dict[str, Any]
Reader = Callable[[bytes | None, bytes | None], tuple[Any, Any]]
"""Takes a record's key and value."""

_Kind = tuple[str, type[Message], type[Message]]

_COMMIT: _Kind = "offset_commit", records.OffsetCommitKey, records.OffsetCommitValue
_OF_OFFSETS: dict[int, _Kind] = {
    0: _COMMIT,
    1: _COMMIT,
    2: ("group", records.GroupMetadataKey, records.GroupMetadataValue),
    3: ("consumer_group", records.ConsumerGroupMetadataKey, records.ConsumerGroupMetadataValue),
    4: ("consumer_topics", records.ConsumerGroupPartitionMetadataKey, records.ConsumerGroupPartitionMetadataValue),
    5: ("consumer_member", records.ConsumerGroupMemberMetadataKey, records.ConsumerGroupMemberMetadataValue),
    6: (
        "consumer_target",
        records.ConsumerGroupTargetAssignmentMetadataKey,
        records.ConsumerGroupTargetAssignmentMetadataValue,
    ),
    7: (
        "consumer_member_target",
        records.ConsumerGroupTargetAssignmentMemberKey,
        records.ConsumerGroupTargetAssignmentMemberValue,
    ),
    8: (
        "consumer_member_current",
        records.ConsumerGroupCurrentMemberAssignmentKey,
        records.ConsumerGroupCurrentMemberAssignmentValue,
    ),
}
_OF_TRANSACTIONS: dict[int, _Kind] = {0: ("transaction", records.TransactionLogKey, records.TransactionLogValue)}
_BY_TOPIC = {OFFSETS_TOPIC: _OF_OFFSETS, TRANSACTIONS_TOPIC: _OF_TRANSACTIONS}

_OF_CLIENTS: dict[str, type[Message]] = {
    "subscription": ConsumerProtocolSubscription,
    "assignment": ConsumerProtocolAssignment,
}
"""Fields of a group's members that are the clients' own; these types where the group's protocol is `consumer`."""
CONSUMER = "consumer"


def words_for(folder: str) -> Reader | None:
    """Return what reads the records of a partition's folder; None where they are a user's."""
    name = parse_folder_name(folder)
    kinds = None if name is None else _BY_TOPIC.get(name.topic)
    return None if kinds is None else lambda key, value: _words(kinds, key, value)


def _words(kinds: dict[int, _Kind], key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
    try:
        version = version_of(key or b"")
        if version not in kinds:
            raise MalformedMessage(f"a key of version {version}, which is not known")
        kind, key_type, value_type = kinds[version]
        key_words = {"type": kind, **_fields(decode_versioned(key_type, key or b""), version)}
    except (MalformedMessage, ValueError) as error:
        return _unreadable(key, error), _unreadable(value, None)
    if value is None:
        return key_words, None
    try:
        return key_words, _value_words(decode_versioned(value_type, value), version_of(value))
    except (MalformedMessage, ValueError) as error:
        return key_words, _unreadable(value, error)


def _unreadable(data: bytes | None, error: Exception | None) -> Words | None:
    if data is None:
        return None
    return {**({} if error is None else {"unreadable": str(error)}), "bytes": bytes(data).hex()}


def _value_words(value: Message, version: int) -> Words:
    words = {"version": version, **_fields(value, version)}
    if isinstance(value, records.TransactionLogValue):
        number = words.pop("transaction_status")
        return {"version": version, "state": _state(number), **words}
    if isinstance(value, records.GroupMetadataValue) and value.protocol_type == CONSUMER:
        for member in words["members"]:
            for name, message_type in _OF_CLIENTS.items():
                member[name] = _of_client(message_type, bytes.fromhex(member[name]))
    return words


def _state(number: int) -> str:
    return TransactionState(number).wire_name if number in TransactionState.__members__.values() else str(number)


def _of_client(message_type: type[Message], blob: bytes) -> Words | None:
    if not blob:
        return None
    try:
        return _fields(decode_versioned(message_type, blob, newer_as_newest=True), version_of(blob))
    except MalformedMessage as error:
        return _unreadable(blob, error)


def _fields(message: Struct, version: int) -> Words:
    return {
        each.name: _plain(getattr(message, each.name), each.kind, version)
        for each in schema_of(type(message)).fields
        if version in each.versions
    }


def _plain(value: Any, kind: int, version: int) -> Any:
    if isinstance(value, Struct):
        return _fields(value, version)
    if isinstance(value, bytes | bytearray | memoryview):
        return uuid_to_text(bytes(value)) if kind == UUID else bytes(value).hex()
    if isinstance(value, list | tuple):
        return [_plain(each, kind, version) for each in value]
    return value
