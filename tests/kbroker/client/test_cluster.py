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
