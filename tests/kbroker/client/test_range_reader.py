import pytest

pytest.importorskip("pyarrow")

from kbroker import Producer
from kbroker.client.blocking_cluster import BlockingCluster
from kbroker.client.errors import OffsetOutOfRangeError
from kbroker.client.range_reader import RangeReader


def test_a_range_is_read_exactly(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, compression="lz4", batch_size=5000) as producer:
        for i in range(5000):
            producer.send(topic, b"%d" % i, partition=2)
    with BlockingCluster(bootstrap) as cluster:
        batches = list(RangeReader(cluster, topic, 2, 123, 4567, max_rows=500, fetch_bytes=20_000))
    assert max(batch.num_rows for batch in batches) <= 500
    assert [value for batch in batches for value in batch["value"].to_pylist()] == [b"%d" % i for i in range(123, 4567)]


def test_what_is_not_there_is_an_error(bootstrap: str, topic: str) -> None:
    with BlockingCluster(bootstrap) as cluster, pytest.raises(OffsetOutOfRangeError):
        list(RangeReader(cluster, topic, 0, 5, 10))
