"""Listeners as brokers are found, links by name, and what is held back."""

import pytest

from kbroker.client.connection import Connection
from kbroker.protocol.frame import FrameError
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.verify.proxy import server as server_module
from kbroker.verify.proxy.faults import Refuse, Where
from kbroker.verify.proxy.server import Server
from tests.kbroker.verify.proxy.upstream import encoded, metadata, upstream

MAX_FRAME = 1 << 20
TIMEOUT = 30.0


async def ask_once(host: str, port: int) -> None:
    connection = await Connection.open(host, port, timeout=TIMEOUT)
    try:
        await connection.request(MetadataRequest(topics=[]), 1, timeout=TIMEOUT)
    finally:
        await connection.close()


async def test_a_broker_that_an_answer_names_has_a_listener_at_once() -> None:
    server = Server("127.0.0.1", MAX_FRAME)
    async with (
        upstream(lambda frame: encoded(frame, metadata((2, second)))) as second,
        upstream(lambda frame: encoded(frame, metadata((1, first), (2, second)))) as first,
    ):
        try:
            host, port = server.listen_for(("127.0.0.1", first)).address
            for client, expected in (("one", [1, 2]), ("two", [2])):
                connection = await Connection.open(host, port, client_id=client, timeout=TIMEOUT)
                answer = await connection.request(MetadataRequest(topics=[]), 1, timeout=TIMEOUT)
                assert [each.node_id for each in answer.brokers] == expected
                assert not {first, second} & {each.port for each in answer.brokers}
                assert (client, expected[0]) in [(name.client_id, name.broker) for name in server.links()]
                await connection.close()
                host, port = answer.brokers[-1].host, answer.brokers[-1].port
            assert sorted(broker or 0 for broker, _ in server.addresses()) == [1, 2]
        finally:
            await server.close()


async def test_an_address_has_one_listener_whatever_its_broker() -> None:
    server = Server("127.0.0.1", MAX_FRAME)
    try:
        listener = server.listen_for(("broker", 9092))
        assert server.listen_for(("broker", 9092), 1) is listener
        assert server.listen_for(("broker", 9092), 2).broker == 2
        assert server.listen_for(("broker", 9093), 2).address != listener.address
    finally:
        await server.close()


async def test_there_are_no_more_listeners_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MOST_LISTENERS", 2)
    server = Server("127.0.0.1", MAX_FRAME)
    try:
        for port in (1, 2, 2):
            server.listen_for(("broker", port))
        with pytest.raises(FrameError, match="more than 2 brokers"):
            server.listen_for(("broker", 3))
    finally:
        await server.close()


async def test_there_are_no_more_links_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MOST_LINKS", 1)
    server = Server("127.0.0.1", MAX_FRAME)
    async with upstream(lambda frame: encoded(frame, metadata())) as port:
        host, own = server.listen_for(("127.0.0.1", port)).address
        first = await Connection.open(host, own, timeout=TIMEOUT)
        try:
            await first.request(MetadataRequest(topics=[]), 1, timeout=TIMEOUT)
            with pytest.raises(ConnectionError):
                await ask_once(host, own)
        finally:
            await first.close()
            await server.close()


async def test_refusing_ends_the_links_it_concerns_at_once() -> None:
    server = Server("127.0.0.1", MAX_FRAME)
    async with upstream(lambda frame: encoded(frame, metadata())) as port:
        host, own = server.listen_for(("127.0.0.1", port)).address
        connections = []
        for client in ("one", "other"):
            connections.append(await Connection.open(host, own, client_id=client, timeout=TIMEOUT))
            await connections[-1].request(MetadataRequest(topics=[]), 1, timeout=TIMEOUT)
        await server.inject(Refuse(where=Where(client_id="one")))
        assert [name.client_id for name in server.links()] == ["other"]
        await connections[1].request(MetadataRequest(topics=[]), 1, timeout=TIMEOUT)
        for connection in connections:
            await connection.close()
        await server.close()
