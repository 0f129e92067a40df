"""Who calls names partitions as it likes; that type checkers agree is in tests/kbroker/test_public_names.py."""

from collections.abc import Callable
from typing import Any

import pytest

from kbroker import LATEST, Admin, Consumer, OffsetAndMetadata, TopicPartition
from kbroker.client.partition_names import partition_of


class Three:
    """A number as numpy's are: no int, and as good."""

    def __index__(self) -> int:
        return 3


def test_a_number_of_another_kind_is_taken_as_one() -> None:
    assert partition_of(["orders", Three()]) == TopicPartition("orders", 3)
    assert type(partition_of(("orders", Three())).partition) is int


@pytest.mark.parametrize(
    "given", [("t", "0"), ("t", -1), ("t", True), ("t", 1.0), ("t", None), (0, "t"), ("t",), ("t", 0, 0), "t0", "t", 0]
)
def test_what_names_no_partition_is_refused_before_anybody_is_asked(given: Any) -> None:
    with pytest.raises(TypeError, match=r"is named by its topic and number, as \('orders', 0\), not by"):
        partition_of(given)
    with Consumer("127.0.0.1:1") as consumer:
        for call in (consumer.assign, consumer.end_offsets):
            with pytest.raises(TypeError, match="is named by its topic and number"):
                call([given])
        with pytest.raises(TypeError, match="is named by its topic and number"):
            consumer.seek(given, 0)


def test_wrong_values_of_a_consumers_calls_are_told_before_anybody_is_asked() -> None:
    with Consumer("127.0.0.1:1", group_id="g") as consumer:
        wrong: Any = consumer
        calls: list[tuple[Callable[[], object], str]] = [
            (lambda: wrong.subscribe(5), "a list of topics is wanted, not 5"),
            (lambda: wrong.partitions_for(5), "a topic is a text, not 5"),
            (lambda: wrong.poll(0, "5"), "max_records is a whole number, not '5'"),
            (lambda: wrong.poll(0, 1.5), "max_records is a whole number, not 1.5"),
            (lambda: wrong.seek(("t", 0), 1 << 63), "of 64 bits, not 9223372036854775808"),
            (lambda: wrong.commit({("t", 0): 1 << 63}), "an offset from 0 on"),
        ]
        for call, said in calls:
            with pytest.raises((TypeError, ValueError), match=said):
                call()


def test_a_pair_does_where_a_partition_is_named(bootstrap: str, topic: str) -> None:
    pairs, names = {(topic, 0): LATEST}, {TopicPartition(topic, 0): LATEST}
    with Admin(bootstrap) as admin:
        assert admin.list_offsets(pairs) == admin.list_offsets(pairs.keys()) == admin.list_offsets(names)
        assert admin.delete_records(pairs) == admin.delete_records(names) == {(topic, 0): 0}
        admin.alter_group_offsets(topic, {(topic, 0): 3, TopicPartition(topic, 1): OffsetAndMetadata(7)})
        told = admin.list_group_offsets(topic, [(topic, 0), TopicPartition(topic, 1)])
        assert {key: each.offset for key, each in told.items()} == {(topic, 0): 3, (topic, 1): 7}
