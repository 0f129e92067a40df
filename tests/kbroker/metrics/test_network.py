"""Connections, the loop, the threads beside it."""

import asyncio
import socket
import time
from collections import Counter, defaultdict
from types import SimpleNamespace

import pytest

from kbroker.handlers.api_versions import LONGEST_NAME
from kbroker.metrics import network
from kbroker.network import large_requests
from kbroker.network.authentication import LoginCounts
from kbroker.network.connection import Connection
from kbroker.network.dispatch import Dispatcher
from kbroker.network.limits import FETCH
from kbroker.network.watchdog import Watchdog
from kbroker.protocol.distribution import Distribution
from kbroker.protocol.headers import encode_request
from kbroker.protocol.messages.api_versions import ApiVersionsRequest
from tests.fixtures.certificates import Authority, Identity
from tests.fixtures.data_path import Played
from tests.kbroker.metrics.scraping import collected, sources_of
from tests.kbroker.network.serving import connected, echo, frame, serving, until
from tests.kbroker.network.test_authentication import WRONG, peer, sasl_server
from tests.kbroker.network.test_handshakes import dial
from tests.kbroker.network.tls_serving import tls_client, tls_listener, tls_serving
from tests.protocol.frames import joined

SOCKETS = "kafka_server_socket_server_metrics_"


def zookeeper(is_connected: bool = True) -> SimpleNamespace:
    return SimpleNamespace(
        latency=Distribution(), events=Counter(Expired=2), is_connected=is_connected, refused_logins=3
    )


def idle_server(**ports: int) -> SimpleNamespace:
    """One that nobody has come to; `ports`: of its listeners."""
    return SimpleNamespace(
        connections={},
        ports=ports,
        accepted=Counter(),
        closed=Counter(),
        logins=defaultdict(LoginCounts),
        bytes_in_flight=0,
        buffers=SimpleNamespace(kept_bytes=0),
        waiting=0,
        unread=SimpleNamespace(count=0, bytes=0),
    )


async def test_connections_are_counted_by_their_listener(played: Played) -> None:
    async with serving(Dispatcher(played.services)) as server:
        sources = sources_of(played, server=server, zookeeper=zookeeper(), workers=played.replicas.workers)
        async with connected(server), connected(server):
            await until(lambda: len(server.connections) == 2)
            found = collected(network.collect, sources)
        assert found.value(SOCKETS + "connection_count", listener="PLAINTEXT", networkProcessor="0") == 2
        assert found.value(SOCKETS + "connection_count", listener="BROKERS") == 0
        assert found.value(SOCKETS + "connections_software", listener="PLAINTEXT") == 2
        await until(lambda: not server.connections)
        found = collected(network.collect, sources)
        assert found.value(SOCKETS + "connection_creation_total", listener="PLAINTEXT") == 2


async def test_logins_are_counted_by_their_listener_and_by_how_they_ended(played: Played) -> None:
    names = ("successful_authentication", "failed_authentication", "connection_close")
    again = ("successful_reauthentication", "failed_reauthentication")
    async with sasl_server(max_reauth_ms=60_000) as server:
        sources = sources_of(played, server=server, zookeeper=zookeeper(), workers=played.replicas.workers)

        def told() -> list[float]:
            found = collected(network.collect, sources)
            labels = {"listener": "CLIENTS", "networkProcessor": "0"}
            return [found.value(f"{SOCKETS}{name}_total", **labels) for name in (*names, *again)]

        assert told() == [0, 0, 0, 0, 0], "a rate sees the first one"
        async with peer(server) as client:
            await client.log_in()
            await client.log_in()
            assert told() == [1, 0, 0, 1, 0]
        for _ in range(2):
            async with peer(server) as stranger:
                await stranger.handshake()
                await stranger.token(WRONG)
        await until(lambda: not server.connections)
        assert told() == [1, 2, 3, 1, 0]
        async with peer(server) as forgetful:
            await forgetful.log_in()
            await forgetful.handshake()
            await forgetful.token(WRONG)
        assert told()[:2] == [2, 2]
        assert told()[3:] == [1, 1]


async def test_tls_handshakes_are_logins_where_there_are_no_others(
    played: Played, authority: Authority, broker_identity: Identity
) -> None:
    async with tls_serving(echo, tls_listener(broker_identity, authority)) as server:
        sources = sources_of(played, server=server, zookeeper=zookeeper(), workers=played.replicas.workers)
        async with tls_client(server, authority):
            pass
        for data in (b"no TLS", b""):
            sock = await dial(server, data)
            await until(lambda: server.closed["SSL"] + server.handshakes_on("SSL").count >= 2)
            sock.close()
        await until(lambda: server.closed["SSL"] == 3)
        found = collected(network.collect, sources)
    assert found.value(SOCKETS + "successful_authentication_total", listener="SSL") == 1
    assert found.value(SOCKETS + "failed_authentication_total", listener="SSL") == 1, "who only goes has failed nothing"


async def test_clients_that_say_what_they_like_fill_no_metrics(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "MOST_SOFTWARE", 1)
    async with serving(Dispatcher(played.services)) as server:
        sources = sources_of(played, server=server, zookeeper=zookeeper(), workers=played.replicas.workers)
        async with connected(server), connected(server), connected(server) as first, connected(server) as second:
            for client, name in ((first, "a" * 30_000), (second, "b")):
                asked = ApiVersionsRequest(client_software_name=name, client_software_version="1" * 30_000)
                client.send(joined(encode_request(asked, 3, 1, "c")))
                await client.receive()
            await until(lambda: len(server.connections) == 4)
            found = collected(network.collect, sources)
            names = {each.client_software_name for each in server.connections}
            assert names == {"unknown", "a" * LONGEST_NAME, "b"}
    software = SOCKETS + "connections_software"
    assert found.value(software, clientSoftwareName="unknown", clientSoftwareVersion="unknown") == 2
    assert found.value(software, clientSoftwareName="(others)", listener="PLAINTEXT") == 2
    assert len(found.find(software)) == 2


async def test_zookeeper_s_session_is_told(played: Played) -> None:
    async with serving() as server:
        sources = sources_of(played, server=server, zookeeper=zookeeper(False), workers=played.replicas.workers)
        found = collected(network.collect, sources)
    assert found.value("kafka_server_sessionexpirelistener_zookeeperexpires_total") == 2
    assert found.value("kafka_server_sessionexpirelistener_zookeeperauthfailures_total") == 3
    assert found.value("kbroker_zookeeper_session_state", state="CONNECTED") == 0


async def test_requests_and_answers_that_wait_are_counted(played: Played) -> None:
    answer = bytes(8 << 20)

    def large_answer(connection: Connection, request: memoryview) -> list[bytes]:
        return [len(answer).to_bytes(4, "big"), answer]

    async with serving(large_answer, queued_max_bytes=1) as server:
        silent = socket.create_connection(("127.0.0.1", server.ports["PLAINTEXT"]), timeout=20)
        dispatcher = Dispatcher(played.services)
        sources = sources_of(
            played, server=server, zookeeper=zookeeper(), workers=played.replicas.workers, dispatcher=dispatcher
        )
        silent.sendall(frame(b"one"))
        await until(lambda: server.unread.count == 1)
        async with connected(server) as later:
            later.send(frame(b"two"))
            await until(lambda: server.waiting == 1)
            large = dispatcher._lines.line_of(FETCH, 0, takes_brokers=False)
            places = [await large.enter() for _ in range(large_requests.MOST_AT_WORK)]
            line = [asyncio.ensure_future(large.enter()) for _ in range(2)]
            await until(lambda: dispatcher.waiting == 2)
            found = collected(network.collect, sources)
            assert found.value("kafka_network_requestchannel_requestqueuesize") == 3
            assert found.value("kafka_network_requestchannel_responsequeuesize") == 1
            assert found.value("kbroker_unread_answer_bytes") == server.unread.bytes > 0
            for each in line:
                each.cancel()
            await asyncio.gather(*line, return_exceptions=True)
            assert dispatcher.waiting == 0
            for place in places:
                place.leave()
        silent.close()


def test_who_held_the_loop_up_is_told_and_for_how_long(played: Played) -> None:
    watchdog = Watchdog()

    async def hold_up() -> None:
        time.sleep(0.15)  # noqa: ASYNC251
        await asyncio.sleep(0.01)
        deadline = time.monotonic() + 20
        while not watchdog.by_name and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=watchdog.new_loop) as runner:
        runner.run(hold_up())
    watchdog.stop()
    server = idle_server()
    sources = sources_of(played, server=server, zookeeper=zookeeper(), workers=played.replicas.workers)
    sources.watchdog = watchdog
    found = collected(network.collect, sources)
    assert sum(found.find("kbroker_loop_stalls_total")) == watchdog.stalls >= 1
    assert found.value("kbroker_loop_stalled_seconds_total") >= 0.15
    turns = found.value("kbroker_loop_turn_seconds_count")
    assert found.value("kbroker_loop_turn_seconds_bucket", le="+Inf") == turns > 2
    assert found.value("kbroker_loop_turn_seconds_bucket", le="0.1") < turns
    assert found.value("kbroker_loop_turn_seconds_bucket", le="5.0") <= turns
    assert found.value("kbroker_loop_busy_seconds_total") >= 0.15
