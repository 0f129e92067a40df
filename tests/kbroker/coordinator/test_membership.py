import pytest

from kbroker.coordinator.member import Member
from kbroker.coordinator.membership import Membership
from kbroker.protocol.errors import ErrorCode
from tests.kbroker.coordinator.play import subscription


def member(member_id: str, *protocols: str, instance: str | None = None, topic: str = "t") -> Member:
    chosen = tuple((name, subscription(topic)) for name in protocols or ("range",))
    return Member(member_id, instance, member_id, "/host", 10_000, 60_000, chosen)


@pytest.fixture
def three() -> Membership:
    found = Membership()
    found.insert(member("a", "range", "sticky"), "consumer")
    found.insert(member("b", "sticky", "range", instance="two"), "consumer")
    found.insert(member("c", "sticky", "range", topic="u"), "consumer")
    found.check()
    return found


def test_the_topics_of_protocols_are_those_of_consumers(three: Membership) -> None:
    protocols = (("range", subscription("t")), ("sticky", subscription("t", "u")))
    assert three.topics_of(protocols) == frozenset({"t", "u"})
    assert three.topics_of((("range", b"no subscription"),)) is None
    three.protocol_type = "connect"
    assert three.topics_of(protocols) is None


def test_the_first_member_leads_and_another_follows_it(three: Membership) -> None:
    assert three.leader == "a"
    three.remove(three.members["a"])
    assert three.leader == "b"
    three.check()


def test_protocols_are_counted_as_members_come_change_and_go(three: Membership) -> None:
    assert three.select_protocol() == "sticky"
    three.set_protocols(three.members["b"], (("range", b""),))
    assert three.select_protocol() == "range"
    assert not three.supports((("sticky", b""),))
    three.remove(three.members["b"])
    assert three.supports((("sticky", b""),))
    three.check()


def test_a_static_members_new_self_has_its_place(three: Membership) -> None:
    three.pending_sync = {"b"}
    three.remove(three.members["a"])
    three.rename(three.members["b"], "b-2")
    assert (three.leader, three.static_members, three.pending_sync) == ("b-2", {"two": "b-2"}, {"b-2"})
    assert three.member_error("b", "two") is ErrorCode.FENCED_INSTANCE_ID
    assert three.member_error("b", None) is ErrorCode.UNKNOWN_MEMBER_ID
    assert three.member_error("b-2", "two") is ErrorCode.NONE
    three.check()


def test_subscriptions_are_read_of_consumers_only(three: Membership) -> None:
    three.protocol_name = "range"
    assert three.subscriptions() == frozenset("tu")
    three.protocol_type = "connect"
    assert three.subscriptions() is None
    assert three.has_subscribed("anything")


def test_nobody_is_left_after_clear(three: Membership) -> None:
    three.clear()
    three.check()
    assert not three.members
