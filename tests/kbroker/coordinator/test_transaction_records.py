"""The records of __transaction_state: Kafka's bytes, and what is refused."""

from __future__ import annotations

import pytest

from kbroker.coordinator.transaction import (
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    NO_PARTITIONS,
    ONGOING,
    PREPARE_ABORT,
    TransactionRecord,
    TransactionState,
)
from kbroker.coordinator.transaction_records import (
    read_transaction_key,
    read_transaction_value,
    transaction_key,
    transaction_value,
)
from kbroker.protocol.errors import KafkaError, MalformedMessage
from kbroker.protocol.messages.internal_topics import TransactionLogValue
from kbroker.protocol.versioned import encode_versioned

RECORD = TransactionRecord(0x0102030405060708, 9, 60_000, EMPTY, NO_PARTITIONS, 1_000, -1)


def test_a_key_is_its_version_and_the_id() -> None:
    assert transaction_key("tä") == b"\0\0\0\3t\xc3\xa4"
    assert read_transaction_key(transaction_key("tä")) == "tä"
    assert read_transaction_key(transaction_key("")) == ""


def test_the_value_of_an_empty_transaction_has_no_array_and_a_complete_one_an_empty_array() -> None:
    head = bytes.fromhex("0000 0102030405060708 0009 0000ea60")
    tail = bytes.fromhex("00000000000003e8 ffffffffffffffff")
    assert transaction_value(RECORD) == head + b"\0" + b"\xff\xff\xff\xff" + tail
    assert transaction_value(RECORD._replace(state=COMPLETE_COMMIT)) == head + b"\4" + bytes(4) + tail


def test_partitions_are_kept_by_topic() -> None:
    record = RECORD._replace(state=ONGOING, partitions=frozenset({("u", 7), ("t", 2), ("t", 1)}), start_ms=5)
    topics = bytes.fromhex("00000002 0001 74 00000002 00000001 00000002 0001 75 00000001 00000007")
    assert topics in transaction_value(record)
    assert read_transaction_value(transaction_value(record)) == record


@pytest.mark.parametrize("count", [1, 2, 300])
def test_values_with_partitions_are_those_of_the_schema(count: int) -> None:
    numbers = [7 * number % count for number in range(count)]
    partitions = frozenset((topic, number) for topic in ("b", "ä", "long" * 60) for number in numbers)
    record = RECORD._replace(state=ONGOING, partitions=partitions, start_ms=5)
    value = TransactionLogValue(
        producer_id=record.producer_id,
        producer_epoch=9,
        transaction_timeout_ms=60_000,
        transaction_status=ONGOING,
        transaction_partitions=[
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=sorted(set(numbers)))
            for topic in ("b", "long" * 60, "ä")
        ],
        transaction_last_update_timestamp_ms=1_000,
        transaction_start_timestamp_ms=5,
    )
    assert transaction_value(record) == encode_versioned(value, 0)


@pytest.mark.parametrize("state", [state for state in TransactionState if state is not DEAD])
def test_every_state_is_read_as_it_was_written_but_for_what_only_memory_knows(state: TransactionState) -> None:
    partitions = frozenset({("t", 1)}) if state in (ONGOING, PREPARE_ABORT) else NO_PARTITIONS
    record = RECORD._replace(state=state, partitions=partitions)
    written = transaction_value(record._replace(last_producer_id=3, last_producer_epoch=4))
    assert read_transaction_value(written) == record


@pytest.mark.parametrize("version", [0, 1])
def test_both_versions_of_the_schema_are_read(version: int) -> None:
    value = TransactionLogValue(
        producer_id=1,
        producer_epoch=2,
        transaction_timeout_ms=3,
        transaction_status=1,
        transaction_partitions=[TransactionLogValue.PartitionsSchema(topic="t", partition_ids=[5])],
        transaction_last_update_timestamp_ms=6,
        transaction_start_timestamp_ms=7,
    )
    record = TransactionRecord(1, 2, 3, ONGOING, frozenset({("t", 5)}), 6, 7)
    assert read_transaction_value(encode_versioned(value, version)) == record


def test_keys_of_other_versions_are_left_alone() -> None:
    assert read_transaction_key(b"\0\1\0\1t") is None


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\0", b"\0\0\0\5t", b"\0\0\xff\xff", b"\0\0\0\1\xff"])
def test_damaged_keys_are_refused(key: bytes) -> None:
    with pytest.raises(MalformedMessage):
        read_transaction_key(key)


@pytest.mark.parametrize("state", [-1, 6, 7, 100])
def test_a_state_that_is_never_stored_is_refused(state: int) -> None:
    value = bytearray(transaction_value(RECORD))
    value[16] = state & 0xFF
    with pytest.raises(MalformedMessage):
        read_transaction_value(bytes(value))


@pytest.mark.parametrize("value", [b"", b"\0\0", b"\0\2" + bytes(37), transaction_value(RECORD)[:-1]])
def test_damaged_values_are_refused(value: bytes) -> None:
    with pytest.raises(MalformedMessage):
        read_transaction_value(value)


def test_an_id_that_no_record_holds_is_refused() -> None:
    with pytest.raises(KafkaError):
        transaction_key("x" * 0x8000)
