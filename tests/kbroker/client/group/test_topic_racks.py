from kbroker.client.group.subscriptions import Subscription
from kbroker.client.group.topic_racks import GroupRacks, is_rack_aware, racks_of_members
from kbroker.client.types import TopicPartition

EAST, WEST = frozenset({"east"}), frozenset({"west"})


def test_racks_matter_only_where_not_every_partition_is_in_all_of_them() -> None:
    assert is_rack_aware({"east"}, [EAST, WEST])
    assert not is_rack_aware({"east"}, [EAST | WEST, EAST | WEST])
    assert not is_rack_aware({"north"}, [EAST, WEST])
    assert not is_rack_aware(set(), [EAST, WEST])


def test_members_match_and_mismatch_by_the_racks_of_replicas() -> None:
    members = {"m1": Subscription(("a",), rack="east"), "m2": Subscription(("a",))}
    assert racks_of_members(members) == {"m1": "east"}
    racks = GroupRacks({"a": [EAST, WEST]}, members)
    near, far = TopicPartition("a", 0), TopicPartition("a", 1)
    assert (racks.mismatch("m1", far), racks.mismatch("m1", near), racks.mismatch("m2", far)) == (True, False, False)
    assert (racks.matches("m1", near), racks.matches("m2", near)) == (True, False)
    assert racks.fewest_consumers_first([near, far]) == [far, near]


def test_without_racks_nothing_mismatches_and_order_stays() -> None:
    racks = GroupRacks({"a": [EAST, WEST]}, {"m": Subscription(("a",))})
    assert not racks.mismatch("m", TopicPartition("a", 0))
    assert racks.fewest_consumers_first([TopicPartition("a", 1), TopicPartition("a", 0)])[0].partition == 1
