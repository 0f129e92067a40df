"""The clients' limits in ZooKeeper."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from kbroker.cluster import client_quotas, host_addresses
from kbroker.cluster.client_quotas import (
    MOST_LOOKUPS,
    Place,
    QuotaKeeper,
    addresses_of,
    entity_at,
    ip_place,
    place_of,
)
from kbroker.config.broker_config import read_broker_config
from kbroker.config.dynamic_config import DynamicConfig
from kbroker.controller.znode_operations import Create, Operation
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.security.quotas import ANY, PRODUCED, Entity
from tests.controller.sessions import tell_of_change
from tests.fixtures.zookeeper import ZooKeeperAddress
from tests.kbroker.network.serving import until


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
    await tell_of_change(session, "users", "ann")
    await session.set("/config/ips/10.0.0.1", b'{"version":1,"config":{}}')
    await tell_of_change(session, *ip_place("10.0.0.1"))
    async with asyncio.timeout(20):
        while len(keeper.quotas.entities()) > 1 or keeper.ips or keeper.ip_rates:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_thousands_of_limits_are_read_in_few_round_trips_and_told_in_one_line(
    zookeeper: ZooKeeperAddress, session: ZooKeeper, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = read_broker_config({"broker.id": "1", "zookeeper.connect": zookeeper.connect_string})
    many = 100
    operations: list[Operation] = []
    for number in range(many):
        rate = '{"version":1,"config":{"producer_byte_rate":"10"}}'
        for path, text in (
            (f"users/u{number}", rate),
            (f"users/u{number}/clients", None),
            (f"users/u{number}/clients/app", rate),
            (f"ips/10.0.0.{number}", '{"version":1,"config":{"connection_creation_rate":"7"}}'),
        ):
            operations.append(Create(f"/config/{path}", None if text is None else text.encode()))
    await session.multi(operations)
    keeper = QuotaKeeper(config, session)
    applied = Mock(wraps=keeper._apply)
    monkeypatch.setattr(keeper, "_apply", applied)
    before = sum(session.latency.counts)
    with caplog.at_level("INFO", client_quotas.__name__):
        await keeper.load(DynamicConfig(config, session, 1))
    assert (len(keeper.quotas.entities()), len(keeper.ip_rates)) == (2 * many, many)
    assert sum(session.latency.counts) - before < many // 4
    assert applied.call_count == 1
    assert caplog.messages == ["200 users and clients have limits, and connections from 100 addresses"]


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
    monkeypatch.setattr(host_addresses, "socket", resolver)
    monkeypatch.setattr(host_addresses, "LONGEST_LOOKUP_S", 60.0)
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


class Resolver:
    """Answers as it is told, each look-up by itself, in the order in which they come."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, asyncio.Future[list[str]]]] = []
        patched.setattr(client_quotas, "addresses_of", self._addresses_of)

    async def _addresses_of(self, name: str) -> list[str]:
        answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self.asked.append((name, answer))
        return await answer

    def answer(self, number: int, addresses: list[str]) -> None:
        self.asked[number][1].set_result(addresses)

    async def is_asked(self, times: int) -> None:
        await until(lambda: len(self.asked) >= times)


LIMITED = {"connection_creation_rate": "5"}


@pytest.fixture
def unread() -> QuotaKeeper:
    """It is told its limits, and reads none."""
    return QuotaKeeper(read_broker_config({"broker.id": "1", "zookeeper.connect": "none:1"}), None)  # type: ignore[arg-type]


async def first_look_up(unread: QuotaKeeper, resolver: Resolver) -> asyncio.Task[None]:
    """Of a host that has a limit; it waits for the resolver."""
    unread._take(ip_place("host"), LIMITED)
    await resolver.is_asked(1)
    return unread._look_ups["host"]


async def test_what_a_newer_look_up_has_found_is_not_lost_by_an_older_one_that_ends_later(
    unread: QuotaKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = Resolver(monkeypatch)
    older = await first_look_up(unread, resolver)
    unread._take(ip_place("host"), {"connection_creation_rate": "7"})
    await resolver.is_asked(2)
    resolver.answer(1, ["10.0.0.1"])
    await until(lambda: unread.ip_rates == {"10.0.0.1": 7.0})
    resolver.answer(0, [])
    await older
    assert unread.ip_rates == {"10.0.0.1": 7.0}
    assert not unread._look_ups


async def test_who_sets_a_hosts_limit_is_answered_once_it_holds_though_zookeeper_tells_of_it_meanwhile(
    unread: QuotaKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: Any) -> None:
        """It is written."""

    async def limited(*_: Any) -> dict[str, str]:
        return LIMITED

    monkeypatch.setattr(unread, "_zookeeper", SimpleNamespace(change_config=nothing, read_config=limited))
    resolver = Resolver(monkeypatch)
    changing = asyncio.ensure_future(unread.change(ip_place("host"), LIMITED))
    await resolver.is_asked(1)
    await asyncio.sleep(0)
    await unread.refresh(ip_place("host"))
    await resolver.is_asked(2)
    resolver.answer(0, ["10.0.0.1"])
    await asyncio.sleep(0.05)
    assert not changing.done()
    resolver.answer(1, ["10.0.0.1"])
    await changing
    assert unread.ip_rates == {"10.0.0.1": 5.0}


async def test_what_an_older_look_up_finds_first_does_not_count_and_the_newer_one_goes_on(
    unread: QuotaKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = Resolver(monkeypatch)
    older = await first_look_up(unread, resolver)
    unread._take(ip_place("host"), LIMITED)
    await resolver.is_asked(2)
    resolver.answer(0, ["10.0.0.9"])
    await older
    assert not unread.ip_rates
    resolver.answer(1, ["10.0.0.1"])
    await until(lambda: unread.ip_rates == {"10.0.0.1": 5.0})


async def test_a_look_up_for_a_limit_that_was_removed_meanwhile_says_nothing_about_the_next_one(
    unread: QuotaKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = Resolver(monkeypatch)
    older = await first_look_up(unread, resolver)
    unread._take(ip_place("host"), {})
    assert not unread._look_ups
    resolver.answer(0, ["10.0.0.9"])
    await older
    assert not unread.ip_rates
    unread._take(ip_place("host"), LIMITED)
    await resolver.is_asked(2)
    resolver.answer(1, ["10.0.0.1"])
    await until(lambda: unread.ip_rates == {"10.0.0.1": 5.0})


async def test_so_many_hosts_are_looked_up_at_a_time_and_what_is_out_of_date_by_then_not_at_all(
    unread: QuotaKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = Resolver(monkeypatch)
    hosts = [f"host-{number}" for number in range(MOST_LOOKUPS + 2)]
    for host in hosts:
        unread._take(ip_place(host), LIMITED)
    await resolver.is_asked(MOST_LOOKUPS)
    for _ in range(10):  # whoever were to ask would have by now
        await asyncio.sleep(0)
    assert [name for name, _ in resolver.asked] == hosts[:MOST_LOOKUPS]
    unread._take(ip_place(hosts[-2]), {})
    resolver.answer(0, ["10.0.0.1"])
    await resolver.is_asked(MOST_LOOKUPS + 1)
    assert resolver.asked[-1][0] == hosts[-1]
    for number in range(1, MOST_LOOKUPS + 1):
        resolver.answer(number, ["10.0.0.1"])
    await until(lambda: not unread._look_ups)
    assert len(resolver.asked) == MOST_LOOKUPS + 1


async def test_where_no_thread_can_be_started_the_addresses_known_before_count_and_a_line_tells_it(
    unread: QuotaKeeper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    unread._addresses["host"] = ["10.0.0.1"]
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        unread._take(ip_place("host"), LIMITED)
        await unread._look_ups["host"]
    assert "host is not looked up: can't start new thread" in caplog.text
    assert unread.ip_rates == {"10.0.0.1": 5.0}
    assert not unread._look_ups


async def test_a_change_is_answered_though_its_look_up_is_far_back_in_the_line(
    zookeeper: ZooKeeperAddress, session: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    await session.elect_controller(1, 5)
    config = read_broker_config({"broker.id": "1", "zookeeper.connect": zookeeper.connect_string})
    keeper = QuotaKeeper(config, session)
    resolver = Resolver(monkeypatch)
    monkeypatch.setattr(host_addresses, "LONGEST_LOOKUP_S", 0.01)
    for number in range(MOST_LOOKUPS):
        keeper._take(ip_place(f"host-{number}"), LIMITED)
    await resolver.is_asked(MOST_LOOKUPS)
    async with asyncio.timeout(30):
        await keeper.change(ip_place("last"), {"connection_creation_rate": "7"})
    assert keeper.ips["last"] == 7.0
    for number in range(MOST_LOOKUPS):
        resolver.answer(number, ["10.0.0.1"])
    await resolver.is_asked(MOST_LOOKUPS + 1)
    resolver.answer(MOST_LOOKUPS, ["10.0.0.2"])
    await until(lambda: keeper.ip_rates == {"10.0.0.1": 5.0, "10.0.0.2": 7.0})
