from kbroker.client.types import ConfigEntry, TopicPartition


def test_a_partition_reads_as_kafka_writes_it() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"
    assert TopicPartition("orders", 3) == ("orders", 3)


def test_an_entry_knows_whether_somebody_set_it() -> None:
    assert ConfigEntry("a", "1", "DEFAULT_CONFIG", False, False, None).is_default
