import pytest

from kbroker.coordinator.subscriptions import subscribed_topics
from kbroker.protocol.codec import encode
from kbroker.protocol.messages.groups import ConsumerProtocolSubscription


@pytest.mark.parametrize("version", range(4))
def test_topics_are_found_in_every_version(version: int) -> None:
    blob = version.to_bytes(2, "big") + encode(ConsumerProtocolSubscription(topics=["a", "b"]), version)
    assert subscribed_topics([blob, b"\0\0\0\0\0\1\0\1c\xff\xff\xff\xff"]) == frozenset("abc")


def test_a_version_that_does_not_exist_yet_begins_like_the_others() -> None:
    blob = b"\0\x63" + encode(ConsumerProtocolSubscription(topics=["a"]), 0) + b"whatever follows"
    assert subscribed_topics([blob]) == frozenset("a")


@pytest.mark.parametrize("blob", [b"", b"\0", b"\xff\xff", b"\0\0", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\1\0\5ab"])
def test_what_cannot_be_read_makes_the_topics_unknown(blob: bytes) -> None:
    assert subscribed_topics([blob]) is None
    assert subscribed_topics([b"\0\0" + encode(ConsumerProtocolSubscription(topics=["a"]), 0), blob]) is None


def test_nobody_reads_nothing() -> None:
    assert subscribed_topics([]) == frozenset()
