import pytest

from kbroker import Producer
from kbroker.client.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kbroker.client.range_reader import RangeReader, SyncCluster
from kbroker.client.types import TopicPartition


def test_a_range_is_read_exactly(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, compression="lz4", batch_size=5000) as producer:
        for i in range(5000):
            producer.send(topic, b"%d" % i, partition=2)
    key = TopicPartition(topic, 2)
    with SyncCluster(bootstrap) as cluster:
        assert cluster.partitions_for(topic) == [0, 1, 2]
        assert cluster.earliest_offsets([key]) == {key: 0}
        assert cluster.latest_offsets([key]) == {key: 5000}
        assert topic in cluster.topics()
    small = {"max_partition_fetch_bytes": 20_000}
    batches = list(RangeReader(bootstrap, topic, 2, 123, 4567, max_rows=500, config=small))
    assert max(batch.num_rows for batch in batches) <= 500
    assert [value for batch in batches for value in batch["value"].to_pylist()] == [b"%d" % i for i in range(123, 4567)]


def test_what_is_not_there_is_an_error(bootstrap: str, topic: str) -> None:
    with pytest.raises(OffsetOutOfRangeError):
        list(RangeReader(bootstrap, topic, 0, 5, 10))
    with SyncCluster(bootstrap) as cluster, pytest.raises(UnknownTopicOrPartitionError):
        cluster.partitions_for(topic + "-not-there")
