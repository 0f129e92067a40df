"""Kafka's records in __transaction_state, byte for byte (pure).

    key    int16 version = 0   str transactionalId
    value  int16 version = 0   int64 producerId  int16 producerEpoch  int32 timeoutMs  int8 state
                               int32 count (-1: none, when Empty) of: str topic  int32 count of: int32 partition
                               int64 lastUpdateMs  int64 startMs (-1: none)

A str is its length as int16 and UTF-8. No value: a tombstone. Version 0 is written by code of its own, for producers
wait for that; so are values without partitions read, for most are such. What else is read goes through the schema, as
does version 1 (compact, with tags), which says what a transaction with an epoch of its own needs beyond that: the
producer id before and the next one, and by which version the transaction goes.
"""

from __future__ import annotations

from struct import Struct, pack
from struct import error as StructError

from kbroker.coordinator.transaction import (
    EMPTY,
    EPOCH_EACH,
    EXHAUSTED_EPOCH,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PARTITIONS,
    ONGOING,
    TransactionRecord,
    TransactionState,
)
from kbroker.protocol.codec import encode
from kbroker.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from kbroker.protocol.grouping import by_topic
from kbroker.protocol.messages.internal_topics import TransactionLogValue
from kbroker.protocol.versioned import decode_versioned, version_of

VERSION = 0
TAGGED_VERSION = 1

_SHORT = Struct(">h")
_WITHOUT_PARTITIONS = Struct(">hqhibiqq")
_HEAD, _TIMES = Struct(">hqhibi"), Struct(">qq")
_NULL = -1

_STATES = tuple(TransactionState)[: TransactionState.DEAD]


def transaction_key(transactional_id: str) -> bytes:
    """Return the key under which a transactional id is kept."""
    text = transactional_id.encode()
    if len(text) > 0x7FFF:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a transactional id of {len(text)} bytes does not fit a record")
    return _SHORT.pack(VERSION) + _SHORT.pack(len(text)) + text


def transaction_value(record: TransactionRecord) -> bytes:
    """Return the value of a transactional id's record."""
    if record.client_version < EPOCH_EACH:
        return _value_without_tags(record)
    value = TransactionLogValue(
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        transaction_timeout_ms=record.timeout_ms,
        transaction_status=record.state,
        transaction_partitions=[
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=partitions)
            for topic, partitions in by_topic(sorted(record.partitions)).items()
        ],
        transaction_last_update_timestamp_ms=record.last_update_ms,
        transaction_start_timestamp_ms=record.start_ms,
        previous_producer_id=record.last_producer_id,
        next_producer_id=record.next_producer_id,
        client_transaction_version=record.client_version,
    )
    return _SHORT.pack(TAGGED_VERSION) + encode(value, TAGGED_VERSION)


def _value_without_tags(record: TransactionRecord) -> bytes:
    grouped = by_topic(record.partitions)
    count = _NULL if record.state is EMPTY and not grouped else len(grouped)
    producer = record.producer_id, record.producer_epoch, record.timeout_ms
    parts = [_HEAD.pack(VERSION, *producer, record.state, count)]
    for topic in sorted(grouped):
        name, numbers = topic.encode(), sorted(grouped[topic])
        parts.append(pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers))
    parts.append(_TIMES.pack(record.last_update_ms, record.start_ms))
    return b"".join(parts)


def read_transaction_key(key: bytes) -> str | None:
    """Return the transactional id; None for a key of another version, to be left alone. Raises MalformedMessage."""
    if version_of(key) != VERSION:
        return None
    try:
        (length,) = _SHORT.unpack_from(key, 2)
        if not 0 <= length <= len(key) - 4:
            raise MalformedMessage(f"a key of {len(key)} bytes with a text of {length}")
        return str(key[4 : 4 + length], "utf-8")
    except (StructError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"a key of {len(key)} bytes that cannot be read: {error}") from None


def read_transaction_value(value: bytes) -> TransactionRecord:
    """Return what a value says; raises MalformedMessage, also for versions and states that are not known."""
    if len(value) == _WITHOUT_PARTITIONS.size:
        version, producer_id, epoch, timeout_ms, state, count, last_update, start = _WITHOUT_PARTITIONS.unpack(value)
        if version == VERSION and count <= 0:
            return TransactionRecord(producer_id, epoch, timeout_ms, _state(state), NO_PARTITIONS, last_update, start)
    read = decode_versioned(TransactionLogValue, value)
    state = _state(read.transaction_status)
    return TransactionRecord(
        read.producer_id,
        read.producer_epoch,
        read.transaction_timeout_ms,
        state,
        frozenset(
            (each.topic, partition) for each in read.transaction_partitions or () for partition in each.partition_ids
        ),
        read.transaction_last_update_timestamp_ms,
        read.transaction_start_timestamp_ms,
        read.previous_producer_id,
        _epoch_before(state, read),
        read.next_producer_id,
        read.client_transaction_version,
    )


def _epoch_before(state: TransactionState, read: TransactionLogValue) -> int:
    """Return the epoch that the transaction had whose end was asked for by then; -1 where nobody may ask again."""
    if read.client_transaction_version < EPOCH_EACH or state in (EMPTY, ONGOING):
        return NO_EPOCH
    if read.producer_epoch == LAST_EPOCH and read.next_producer_id < 0:
        return NO_EPOCH
    return read.producer_epoch - 1 if read.producer_epoch else EXHAUSTED_EPOCH


def _state(number: int) -> TransactionState:
    if not 0 <= number < len(_STATES):
        raise MalformedMessage(f"a transaction in state {number}")
    return _STATES[number]
