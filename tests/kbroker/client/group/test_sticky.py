from kbroker.client.group.sticky import assign_cooperatively, assign_sticky
from kbroker.client.group.subscriptions import Subscription
from kbroker.client.group.user_data import sticky_user_data
from kbroker.client.types import TopicPartition

TOPICS = {"a": [frozenset[str]()] * 4}
ALL = [TopicPartition("a", index) for index in range(4)]


def owner(*partitions: TopicPartition, generation: int = 1) -> Subscription:
    return Subscription(("a",), owned=partitions, generation=generation)


def test_a_new_member_gets_its_share_only_after_it_was_given_up() -> None:
    members = {"m1": owner(*ALL), "m2": Subscription(("a",))}
    assigned = assign_cooperatively(TOPICS, members)
    assert assigned == {"m1": ALL[:2], "m2": []}
    members = {"m1": owner(*ALL[:2], generation=2), "m2": owner(generation=2)}
    assert assign_cooperatively(TOPICS, members) == {"m1": ALL[:2], "m2": ALL[2:]}


def test_members_get_back_what_they_had() -> None:
    members = {
        "m1": Subscription(("a",), sticky_user_data(ALL[2:], 3)),
        "m2": Subscription(("a",), sticky_user_data(ALL[:2], 3)),
    }
    assert assign_sticky(TOPICS, members) == {"m1": ALL[2:], "m2": ALL[:2]}


def test_what_two_claim_goes_to_the_one_of_the_younger_generation() -> None:
    assert assign_cooperatively(TOPICS, {"m1": owner(*ALL[:2]), "m2": owner(*ALL[:2], generation=2)}) == {
        "m1": ALL[2:],
        "m2": ALL[:2],
    }


def test_what_two_of_one_generation_claim_is_taken_from_both_first() -> None:
    assigned = assign_cooperatively(TOPICS, {"m1": owner(*ALL[:2]), "m2": owner(ALL[1], *ALL[2:])})
    assert ALL[1] not in assigned["m1"] + assigned["m2"]


def test_partitions_that_do_not_exist_any_more_are_forgotten() -> None:
    assert assign_cooperatively(TOPICS, {"m1": owner(*ALL, TopicPartition("a", 9))}) == {"m1": ALL}
