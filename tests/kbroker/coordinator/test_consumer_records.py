"""The records of the newer protocol's groups, as Kafka's."""

from __future__ import annotations

import pytest

from kbroker.coordinator import consumer_records as records
from kbroker.coordinator.consumer_member import ClassicMembership, ConsumerMember, MemberState
from kbroker.protocol.errors import MalformedMessage

TOPIC = bytes(range(16))
MEMBER = ConsumerMember(
    "m",
    "instance",
    "rack",
    "client",
    "/host",
    frozenset({"t"}),
    "t.*",
    60_000,
    "range",
    ClassicMembership(10_000, (("range", b"x"),)),
    epoch=5,
    previous_epoch=4,
    state=MemberState.UNREVOKED_PARTITIONS,
    assigned={TOPIC: frozenset({1, 2})},
    pending_revocation={TOPIC: frozenset({3})},
)


def load(*written: tuple[bytes, bytes | None]) -> dict[str, records.StoredGroup]:
    groups: dict[str, records.StoredGroup] = {}
    for key, value in written:
        assert records.is_consumer_key(key)
        records.load_record(groups, key, value)
    return groups


def test_keys_and_values_are_kafkas_bytes() -> None:
    assert records.group_epoch("g", 7) == (b"\0\3\0\1g", b"\0\0\0\0\0\7\0")
    assert records.target_epoch("g", 7) == (b"\0\6\0\1g", b"\0\0\0\0\0\7\0")
    key, value = records.target_member("g", "m", {TOPIC: frozenset({2, 1})})
    assert key == b"\0\7\0\1g\0\1m"
    assert value == b"\0\0\2" + TOPIC + b"\3\0\0\0\1\0\0\0\2" + b"\0\0"
    assert records.topic_metadata("g", {"t": (TOPIC, 3)}) == (
        b"\0\4\0\1g",
        b"\0\0\2" + TOPIC + b"\2t\0\0\0\3\1\0\0",
    )
    assert [key[1] for key, _ in records.member_tombstones("g", "m")] == [8, 7, 5]
    assert [key[1] for key, _ in records.group_tombstones("g")] == [6, 4, 3]


def test_a_group_is_read_as_it_was_written() -> None:
    stored = load(
        records.group_epoch("g", 5),
        records.topic_metadata("g", {"t": (TOPIC, 3)}),
        records.member_metadata("g", MEMBER),
        records.target_epoch("g", 5),
        records.target_member("g", "m", {TOPIC: frozenset({1, 2})}),
        records.current_assignment("g", MEMBER),
    )["g"]
    assert (stored.epoch, stored.target_epoch) == (5, 5)
    assert stored.topics == {"t": (TOPIC, 3)}
    assert stored.targets == {"m": {TOPIC: frozenset({1, 2})}}
    assert stored.members["m"].subscription() == MEMBER.subscription()
    assert stored.members["m"].current() == MEMBER.current()


def test_tombstones_remove_members_and_groups() -> None:
    written = [
        records.group_epoch("g", 5),
        records.member_metadata("g", MEMBER),
        records.target_member("g", "m", {}),
        records.current_assignment("g", MEMBER),
        *records.member_tombstones("g", "m"),
    ]
    stored = load(*written)["g"]
    assert (stored.members, stored.targets) == ({}, {})
    assert load(*written, *records.group_tombstones("g")) == {}
    assert load(*records.member_tombstones("unknown", "m")) == {}


@pytest.mark.parametrize(
    ("key", "value"), [(b"\0", b""), (b"\0\x09\0\1g", b"\0\0"), (b"\0\3\0\7g", b"\0\0"), (b"\0\3\0\1g", b"\0\0\0")]
)
def test_what_cannot_be_read_is_malformed(key: bytes, value: bytes) -> None:
    with pytest.raises(MalformedMessage):
        records.load_record({}, key, value)
