"""The floor under consumers: sockets that ask for all of a topic and throw it away. For bench/client.py.

What this takes is the broker's and the kernel's part: each answer is received into memory that is there already, only
its batches' headers are looked at, and the next one is asked for. No checksum, no record. Over one connection the
broker waits while an answer is looked at, over two it need not.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from kbroker.client.plain_cluster import PlainCluster
from kbroker.client.plain_connection import PlainConnection
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.records.succession import look_through

LIMIT_S = 60.0
VERSION = 12
ANSWER_BYTES = 8 << 20
PARTITION_BYTES = 4 << 20
"""Of an answer: as our consumer asks by default."""


def read_all(bootstrap: str, topic: str, connections: int) -> int:
    """Read a topic of one broker to its end, partitions dealt out to connections; returns the number of offsets."""
    with PlainCluster(bootstrap) as cluster:
        places = sorted(cluster.partitions([topic]))
        bounds = cluster.bounds(places)
    dealt = [{place[1]: bounds[place] for place in places[number::connections]} for number in range(connections)]
    host, port = bootstrap.split(":")
    with ThreadPoolExecutor(connections) as threads:
        return sum(threads.map(lambda share: _read(host, int(port), topic, share), dealt))


def _read(host: str, port: int, topic: str, bounds: dict[int, tuple[int, int]]) -> int:
    """Read partitions over one connection; `bounds` are their first offsets and ends."""
    connection = PlainConnection(host, port, client_id="bare", timeout=LIMIT_S)
    at = {partition: first for partition, (first, end) in bounds.items() if first < end}
    count = 0
    while at:
        answer = connection.request(_request(topic, at), VERSION)
        for item in answer.responses[0].partitions:
            partition = item.partition_index
            following = look_through(item.records or b"", at[partition]).next_offset
            count += following - at[partition]
            at[partition] = following
            if following >= bounds[partition][1]:
                del at[partition]
    connection.close()
    return count


def _request(topic: str, at: dict[int, int]) -> FetchRequest:
    partitions = [
        FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES)
        for partition, offset in at.items()
    ]
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=ANSWER_BYTES,
        isolation_level=0,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=partitions)],
    )
