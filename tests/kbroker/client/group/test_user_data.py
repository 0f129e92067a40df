from kbroker.client.group.subscriptions import Subscription
from kbroker.client.group.user_data import (
    StickyUserData,
    cooperative_previous,
    cooperative_user_data,
    sticky_previous,
    sticky_user_data,
)
from kbroker.client.types import TopicPartition
from kbroker.protocol.codec import encode

HAD = [TopicPartition("a", 1), TopicPartition("a", 2)]


def test_the_bytes_are_those_of_java() -> None:
    assert sticky_user_data(HAD, 7) == bytes.fromhex("00000001 0001 61 00000002 00000001 00000002 00000007")
    assert cooperative_user_data(HAD, 7) == bytes.fromhex("00000007")
    assert sticky_user_data([], -1) is None


def test_what_was_written_is_read() -> None:
    assert sticky_previous(Subscription(("a",), sticky_user_data(HAD, 7))) == (HAD, 7)
    old = StickyUserData(previous_assignment=[StickyUserData.TopicAssignment(topic="a", partitions=[1, 2])])
    assert sticky_previous(Subscription(("a",), encode(old, 0))) == (HAD, None)


def test_nonsense_counts_as_nothing() -> None:
    assert sticky_previous(Subscription(("a",), b"\x7f\xff\xff\xff")) == ((), -1)
    assert sticky_previous(Subscription(("a",))) == ((), None)
    assert cooperative_previous(Subscription(("a",), b"\x00")) == ((), -1)


def test_the_generation_is_taken_from_where_the_member_says_it() -> None:
    owned = tuple(HAD)
    assert cooperative_previous(Subscription(("a",), None, owned, 9)) == (owned, 9)
    assert cooperative_previous(Subscription(("a",), cooperative_user_data(HAD, 4), owned)) == (owned, 4)
    assert cooperative_previous(Subscription(("a",), None, owned)) == (owned, None)
