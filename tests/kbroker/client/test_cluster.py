import asyncio

import pytest

from kbroker.client.client_config import AdminConfig
from kbroker.client.cluster import Cluster
from kbroker.client.errors import ClientClosed


async def test_the_bootstrap_list_is_tried_in_turn(bootstrap: str) -> None:
    cluster = Cluster(AdminConfig.read({"bootstrap": f"127.0.0.1:1,{bootstrap}"}))
    await cluster.refresh(None)
    assert await cluster.controller() in cluster.metadata.nodes
    await cluster.close()
    with pytest.raises(ClientClosed):
        await cluster.refresh(None)


async def test_without_any_broker_each_address_is_named() -> None:
    cluster = Cluster(AdminConfig.read({"bootstrap": "127.0.0.1:1,127.0.0.1:2"}))
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:1.*127\.0\.0\.1:2"):
        await cluster.refresh(None)
    await cluster.close()


async def test_whoever_begins_at_the_same_time_shares_one_connection(bootstrap: str) -> None:
    cluster = Cluster(AdminConfig.read({"bootstrap": bootstrap}))
    first, *others = await asyncio.gather(*(cluster.any_connection() for _ in range(5)))
    assert all(other is first for other in others)
    await asyncio.gather(*(cluster.refresh(None) for _ in range(5)))
    await cluster.close()
    assert first.is_closed
