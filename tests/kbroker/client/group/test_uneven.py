from kbroker.client.group.sticky import assign_cooperatively, assign_sticky
from kbroker.client.group.subscriptions import Subscription
from kbroker.client.types import TopicPartition

NOWHERE = frozenset[str]()
TOPICS = {"a": [NOWHERE] * 2, "b": [NOWHERE] * 4}


def test_who_wants_less_leaves_more_to_the_others() -> None:
    members = {"m1": Subscription(("a", "b")), "m2": Subscription(("b",)), "m3": Subscription(("a",))}
    assigned = assign_sticky(TOPICS, members)
    assert {member: len(partitions) for member, partitions in assigned.items()} == {"m1": 2, "m2": 2, "m3": 2}
    assert {key.topic for key in assigned["m3"]} == {"a"}


def test_a_balanced_group_keeps_what_it_has() -> None:
    b = [TopicPartition("b", index) for index in range(4)]
    a = [TopicPartition("a", index) for index in range(2)]
    members = {
        "m1": Subscription(("a", "b"), owned=(*a, b[3]), generation=4),
        "m2": Subscription(("b",), owned=tuple(b[:3]), generation=4),
    }
    assigned = assign_cooperatively(TOPICS, members)
    assert {member: sorted(partitions) for member, partitions in assigned.items()} == {"m1": [*a, b[3]], "m2": b[:3]}


def test_an_overfull_member_gives_up_only_what_balance_asks_for() -> None:
    b = tuple(TopicPartition("b", index) for index in range(4))
    members = {"m1": Subscription(("b",), owned=b, generation=1), "m2": Subscription(("a", "b"))}
    assigned = assign_cooperatively(TOPICS, members)
    assert len(assigned["m1"]) == 3
    assert sorted(assigned["m2"]) == [TopicPartition("a", 0), TopicPartition("a", 1)]
