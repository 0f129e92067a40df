"""Who calls names partitions as it likes; that type checkers agree is in tests/kbroker/test_public_names.py."""

from kbroker import LATEST, Admin, OffsetAndMetadata, TopicPartition


def test_a_pair_does_where_a_partition_is_named(bootstrap: str, topic: str) -> None:
    pairs, names = {(topic, 0): LATEST}, {TopicPartition(topic, 0): LATEST}
    with Admin(bootstrap) as admin:
        assert admin.list_offsets(pairs) == admin.list_offsets(pairs.keys()) == admin.list_offsets(names)
        assert admin.delete_records(pairs) == admin.delete_records(names) == {(topic, 0): 0}
        admin.alter_group_offsets(topic, {(topic, 0): 3, TopicPartition(topic, 1): OffsetAndMetadata(7)})
        told = admin.list_group_offsets(topic, [(topic, 0), TopicPartition(topic, 1)])
        assert {key: each.offset for key, each in told.items()} == {(topic, 0): 3, (topic, 1): 7}
