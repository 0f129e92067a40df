from __future__ import annotations

from typing import Any

import pytest

from kbroker.client.group.subscriptions import Subscription, encode_assignment, encode_subscription
from kbroker.client.types import TopicPartition
from kbroker.coordinator.group_offsets import CommittedOffset
from kbroker.coordinator.offsets_records import commit_key, commit_value, group_key, group_value
from kbroker.coordinator.record_words import words_for
from kbroker.coordinator.transaction import EPOCH_EACH, PREPARE_COMMIT, TransactionRecord
from kbroker.coordinator.transaction_records import transaction_key, transaction_value
from kbroker.protocol.messages.internal_topics import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    GroupMetadataValue,
)
from kbroker.protocol.primitives import uuid_to_text
from kbroker.protocol.versioned import encode_versioned


def told(topic: str, key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
    words = words_for(f"{topic}-3")
    assert words is not None
    return words(key, value)


def of_offsets(key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
    return told("__consumer_offsets", key, value)


def test_a_commit_names_group_partition_and_offset() -> None:
    key, value = of_offsets(commit_key("g", "orders", 4), commit_value(CommittedOffset(5, 2, "why", 1_000)))
    assert key == {"type": "offset_commit", "group": "g", "topic": "orders", "partition": 4}
    assert value == {"version": 3, "offset": 5, "leader_epoch": 2, "metadata": "why", "commit_timestamp": 1_000}
    assert of_offsets(commit_key("g", "orders", 4), None) == (key, None)


def test_a_group_tells_what_its_consumers_want_and_have() -> None:
    member = GroupMetadataValue.MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/127.0.0.1",
        session_timeout=10_000,
        subscription=encode_subscription(Subscription(("orders",))),
        assignment=encode_assignment([TopicPartition("orders", 1)]),
    )
    group = GroupMetadataValue(protocol_type="consumer", generation=2, protocol="range", leader="m", members=[member])
    key, value = of_offsets(group_key("g"), group_value(group))
    assert key == {"type": "group", "group": "g"}
    assert (value["generation"], value["leader"]) == (2, "m")
    (said,) = value["members"]
    assert said["subscription"]["topics"] == ["orders"]
    assert said["assignment"]["assigned_partitions"] == [{"topic": "orders", "partitions": [1]}]
    group.protocol_type = "connect"
    _, value = of_offsets(group_key("g"), group_value(group))
    assert value["members"][0]["assignment"] == member.assignment.hex(), "who knows what that is"


def test_a_member_of_the_newer_protocol_tells_its_partitions() -> None:
    topic_id = bytes(range(16))
    partitions = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(topic_id=topic_id, partitions=[1, 2])
    current = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=4,
        previous_member_epoch=3,
        state=0,
        assigned_partitions=[partitions],
        partitions_pending_revocation=[],
    )
    key = encode_versioned(ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"), 8)
    said, value = of_offsets(key, encode_versioned(current, 0))
    assert said == {"type": "consumer_member_current", "group_id": "g", "member_id": "m"}
    assert value["assigned_partitions"] == [{"topic_id": uuid_to_text(topic_id), "partitions": [1, 2]}]


def test_a_transaction_tells_its_state_and_with_an_epoch_of_its_own_what_comes_next() -> None:
    record = TransactionRecord(7, 3, 60_000, PREPARE_COMMIT, frozenset({("orders", 1), ("orders", 2)}), 20, 10)
    key, value = told("__transaction_state", transaction_key("payments"), transaction_value(record))
    assert key == {"type": "transaction", "transactional_id": "payments"}
    assert (value["version"], value["state"], value["producer_id"]) == (0, "PrepareCommit", 7)
    assert value["transaction_partitions"] == [{"topic": "orders", "partition_ids": [1, 2]}]
    assert "next_producer_id" not in value
    record = record._replace(client_version=EPOCH_EACH, next_producer_id=8)
    _, value = told("__transaction_state", transaction_key("payments"), transaction_value(record))
    assert (value["version"], value["next_producer_id"], value["client_transaction_version"]) == (1, 8, 2)


@pytest.mark.parametrize("key", [None, b"", b"\0\x63what", b"\0\1\0\x7f"])
def test_what_cannot_be_read_is_said_and_shown(key: bytes | None) -> None:
    said, value = of_offsets(key, b"\1\2")
    assert value == {"bytes": "0102"}
    assert said is None if key is None else (said["unreadable"], said["bytes"]) == (said["unreadable"], key.hex())


@pytest.mark.parametrize("value", [b"", b"\0\x63", b"\0\3\0"])
def test_a_value_that_cannot_be_read_leaves_its_key_in_words(value: bytes) -> None:
    said, shown = of_offsets(commit_key("g", "t", 0), value)
    assert said["group"] == "g"
    assert shown["bytes"] == value.hex()
    assert shown["unreadable"]


@pytest.mark.parametrize("folder", ["orders-0", "__consumer_offsets", "tmp", "my__transaction_state-1"])
def test_records_of_users_are_left_as_they_are(folder: str) -> None:
    assert words_for(folder) is None
