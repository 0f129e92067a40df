import asyncio

import pytest

from kbroker.client.client_config import AdminConfig
from kbroker.client.cluster import Cluster
from kbroker.client.errors import NotConnected
from kbroker.client.group.commits import Commits
from kbroker.client.group.coordinator import Coordinator
from kbroker.client.types import TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.groups import HeartbeatRequest


async def test_the_coordinator_is_found_kept_and_asked(bootstrap: str, topic_name: str) -> None:
    cluster = Cluster(AdminConfig(bootstrap=bootstrap))
    try:
        coordinator = Coordinator(cluster, topic_name)
        found = await coordinator.find()
        assert coordinator.node_id == found
        assert await coordinator.version_for(HeartbeatRequest) == 4
        request = HeartbeatRequest(group_id=topic_name, generation_id=1, member_id="nobody")
        answer = await coordinator.ask(request, 10_000)
        assert answer.error_code is ErrorCode.UNKNOWN_MEMBER_ID
        coordinator.forget()
        assert await coordinator.find() == found
    finally:
        await cluster.close()


async def test_one_that_cannot_be_reached_is_looked_for_anew(bootstrap: str, topic_name: str) -> None:
    cluster = Cluster(AdminConfig(bootstrap=bootstrap))
    try:
        coordinator = Coordinator(cluster, topic_name)
        coordinator.node_id = 99
        with pytest.raises(NotConnected):
            await coordinator.version_for(HeartbeatRequest)
        assert await coordinator.version_for(HeartbeatRequest) == 4
        coordinator.node_id = 99
        key = TopicPartition(topic_name, 0)
        async with asyncio.timeout(20):
            assert await Commits(coordinator).committed([key], 10_000) == {key: None}
    finally:
        await cluster.close()


async def test_without_brokers_it_is_not_found_in_time() -> None:
    cluster = Cluster(AdminConfig(bootstrap="127.0.0.1:1"))
    with pytest.raises(ConnectionError):
        await Coordinator(cluster, "g").find(200)
    await cluster.close()
