import asyncio

import pytest

from kbroker.client.client_config import AdminConfig
from kbroker.client.cluster import Cluster
from kbroker.client.errors import UnknownTopicOrPartitionError
from kbroker.client.offset_lookup import list_offsets, read_offsets
from kbroker.client.types import EARLIEST, OffsetAndTimestamp, TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.offsets import ListOffsetsResponse


@pytest.mark.slow
async def test_an_unknown_topic_is_an_error_at_once(bootstrap: str, topic: str) -> None:
    cluster = Cluster(AdminConfig.read({"bootstrap": bootstrap}))
    assert (await list_offsets(cluster, {TopicPartition(topic, 0): EARLIEST}))[TopicPartition(topic, 0)].offset == 0
    with pytest.raises(UnknownTopicOrPartitionError):
        await list_offsets(cluster, {TopicPartition(topic + "-not-there", 0): EARLIEST})
    await cluster.close()


async def test_offsets_that_are_found_are_not_waited_for(bootstrap: str, topic: str) -> None:
    cluster = Cluster(AdminConfig.read({"bootstrap": bootstrap, "retry_backoff_ms": 20_000}))
    key = TopicPartition(topic, 0)
    async with asyncio.timeout(15):  # less than the pause before a second attempt
        assert (await list_offsets(cluster, {key: EARLIEST}))[key].offset == 0
    await cluster.close()


def test_of_what_one_leader_answers_each_partition_has_its_offset_or_its_error() -> None:
    one = ListOffsetsResponse.ListOffsetsPartitionResponse
    partitions = [
        one(partition_index=0, error_code=ErrorCode.NONE, offset=7),
        one(partition_index=1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ]
    topics = [ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=partitions)]
    found: dict[TopicPartition, OffsetAndTimestamp] = {}
    refused = read_offsets(ListOffsetsResponse(topics=topics), 3, found)
    assert {key: each.offset for key, each in found.items()} == {TopicPartition("t", 0): 7}
    assert {key: each.code for key, each in refused.items()} == {
        TopicPartition("t", 1): ErrorCode.NOT_LEADER_OR_FOLLOWER
    }
