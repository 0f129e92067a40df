"""The clients' limits in ZooKeeper."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.cluster import client_quotas
from kbroker.cluster.client_quotas import Place, QuotaKeeper, addresses_of, entity_at, ip_place, place_of
from kbroker.config.broker_config import read_broker_config
from kbroker.config.dynamic_config import DynamicConfig
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.security.quotas import ANY, PRODUCED, Entity
from tests.fixtures.zookeeper import ZooKeeperAddress


@pytest.mark.parametrize(
    ("entity", "place"),
    [
        (Entity("CN=a b,C=DE", None), Place("users", "CN%3Da%20b%2CC%3DDE")),
        (Entity("ann", "my app"), Place("users", "ann/clients/my%20app")),
        (Entity(ANY, ANY), Place("users", "<default>/clients/<default>")),
        (Entity(None, ANY), Place("clients", "<default>")),
        (Entity(None, "a/b"), Place("clients", "a%2Fb")),
    ],
)
def test_entities_have_kafkas_places(entity: Entity, place: Place) -> None:
    assert place_of(entity) == place
    assert entity_at(place) == entity


@pytest.fixture
async def session(zookeeper: ZooKeeperAddress) -> AsyncIterator[ZooKeeper]:
    made = ZooKeeper(zookeeper.connect_string)
    await made.connect()
    await made.ensure_top_level_paths()
    yield made
    await made.close()


async def test_limits_are_read_at_start_and_followed(zookeeper: ZooKeeperAddress, session: ZooKeeper) -> None:
    config = read_broker_config({"broker.id": "1", "zookeeper.connect": zookeeper.connect_string})
    for path, text in (
        ("users/ann", '{"version":1,"config":{"producer_byte_rate":"1024","SCRAM-SHA-256":"x"}}'),
        ("users/ann/clients/app", '{"version":1,"config":{"producer_byte_rate":"10"}}'),
        ("ips/10.0.0.1", '{"version":1,"config":{"connection_creation_rate":"7"}}'),
    ):
        await session.create_recursive(f"/config/{path}", text.encode())
    configs = DynamicConfig(config, session, 1)
    keeper = QuotaKeeper(config, session)
    await keeper.load(configs)
    expected = {Entity("ann", None): {PRODUCED: 1024.0}, Entity("ann", "app"): {PRODUCED: 10.0}}
    assert keeper.quotas.entities() == expected
    assert keeper.ips == keeper.ip_rates == {"10.0.0.1": 7.0}
    await configs.watch()
    await session.set("/config/users/ann", b'{"version":1,"config":{}}')
    await session.notify_config_change("users", "ann")
    await session.set("/config/ips/10.0.0.1", b'{"version":1,"config":{}}')
    await session.notify_config_change(*ip_place("10.0.0.1"))
    async with asyncio.timeout(20):
        while len(keeper.quotas.entities()) > 1 or keeper.ips or keeper.ip_rates:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_addresses_are_told_as_connections_have_them() -> None:
    found = {name: await addresses_of(name) for name in ("0:0:0:0:0:0:0:1", "::ffff:10.0.0.1", "10.0.0.1", ANY)}
    assert list(found.values()) == [["::1"], ["10.0.0.1"], ["10.0.0.1"], [ANY]]
    assert "127.0.0.1" in await addresses_of("localhost")
    assert await addresses_of("no host.invalid") == await addresses_of("nul\0") == []


async def test_of_two_names_of_one_address_each_has_its_limit_as_long_as_it_is_there(
    zookeeper: ZooKeeperAddress, session: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    config = read_broker_config({"broker.id": "1", "zookeeper.connect": zookeeper.connect_string})
    await session.elect_controller(1, 5)
    keeper = QuotaKeeper(config, session)
    key = "connection_creation_rate"
    await keeper.change(ip_place("127.0.0.1"), {key: "7"})
    await keeper.change(ip_place("localhost"), {key: "5"})
    assert keeper.ip_rates["127.0.0.1"] == 5.0
    await keeper.change(ip_place("localhost"), {key: None})
    assert keeper.ip_rates == {"127.0.0.1": 7.0}
    await keeper.change(ip_place("no-host.invalid"), {key: "5"})
    assert "no-host.invalid holds for nobody" in caplog.text


async def test_the_limits_that_two_brokers_set_at_once_are_both_kept(
    zookeeper: ZooKeeperAddress, session: ZooKeeper
) -> None:
    config = read_broker_config({"broker.id": "1", "zookeeper.connect": zookeeper.connect_string})
    await session.elect_controller(1, 5)
    other = ZooKeeper(zookeeper.connect_string)
    await other.connect()
    try:
        place = place_of(Entity("ann", None))
        keepers = [QuotaKeeper(config, session), QuotaKeeper(config, other)]
        keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
        await asyncio.gather(*(keepers[at % 2].change(place, {key: "10"}) for at, key in enumerate(keys)))
        assert await session.read_config(*place) == dict.fromkeys(keys, "10")
        for keeper in keepers:
            await keeper.refresh(place)
            assert len(keeper.quotas.entities()[Entity("ann", None)]) == len(keys)
    finally:
        await other.close()


async def test_a_resolver_that_hangs_holds_up_no_other_limit_and_no_other_work(
    zookeeper: ZooKeeperAddress, session: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = read_broker_config({"broker.id": "1", "zookeeper.connect": zookeeper.connect_string})
    await session.elect_controller(1, 5)
    keeper = QuotaKeeper(config, session)
    let_go = threading.Event()

    def hang(name: str, *_: Any, **__: Any) -> Any:
        assert let_go.wait(60)
        raise OSError(name)

    resolver = SimpleNamespace(getaddrinfo=hang, SOCK_STREAM=socket.SOCK_STREAM)
    monkeypatch.setattr(client_quotas, "socket", resolver)
    monkeypatch.setattr(client_quotas, "LONGEST_LOOKUP_S", 60.0)
    try:
        slow = [
            asyncio.ensure_future(keeper.change(ip_place(f"host-{number}"), {"connection_creation_rate": "1"}))
            for number in range(40)  # more than a pool of threads has
        ]
        while len(keeper.ips) < len(slow):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        ann = place_of(Entity("ann", None))
        await keeper.change(ann, {"producer_byte_rate": "10"})
        await keeper.change(ip_place("10.0.0.1"), {"connection_creation_rate": "7"})
        await keeper.refresh(ip_place("host-1"))
        assert await asyncio.to_thread(lambda: "a password") == "a password"
        assert keeper.quotas.entities()[Entity("ann", None)] == {"producer_byte_rate": 10.0}
        assert keeper.ip_rates == {"10.0.0.1": 7.0}
        assert not any(each.done() for each in slow)
    finally:
        let_go.set()
    await asyncio.gather(*slow)
