"""Topics and records for the tests of readers, made with the protocol alone."""

import time
from collections.abc import Callable

from kbroker.client.plain_cluster import PlainCluster
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.topics import CreateTopicsRequest
from kbroker.protocol.records.builder import BatchBuilder

TIMEOUT_MS = 60_000


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    new = CreateTopicsRequest.CreatableTopic(
        name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    with PlainCluster(bootstrap) as cluster:
        for address in cluster.config.addresses():  # one of them is the controller, which alone makes topics
            answer = cluster._connect(address).request(CreateTopicsRequest(topics=[new], timeout_ms=TIMEOUT_MS), 4)
            if answer.topics[0].error_code is not ErrorCode.NOT_CONTROLLER:
                break
        assert answer.topics[0].error_code is ErrorCode.NONE, answer


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def produce_batch(
    bootstrap: str, topic: str, partition: int, batch: bytes, transactional_id: str | None = None
) -> ErrorCode:
    records = ProduceRequest.PartitionProduceData(index=partition, records=batch)
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[records])
    with PlainCluster(bootstrap) as cluster:
        cluster.partitions([topic])
        connection = cluster.connection_for((topic, partition))
        request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[data])
        answer = connection.request(request, 8)
        code: ErrorCode = answer.responses[0].partition_responses[0].error_code
        return code


def produce_values(bootstrap: str, topic: str, partition: int, values: list[bytes], timestamp_ms: int = 1) -> None:
    """Append the values as one batch; the n-th has the timestamp `timestamp_ms` + n."""
    builder = BatchBuilder(1 << 20)
    for number, value in enumerate(values):
        assert builder.append(None, value, [], timestamp_ms + number)
    assert produce_batch(bootstrap, topic, partition, bytes(builder.build())) is ErrorCode.NONE
