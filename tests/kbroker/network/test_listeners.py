"""Listeners that are opened, moved and closed while a server runs."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kbroker.config.broker_config import BrokerConfig, resolve_broker_config
from kbroker.dev.free_ports import free_ports
from kbroker.network.dispatch import PENDING
from kbroker.network.limits import server_limits
from kbroker.network.listeners import Listeners, warn_of_strangers
from kbroker.network.logins import Logins
from kbroker.network.server import Listener, Server
from kbroker.protocol.config_def import ConfigError
from kbroker.security.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE
from kbroker.security.security_protocol import SecurityProtocol
from tests.fixtures.certificates import Authority, Identity
from tests.kbroker.network.serving import Client, Stub, connected, echo, frame
from tests.kbroker.network.test_jwks import OLD, document
from tests.kbroker.network.tls_serving import tls_client

HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
PLAIN = {
    "listener.name.clients.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_ann="hunter2";',
}


def configuration(*listeners: str, **more: str) -> BrokerConfig:
    """PLAINTEXT and these; the keys of a listener CLIENTS are set, there or not."""
    return resolve_broker_config(
        {
            "listeners": ",".join(("PLAINTEXT://127.0.0.1:0", *listeners)),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MORE:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,SSL:SSL",
            **PLAIN,
            **{key.replace("__", "."): value for key, value in more.items()},
        }
    )


@asynccontextmanager
async def running(config: BrokerConfig, dispatch: Stub = echo) -> AsyncIterator[tuple[Server, Listeners, Logins]]:
    nowhere: Any = None
    server, logins, listeners = Server(dispatch, server_limits(config)), Logins(config, nowhere, bool), Listeners()
    listeners.check_start(config)
    await listeners.open(server, logins, config)
    server.start()
    try:
        yield server, listeners, logins
    finally:
        await listeners.discard()
        await logins.close()
        await server.stop(drain_timeout=0.2)


async def change(listeners: Listeners, config: BrokerConfig) -> None:
    await listeners.prepare(config)
    await listeners.take(config)
    await listeners.discard()


async def is_served(client: Client) -> bool:
    client.send(frame(b"hello"))
    return await client.receive() == b"hello"


async def test_a_listener_comes_and_goes_and_others_hear_nothing_of_it() -> None:
    async with running(configuration()) as (server, listeners, _), connected(server) as old:
        assert await is_served(old)
        await change(listeners, configuration("MORE://127.0.0.1:0"))
        async with connected(server, "MORE") as client:
            assert await is_served(client)
            port = server.ports["MORE"]
            await change(listeners, configuration())
            assert await client.is_closed()
        assert list(server.ports) == ["PLAINTEXT"]
        with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", port), 10):
            pass
        assert await is_served(old)


async def test_clients_that_come_before_a_listener_is_taken_are_served_then() -> None:
    (port,) = free_ports(1)
    config = configuration(f"MORE://127.0.0.1:{port}")
    async with running(configuration()) as (server, listeners, _):
        await listeners.prepare(config)
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        client.send(frame(b"early"))
        await listeners.take(config)
        assert await client.receive() == b"early"
        await client.close()
        assert server.ports["MORE"] == port


async def test_a_port_in_use_is_told_and_nothing_else_is_opened() -> None:
    (free,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = configuration(f"MORE://127.0.0.1:{free}", f"CLIENTS://127.0.0.1:{port}")
        async with running(configuration()) as (server, listeners, _):
            with pytest.raises(ConfigError, match=f"cannot listen on CLIENTS://127.0.0.1:{port}: the port is in use"):
                await listeners.prepare(config)
            await listeners.take(configuration())
            assert list(server.ports) == ["PLAINTEXT"]
            socket.create_server(("127.0.0.1", free)).close()


async def test_what_is_not_wanted_after_all_is_closed() -> None:
    (port,) = free_ports(1)
    async with running(configuration()) as (server, listeners, _):
        await listeners.prepare(configuration(f"MORE://127.0.0.1:{port}"))
        await listeners.discard()
        socket.create_server(("127.0.0.1", port)).close()
        assert list(server.ports) == ["PLAINTEXT"]


async def test_what_is_prepared_anew_lets_in_whom_the_newer_configuration_does() -> None:
    first, second = free_ports(2)
    changed = {"listener.name.clients.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_bob="hunter3";'}
    async with running(configuration()) as (server, listeners, _):
        await listeners.prepare(configuration(f"CLIENTS://127.0.0.1:{first}"))
        await listeners.prepare(configuration(f"CLIENTS://127.0.0.1:{second}"))
        socket.create_server(("127.0.0.1", first)).close()
        config = configuration(f"CLIENTS://127.0.0.1:{second}", **changed)
        await listeners.prepare(config)
        await listeners.take(config)
        login = server.sasl["CLIENTS"].mechanisms["PLAIN"].begin()
        login.step(b"\0bob\0hunter3")
        assert login.identity is not None
        async with connected(server, "CLIENTS") as client:
            client.send(frame(b"not logged in"))
            assert await client.is_closed()


async def test_what_was_prepared_is_closed_where_the_next_change_cannot_be() -> None:
    first, second = free_ports(2)
    async with running(configuration()) as (server, listeners, _):
        await listeners.prepare(configuration(f"CLIENTS://127.0.0.1:{first}"))
        with socket.create_server(("127.0.0.1", second)), pytest.raises(ConfigError, match="the port is in use"):
            await listeners.prepare(configuration(f"CLIENTS://127.0.0.1:{first}", f"MORE://127.0.0.1:{second}"))
        socket.create_server(("127.0.0.1", first)).close()
        await listeners.take(configuration(f"CLIENTS://127.0.0.1:{first}"))
        assert list(server.ports) == ["PLAINTEXT"]


async def test_a_name_that_no_host_has_is_told() -> None:
    async with running(configuration()) as (_, listeners, _):
        with pytest.raises(ConfigError, match=r"cannot listen on MORE://a\.\.b:1: no host has such a name"):
            await listeners.prepare(configuration("MORE://a..b:1"))


async def test_a_port_that_another_listener_still_has_is_told_with_what_to_do() -> None:
    (port,) = free_ports(1)
    async with running(configuration(f"MORE://127.0.0.1:{port}")) as (_, listeners, _):
        with pytest.raises(ConfigError, match="listener MORE has it: take that one away first, in a change of its own"):
            await listeners.prepare(configuration(f"CLIENTS://127.0.0.1:{port}"))


async def test_a_server_that_has_stopped_opens_no_listener() -> None:
    (port,) = free_ports(1)
    config = configuration(f"MORE://127.0.0.1:{port}")
    async with running(configuration()) as (server, listeners, _):
        await listeners.prepare(config)
        await server.stop()
        await listeners.take(config)
        socket.create_server(("127.0.0.1", port)).close()
        assert "MORE" not in server.ports


async def test_a_listener_that_could_not_accept_keeps_no_other_from_it_once_it_is_gone() -> None:
    async with running(configuration("MORE://127.0.0.1:0")) as (server, listeners, _):
        server._wait_for_resources("MORE", "of a test")
        await change(listeners, configuration())
        assert not server._accept_failed


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
async def test_a_listener_is_never_served_without_what_protects_it(protocol: str) -> None:
    listener = Listener("CLIENTS", "127.0.0.1", 0, SecurityProtocol(protocol))
    server = Server(echo)
    server.bind([listener])
    with pytest.raises(ConfigError, match="listener CLIENTS is not served: it has no"):
        server.start()
    await server.stop()
    async with running(configuration()) as (started, _, _):
        with pytest.raises(ConfigError, match="listener CLIENTS is not served: it has no"):
            started.bind([listener])


async def test_nobody_is_served_where_logins_have_gone_from_under_a_listener() -> None:
    async with running(configuration("CLIENTS://127.0.0.1:0")) as (server, _, _):
        server.sasl = {}
        async with connected(server, "CLIENTS") as client:
            client.send(frame(b"not logged in"))
            assert await client.is_closed()


async def test_a_listener_moves_to_another_port() -> None:
    first, second = free_ports(2)
    async with running(configuration(f"CLIENTS://127.0.0.1:{first}")) as (server, listeners, _):
        login = server.sasl["CLIENTS"]
        async with connected(server, "CLIENTS") as client:
            await change(listeners, configuration(f"CLIENTS://127.0.0.1:{second}"))
            assert await client.is_closed()
        assert server.ports["CLIENTS"] == second
        assert server.sasl["CLIENTS"] is login, "who may come in has not changed"
        socket.create_server(("127.0.0.1", first)).close()


async def test_a_new_listener_lets_in_who_logs_in_and_is_limited_from_its_first_client_on() -> None:
    more = {"listener.name.clients.max.connections": "1", "max.connections": "70"}
    config = configuration("CLIENTS://127.0.0.1:0", **more)
    async with running(configuration()) as (server, listeners, _):
        before = server.limits.broker_listeners
        await change(listeners, config)
        assert list(server.sasl["CLIENTS"].mechanisms) == ["PLAIN"]
        assert server.limits.listener_max_connections == {"CLIENTS": 1}
        own = frozenset({"PLAINTEXT"})
        assert (before, server.limits.broker_listeners) == (None, own), "brokers have a listener of their own now"
        async with connected(server, "CLIENTS") as client:
            client.send(frame(b"not logged in"))
            assert await client.is_closed()
        await change(listeners, configuration())
        assert not server.sasl


async def test_a_listener_with_tls_has_its_stores_checked_and_shakes_hands(
    authority: Authority, broker_identity: Identity
) -> None:
    stores = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(broker_identity.file)}
    async with running(configuration()) as (server, listeners, _):
        with pytest.raises(ConfigError, match="listener SSL"):
            await listeners.prepare(
                configuration("SSL://127.0.0.1:0", **stores, **{"listener.name.ssl.ssl.keystore.location": "/nowhere"})
            )
        assert not server.tls
        await change(listeners, configuration("SSL://127.0.0.1:0", **stores))
        async with tls_client(server, authority) as client:
            assert await client.ask(b"hello") == b"hello"
            await change(listeners, configuration())
            assert await client.reader.read() == b""
        assert not server.tls


async def test_who_waits_for_an_answer_gets_it_before_the_listener_is_gone() -> None:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def dispatch(connection: Any, request: memoryview) -> Any:
        answer.set_result(connection)
        return PENDING

    async with running(configuration("MORE://127.0.0.1:0"), dispatch) as (server, listeners, _):
        async with connected(server, "MORE") as client:
            client.send(frame(b"slow"))
            connection = await answer
            await change(listeners, configuration())
            connection.answer([frame(b"at last")])
            assert await client.receive() == b"at last"
            assert await client.is_closed()


async def test_where_signed_tokens_keys_are_is_no_longer_asked_for_a_listener_that_has_gone(tmp_path: Any) -> None:
    keys = tmp_path / "keys"
    keys.write_text(document(OLD))
    prefix = "listener.name.clients.oauthbearer"
    more = {
        "listener.name.clients.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{prefix}.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
        f"{prefix}.sasl.server.callback.handler.class": HANDLER,
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
    }
    config = configuration("CLIENTS://127.0.0.1:0", **more)
    async with running(configuration(**more)) as (_, listeners, logins):
        await listeners.prepare(config)
        await listeners.discard()
        assert not logins._jwks
        await change(listeners, config)
        assert list(logins._jwks) == ["CLIENTS"]
        await change(listeners, configuration(**more))
        assert not logins._jwks
        await listeners.prepare(config)
        keys.unlink()
        await change(listeners, config)  # as it was prepared already: nothing is asked for twice
        assert list(logins._jwks) == ["CLIENTS"]
        await change(listeners, configuration(**more))
        with pytest.raises(ConfigError, match="the keys cannot be read"):
            await listeners.prepare(config)
        assert not logins._jwks


async def test_a_new_listener_that_lets_in_everybody_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async with running(configuration()) as (_, listeners, _):
        with caplog.at_level(logging.WARNING):
            await change(listeners, configuration("MORE://127.0.0.1:0"))
            assert not caplog.text
            await change(listeners, configuration("MORE://0.0.0.0:0"))
        assert "whoever reaches MORE://0.0.0.0:0 comes in without a login" in caplog.text


async def test_what_lets_in_everybody_is_warned_of_as_it_is_opened_at_start(caplog: pytest.LogCaptureFixture) -> None:
    """The configuration may say more than server.properties: what ZooKeeper holds."""
    async with running(configuration("MORE://0.0.0.0:0")):
        assert "whoever reaches MORE://0.0.0.0:0 comes in without a login" in caplog.text


async def test_a_new_listener_that_believes_tokens_that_nobody_has_signed_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    more = {
        "listener.name.clients.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.clients.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
    }
    async with running(configuration(**more)) as (_, listeners, _):
        with caplog.at_level(logging.WARNING):
            await change(listeners, configuration("CLIENTS://127.0.0.1:0", **more))
            await change(listeners, configuration(**more))
            assert not caplog.text
            await change(listeners, configuration("CLIENTS://0.0.0.0:0", **more))
        assert "whoever reaches CLIENTS://0.0.0.0:0 is believed to be whom its token says" in caplog.text
        warn_of_strangers(configuration("CLIENTS://0.0.0.0:0"))
        assert len(caplog.records) == 1
