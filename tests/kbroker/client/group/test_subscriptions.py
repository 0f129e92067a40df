import pytest

from kbroker.client.group.subscriptions import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kbroker.client.types import TopicPartition
from kbroker.protocol.errors import MalformedMessage

OWNED = (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))


def test_a_subscription_is_read_as_it_was_written() -> None:
    said = Subscription(("a", "b"), b"data", OWNED, 4, "east")
    assert decode_subscription(encode_subscription(said)) == said
    assert decode_subscription(encode_subscription(said), "static").instance_id == "static"


def test_versions_of_the_past_and_the_future_are_read() -> None:
    oldest = bytes.fromhex("0000 00000001 0001 61 ffffffff")
    assert decode_subscription(oldest) == Subscription(("a",))
    future = b"\x00\x09" + encode_subscription(Subscription(("a",)))[2:] + b"more"
    assert decode_subscription(future) == Subscription(("a",))


def test_an_assignment_is_read_as_it_was_written() -> None:
    assert decode_assignment(encode_assignment(reversed(OWNED))) == OWNED
    assert decode_assignment(b"") == ()


@pytest.mark.parametrize("blob", [b"", b"\x00", b"\xff\xff\x00", b"\x00\x01\x7f\xff\xff\xff"])
def test_nonsense_is_refused(blob: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_subscription(blob)
