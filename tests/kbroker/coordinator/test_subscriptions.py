import pytest

from kbroker.coordinator.subscriptions import MOST_TOPICS, subscribed_topics
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


def test_more_topics_than_can_be_looked_at_together_are_unknown() -> None:
    many = blob_of(*(f"t{number}" for number in range(MOST_TOPICS)))
    assert len(subscribed_topics([many]) or ()) == MOST_TOPICS
    assert subscribed_topics([many, blob_of("another")]) is None


def test_members_that_read_the_same_topics_are_read_once() -> None:
    names = [f"töpic{number}" for number in range(MOST_TOPICS // 2 + 1)]
    assert subscribed_topics([blob_of(*names, user_data=bytes([each])) for each in range(50)]) == frozenset(names)
    assert subscribed_topics([blob_of(*names), blob_of(*names, "one more")]) is None, "that is not the same"


def test_topics_that_begin_like_others_are_read() -> None:
    assert subscribed_topics([blob_of("a"), blob_of("ab"), blob_of("a", "b")]) == frozenset(("a", "ab", "b"))


def blob_of(*topics: str, user_data: bytes | None = None) -> bytes:
    return b"\0\0" + encode(ConsumerProtocolSubscription(topics=list(topics), user_data=user_data), 0)


def test_nobody_reads_nothing() -> None:
    assert subscribed_topics([]) == frozenset()
