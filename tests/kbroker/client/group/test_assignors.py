import random

import pytest

from kbroker.client.group.assignors import ASSIGNORS, subscription_for
from kbroker.client.group.subscriptions import Subscription
from kbroker.client.types import TopicPartition

NOWHERE = frozenset[str]()
TOPICS = {"a": [NOWHERE] * 3, "b": [NOWHERE] * 3}
WANTS_BOTH = Subscription(("a", "b"))


def keys(topic: str, *partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in partitions]


def test_range_gives_each_member_a_run_of_each_topic() -> None:
    assigned = ASSIGNORS["range"].assign(TOPICS, {"m1": WANTS_BOTH, "m2": WANTS_BOTH})
    assert assigned == {"m1": keys("a", 0, 1) + keys("b", 0, 1), "m2": keys("a", 2) + keys("b", 2)}


def test_round_robin_deals_partitions_out_in_turns() -> None:
    assigned = ASSIGNORS["roundrobin"].assign(TOPICS, {"m2": WANTS_BOTH, "m1": WANTS_BOTH})
    assert assigned == {"m1": keys("a", 0, 2) + keys("b", 1), "m2": keys("a", 1) + keys("b", 0, 2)}


def test_static_members_come_first_by_their_instance_ids() -> None:
    members = {"m1": WANTS_BOTH, "m2": Subscription(("a", "b"), instance_id="z")}
    assert ASSIGNORS["range"].assign(TOPICS, members)["m2"] == keys("a", 0, 1) + keys("b", 0, 1)


def test_range_prefers_members_in_the_racks_of_the_replicas() -> None:
    topics = {"a": [frozenset({"east"}), frozenset({"west"})]}
    members = {"m1": Subscription(("a",), rack="west"), "m2": Subscription(("a",), rack="east")}
    assert ASSIGNORS["range"].assign(topics, members) == {"m1": keys("a", 1), "m2": keys("a", 0)}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_every_wanted_partition_has_exactly_one_reader_that_wants_it(name: str) -> None:
    rng = random.Random(name)
    for _ in range(30):
        topics = {f"t{index}": [NOWHERE] * rng.randint(1, 7) for index in range(4)}
        members = {
            f"m{index}": Subscription(tuple(rng.sample(sorted(topics), rng.randint(1, 4))))
            for index in range(rng.randint(1, 9))
        }
        assigned = ASSIGNORS[name].assign(topics, members)
        assert assigned.keys() == members.keys()
        wanted = {topic for member in members.values() for topic in member.topics}
        given = [key for member in assigned for key in assigned[member]]
        assert sorted(given) == [key for topic in sorted(wanted) for key in keys(topic, *range(len(topics[topic])))]
        assert all(key.topic in members[member].topics for member in assigned for key in assigned[member])


def test_a_joining_member_says_what_its_assignor_wants_to_know() -> None:
    had = keys("a", 0)
    said = subscription_for(ASSIGNORS["sticky"], ["a"], [], 5, "east", had)
    assert (said.rack, said.owned, said.generation) == ("east", (), 5)
    assert said.user_data is not None
    assert subscription_for(ASSIGNORS["range"], ["a"], had, 5, "", had).user_data is None
