import asyncio
import logging
import socket
from typing import Any

import pytest

from kbroker.client.client_config import AdminConfig
from kbroker.client.cluster import Cluster
from kbroker.client.connection import Connection
from kbroker.client.errors import ClientClosed, NotConnected
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kbroker.protocol.schema import Message
from tests.fixtures.brokers import MakeCluster


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


async def test_metadata_are_asked_of_the_broker_that_owes_the_fewest_answers(make_cluster: MakeCluster) -> None:
    brokers = make_cluster(2)
    cluster = Cluster(AdminConfig.read({"bootstrap": brokers.bootstrap}))
    await cluster.refresh(None)
    first, second = [await cluster.connection(node_id) for node_id in sorted(cluster.metadata.nodes)]
    assert await cluster.any_connection() is first
    hangs = brokers.broker(min(cluster.metadata.nodes))
    hangs.pause()
    try:
        unanswered = first.send(MetadataRequest(topics=[]), 1)
        assert await cluster.any_connection() is second
        await asyncio.wait_for(cluster.refresh(None), 25)
        assert not unanswered.done()
    finally:
        hangs.resume()
    await cluster.close()


async def test_no_broker_is_asked_for_metadata_twice_in_a_row_while_there_is_another(make_cluster: MakeCluster) -> None:
    """One that is cut off from the others would go on telling what was."""
    brokers = make_cluster(2)
    cluster = Cluster(AdminConfig.read({"bootstrap": brokers.bootstrap}))
    await cluster.refresh(None)
    first_id, second_id = sorted(cluster.metadata.nodes)
    first = await cluster.connection(first_id)
    await cluster.refresh(None)
    assert cluster._asked is first, "it alone is connected"
    await cluster.refresh(None)
    assert cluster._asked is cluster.open_connection(second_id)
    await cluster.refresh(None)
    assert cluster._asked is first
    await cluster.close()


async def test_who_waits_for_a_topic_waits_no_longer_than_told_though_no_broker_says_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="kbroker")
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        cluster = Cluster(AdminConfig.read({"bootstrap": address, "connect_timeout_ms": 60_000}))
        began = loop.time()
        with pytest.raises(TimeoutError, match=r"no broker has told of topic 'orders' within 200 ms"):
            await cluster.topic("orders", 200)
        assert loop.time() - began < 50, "not as long as connecting may take"
        await cluster.close()


async def test_metadata_that_cannot_be_had_are_a_warning_once_until_they_can(
    broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="kbroker")
    cluster = Cluster(AdminConfig.read({"bootstrap": "127.0.0.1:1"}))
    for again in (False, True):
        caplog.clear()
        asking = asyncio.create_task(cluster.topic("orders", 60_000))
        told: list[str] = []
        async with asyncio.timeout(30):
            while len(told) < 2:
                await asyncio.sleep(0.02)
                told = [record.levelname for record in caplog.records if "no new metadata" in record.getMessage()]
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert told[0] == ("INFO" if again else "WARNING")
        assert set(told[1:]) == {"INFO"}
    cluster.config = AdminConfig.read({"bootstrap": broker.bootstrap})
    await cluster.refresh(None)
    cluster.note_failure(OSError("away"))
    assert caplog.records[-1].levelname == "WARNING"
    await cluster.close()


@pytest.mark.parametrize("learns", [True, False])
async def test_a_broker_that_knows_nobody_is_not_believed_that_there_is_no_topic(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch, learns: bool
) -> None:
    """One of Kafka's that has just started answers before the controller has told it of brokers and topics."""
    own, asked = Connection.request, 0

    async def request(self: Connection, message: Message, *how: Any, **more: Any) -> Any:
        nonlocal asked
        asked += isinstance(message, MetadataRequest)
        if isinstance(message, MetadataRequest) and (asked <= 2 or not learns):
            return MetadataResponse(brokers=[], topics=[])
        return await own(self, message, *how, **more)

    monkeypatch.setattr(Connection, "request", request)
    limit_ms = 60_000 if learns else 200
    cluster = Cluster(AdminConfig.read({"bootstrap": bootstrap, "request_timeout_ms": limit_ms}))
    if learns:
        assert topic in await cluster.refresh(None)
        assert asked == 3
    else:
        with pytest.raises(NotConnected, match=rf"{bootstrap}: it knows of no broker"):
            await cluster.refresh(None)
    await cluster.close()
