import asyncio

import pytest

from kbroker.client.client_config import AdminConfig
from kbroker.client.cluster import Cluster
from kbroker.client.errors import UnknownTopicOrPartitionError
from kbroker.client.offset_lookup import list_offsets
from kbroker.client.types import EARLIEST, TopicPartition


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
