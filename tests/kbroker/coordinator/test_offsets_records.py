"""Bytes of the records in __consumer_offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.coordinator.group_offsets import CommittedOffset
from kbroker.coordinator.offsets_records import (
    UnknownRecord,
    commit_key,
    commit_value,
    group_key,
    group_value,
    read_commit,
    read_group,
    read_key,
)
from kbroker.protocol.codec import encode
from kbroker.protocol.errors import KafkaError, MalformedMessage
from kbroker.protocol.messages.internal_topics import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=50)
GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="m",
    current_state_timestamp=77,
    members=[
        GroupMetadataValue.MemberMetadata(
            member_id="m",
            group_instance_id=None,
            client_id="c",
            client_host="/h",
            rebalance_timeout=5,
            session_timeout=6,
            subscription=b"s",
            assignment=b"a",
        )
    ],
)


def test_a_commit_has_these_bytes() -> None:
    assert commit_key("g", "top", 3) == b"\0\1\0\1g\0\3top\0\0\0\3"
    assert commit_value(CommittedOffset(258, 7, "hi", 1)) == (
        b"\0\3" + (258).to_bytes(8, "big") + b"\0\0\0\7" + b"\0\2hi" + (1).to_bytes(8, "big")
    )
    assert commit_value(CommittedOffset(1, 7, "", 2, 3)) == (
        b"\0\1" + (1).to_bytes(8, "big") + b"\0\0" + (2).to_bytes(8, "big") + (3).to_bytes(8, "big")
    )


@pytest.mark.slow
@given(group=TEXT, topic=TEXT, partition=st.integers(0, 1 << 30), offset=INT64, epoch=st.integers(-1, 9), text=TEXT)
def test_commits_are_what_the_schema_says(
    group: str, topic: str, partition: int, offset: int, epoch: int, text: str
) -> None:
    key = commit_key(group, topic, partition)
    assert key == b"\0\1" + encode(OffsetCommitKey(group=group, topic=topic, partition=partition), 1)
    assert read_key(key) == (group, topic, partition)
    value = commit_value(CommittedOffset(offset, epoch, text, 99))
    stored = OffsetCommitValue(offset=offset, leader_epoch=epoch, metadata=text, commit_timestamp=99)
    assert value == b"\0\3" + encode(stored, 3)
    assert read_commit(value) == CommittedOffset(offset, epoch, text, 99)


@pytest.mark.parametrize("version", range(5))
def test_commits_of_every_version_are_read(version: int) -> None:
    stored = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9, expire_timestamp=11)
    found = read_commit(version.to_bytes(2, "big") + encode(stored, version))
    epoch = 2 if version >= 3 else -1
    assert found == CommittedOffset(5, epoch, "m", 9, 11 if version == 1 else -1)


def test_groups_are_what_the_schema_says() -> None:
    assert group_key("orders") == b"\0\2" + encode(GroupMetadataKey(group="orders"), 2)
    assert read_key(group_key("orders")) == "orders"
    assert group_value(GROUP) == b"\0\3" + encode(GROUP, 3)


@pytest.mark.parametrize("version", range(5))
def test_groups_of_every_version_are_read(version: int) -> None:
    found = read_group(version.to_bytes(2, "big") + encode(GROUP, version))
    assert (found.generation, found.leader) == (3, "m")
    assert found.members[0].rebalance_timeout == (5 if version else 6)
    assert found.current_state_timestamp == (77 if version >= 2 else -1)


@pytest.mark.parametrize("version", range(3, 9))
def test_keys_of_the_newer_protocol_are_not_ours(version: int) -> None:
    with pytest.raises(UnknownRecord):
        read_key(version.to_bytes(2, "big") + b"whatever")


@given(st.binary(max_size=60))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    for read in (read_key, read_commit, read_group):
        try:
            read(data)
        except (MalformedMessage, UnknownRecord):
            continue


def test_a_name_that_fits_no_record_is_refused() -> None:
    with pytest.raises(KafkaError):
        group_key("x" * 40_000)
