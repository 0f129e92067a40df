"""Messages with their version in front: golden bytes, and bytes that are none."""

import pytest

from kbroker.protocol.errors import KafkaError, MalformedMessage
from kbroker.protocol.messages.groups import ConsumerProtocolSubscription
from kbroker.protocol.messages.internal_topics import OffsetCommitKey, OffsetCommitValue
from kbroker.protocol.versioned import decode_versioned, encode_versioned, version_of

KEY = OffsetCommitKey(group="g", topic="t", partition=3)


def test_a_key_of_the_offsets_topic_has_kafkas_bytes() -> None:
    encoded = encode_versioned(KEY, 1)
    assert encoded.hex(" ") == "00 01 00 01 67 00 01 74 00 00 00 03"
    assert version_of(encoded) == 1
    assert decode_versioned(OffsetCommitKey, memoryview(encoded)) == KEY


def test_a_value_is_read_in_the_version_it_names() -> None:
    for version in range(5):
        value = OffsetCommitValue(offset=9, metadata="m", commit_timestamp=5)
        assert decode_versioned(OffsetCommitValue, encode_versioned(value, version)) == value


def test_a_version_that_is_not_known_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="OffsetCommitValue has versions 0-4, not 5"):
        decode_versioned(OffsetCommitValue, b"\x00\x05")
    with pytest.raises(MalformedMessage, match="not -1"):
        decode_versioned(OffsetCommitValue, b"\xff\xff", newer_as_newest=True)
    with pytest.raises(KafkaError, match="not 9"):
        encode_versioned(KEY, 9)


@pytest.mark.parametrize("broken", [b"", b"\x00", b"\x00\x01", b"\x00\x01\x00\x09g"])
def test_bytes_that_end_too_soon_are_malformed(broken: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_versioned(OffsetCommitKey, broken)


def test_a_subscription_of_the_future_is_read_as_the_newest_that_is_known() -> None:
    encoded = encode_versioned(ConsumerProtocolSubscription(topics=["t"], user_data=None), 3)
    future = b"\x00\x09" + encoded[2:] + b"what later versions add"
    assert decode_versioned(ConsumerProtocolSubscription, future, newer_as_newest=True).topics == ["t"]
    with pytest.raises(MalformedMessage):
        decode_versioned(ConsumerProtocolSubscription, future)
