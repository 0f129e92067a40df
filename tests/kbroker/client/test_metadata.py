import pytest

from kbroker.client.errors import LeaderNotAvailableError, UnknownTopicOrPartitionError
from kbroker.client.metadata import MOST_PARTITIONS, ClusterMetadata
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.metadata import MetadataResponse


def answer(leader: int, epoch: int, partitions: int = 1, topic_id: bytes = bytes(16)) -> MetadataResponse:
    described = [
        MetadataResponse.MetadataResponsePartition(
            error_code=ErrorCode.NONE,
            partition_index=partition,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=[1],
            isr_nodes=[1],
        )
        for partition in range(partitions)
    ]
    topic = MetadataResponse.MetadataResponseTopic(
        error_code=ErrorCode.NONE, name="t", topic_id=topic_id, partitions=described
    )
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


def test_numbers_that_no_topic_has_are_passed_over() -> None:
    metadata = ClusterMetadata()
    told = answer(1, 5, partitions=4)
    for partition, number in zip(told.topics[0].partitions, (-1, 7, MOST_PARTITIONS, (1 << 31) - 1), strict=True):
        partition.partition_index = number
    metadata.update(told, 0.0)
    assert metadata.led_partitions("t") == [7]


def test_a_partition_that_is_not_told_of_counts_and_keys_stay_where_they_are() -> None:
    metadata = ClusterMetadata()
    told = answer(1, 5, partitions=3)
    told.topics[0].partitions[1].partition_index = 3
    metadata.update(told, 0.0)
    assert metadata.led_partitions("t") == [0, 2, 3]
    assert metadata.topics["t"].count == 4


def test_a_topic_keeps_its_partitions_until_it_is_made_anew() -> None:
    """A broker that has just started may not have heard of all; keys must not go elsewhere meanwhile."""
    metadata = ClusterMetadata()
    metadata.update(answer(1, 5, partitions=3, topic_id=b"1" * 16), 0.0)
    metadata.update(answer(2, 6, partitions=2, topic_id=b"1" * 16), 1.0)
    assert sorted(metadata.topics["t"].partitions) == [0, 1, 2]
    assert metadata.led_partitions("t") == [0, 1]
    metadata.update(answer(2, 6, partitions=2, topic_id=b"2" * 16), 2.0)
    assert sorted(metadata.topics["t"].partitions) == [0, 1]
