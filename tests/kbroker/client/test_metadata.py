import pytest

from kbroker.client.errors import LeaderNotAvailableError, UnknownTopicOrPartitionError
from kbroker.client.metadata import ClusterMetadata
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.metadata import MetadataResponse


def answer(leader: int, epoch: int) -> MetadataResponse:
    partition = MetadataResponse.MetadataResponsePartition(
        error_code=ErrorCode.NONE,
        partition_index=0,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[1],
        isr_nodes=[1],
    )
    topic = MetadataResponse.MetadataResponseTopic(error_code=ErrorCode.NONE, name="t", partitions=[partition])
    brokers = [MetadataResponse.MetadataResponseBroker(node_id=i, host="h", port=i) for i in (1, 2)]
    return MetadataResponse(brokers=brokers, topics=[topic])


def test_an_older_leader_epoch_is_not_believed() -> None:
    metadata = ClusterMetadata()
    metadata.update(answer(1, 5), 0.0)
    metadata.update(answer(2, 4), 1.0)
    assert metadata.require("t", 0).leader == 1
    assert metadata.new_leader("t", 0, 2, 6)
    assert not metadata.new_leader("t", 0, 1, 5)
    assert metadata.require("t", 0).leader == 2


def test_what_is_missing_is_named() -> None:
    metadata = ClusterMetadata()
    metadata.update(answer(-1, 5), 0.0)
    with pytest.raises(LeaderNotAvailableError):
        metadata.require("t", 0)
    with pytest.raises(UnknownTopicOrPartitionError, match="has 1 partitions"):
        metadata.require("t", 1)
