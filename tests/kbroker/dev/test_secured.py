"""Users and rules of a secured development cluster; clients of all kinds use one in tests/system."""

import json
from pathlib import Path

import pytest

from kbroker.cluster.scram_users import ScramUsers
from kbroker.cluster.without_brokers import in_zookeeper
from kbroker.config.broker_config import read_broker_config
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.dev.secured import BETWEEN_BROKERS, USERS, Secured
from kbroker.security.acls import AclPattern, AclResource, Pattern
from kbroker.security.scram import ScramClient, ScramServer
from tests.fixtures.zookeeper import ZooKeeperAddress

ORDERS = Pattern(AclResource.TOPIC, AclPattern.LITERAL, "*")


def passwords(secured: Secured) -> dict[str, str]:
    found = json.loads((secured.folder / "passwords.json").read_text())
    assert isinstance(found, dict)
    return found


def may_log_in(zookeeper: str, user: str, password: str) -> bool:
    async def try_it(store: ZooKeeper) -> bool:
        users = ScramUsers(store)
        await users.load()
        server = ScramServer("SCRAM-SHA-512", lambda name, is_token: users.find("SCRAM-SHA-512", name), "servers")
        client = ScramClient("SCRAM-SHA-512", user, password, "clients")
        answer = server.step(client.first())
        assert isinstance(answer, bytes)
        proof = client.step(answer)
        assert proof is not None
        client.step(server.step(proof))  # type: ignore[arg-type]
        return server.identity is not None

    return in_zookeeper(zookeeper, try_it)


@pytest.mark.slow
def test_users_have_random_passwords_that_a_second_start_keeps(zookeeper: ZooKeeperAddress, tmp_path: Path) -> None:
    there = zookeeper.connect_string
    secured = Secured(tmp_path / "secure")
    secured.prepare(there, 30_000)
    first = passwords(secured)
    assert set(first) == {BETWEEN_BROKERS, *USERS}
    assert len(set(first.values())) == len(first)
    assert all(len(password) >= 32 for password in first.values())
    assert (secured.folder / "passwords.json").stat().st_mode & 0o777 == 0o600
    again = Secured(tmp_path / "secure")
    again.prepare(there, 30_000)
    assert passwords(again) == first
    for user, password in first.items():
        assert may_log_in(there, user, password)
    assert not any(password in repr(again.client_security()) for password in first.values())


def test_rules_that_were_changed_since_are_left_alone(zookeeper: ZooKeeperAddress, tmp_path: Path) -> None:
    there = zookeeper.connect_string
    Secured(tmp_path).prepare(there, 30_000)

    async def empty(store: ZooKeeper) -> int:
        before, _ = await store.change_acls(ORDERS, lambda _: frozenset())
        return len(before)

    async def count(store: ZooKeeper) -> int:
        return len((await store.read_acls(ORDERS))[0])

    assert in_zookeeper(there, empty) == 11
    Secured(tmp_path).prepare(there, 30_000)
    assert in_zookeeper(there, count) == 0


def test_brokers_take_the_properties_and_show_no_password(zookeeper: ZooKeeperAddress, tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    secured.prepare(zookeeper.connect_string, 30_000)
    properties = {"broker.id": "1", "zookeeper.connect": "zk:2181", **secured.broker_properties(9092)}
    config = read_broker_config(properties)
    assert not any(password in repr(config) for password in passwords(secured).values())
    secured.write_settings("127.0.0.1:9092")
    told = secured.description("127.0.0.1:9092")
    assert all(user in told and (tmp_path / user / "profile.toml").exists() for user in USERS)
    assert not any(password in told for password in passwords(secured).values())
