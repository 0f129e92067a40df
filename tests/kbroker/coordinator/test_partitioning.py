from kbroker.coordinator.partitioning import partition_for


def test_the_hash_without_an_absolute_value_counts_as_nought() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 99162322 % 50
