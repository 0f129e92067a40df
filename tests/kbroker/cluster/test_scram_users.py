"""SCRAM credentials in ZooKeeper, as a broker keeps up with them."""

import asyncio
import logging

import pytest

from kbroker.cluster.scram_users import ScramUsers, credentials_in
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.security.exchange import SCRAM_SHA_256, SCRAM_SHA_512, Identity
from kbroker.security.scram import credential_of, encode_credential, salted_password
from tests.fixtures.zookeeper import ZooKeeperAddress

SALT = b"salt"
CREDENTIAL = credential_of(SCRAM_SHA_256, salted_password(SCRAM_SHA_256, "secret", SALT, 4096), SALT, 4096)
TEXT = encode_credential(CREDENTIAL)


async def test_what_is_written_is_read_and_forgotten_when_it_is_gone(zookeeper: ZooKeeperAddress) -> None:
    store = ZooKeeper(zookeeper.connect_string, 10_000, 10_000, None)
    await store.connect()
    try:
        await store.ensure_top_level_paths()
        assert await store.elect_controller(1, 0) is not None
        users = ScramUsers(store)
        name = "ü/a b"
        await users.change(name, {SCRAM_SHA_256: TEXT})
        known = users.find(SCRAM_SHA_256, name)
        assert known is not None, "who changes it goes by it at once"
        started = ScramUsers(store)
        await started.load()
        assert started.credentials == users.credentials
        assert (known.credential, known.identity) == (CREDENTIAL, Identity(name))
        assert users.find(SCRAM_SHA_512, name) is None
        assert await users.read(None) == await users.read([name, ""]) == {name: {SCRAM_SHA_256: CREDENTIAL}}
        with pytest.raises(KeyError):
            await users.change(name, {SCRAM_SHA_512: None})
        (entity,) = await store.config_entities("users")
        await users.change(name, {SCRAM_SHA_256: None})
        assert users.find(SCRAM_SHA_256, name) is None
        await started.refresh(entity)
        assert started.find(SCRAM_SHA_256, name) is None
        assert await store.config_entities("users") == []  # nothing is left over
        assert len(await store.children("/config/changes")) == 2
    finally:
        await store.close()


async def test_two_brokers_change_one_user_at_once_and_neither_change_is_lost(zookeeper: ZooKeeperAddress) -> None:
    stores = [ZooKeeper(zookeeper.connect_string, 10_000, 10_000, None) for _ in range(2)]
    try:
        for store in stores:
            await store.connect()
        await stores[0].ensure_top_level_paths()
        assert await stores[0].elect_controller(1, 0) is not None
        one, other = (ScramUsers(store) for store in stores)
        for _ in range(5):
            await asyncio.gather(one.change("ann", {SCRAM_SHA_256: TEXT}), other.change("ann", {SCRAM_SHA_512: TEXT}))
            assert (await one.read(["ann"]))["ann"].keys() == {SCRAM_SHA_256, SCRAM_SHA_512}
            await asyncio.gather(one.change("ann", {SCRAM_SHA_256: None}), other.change("ann", {SCRAM_SHA_512: None}))
            assert await one.read(None) == {}
    finally:
        for store in stores:
            await store.close()


def test_a_credential_that_cannot_be_read_is_left_out_with_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = credentials_in("alice", {SCRAM_SHA_256: TEXT, SCRAM_SHA_512: "salt=hunter2", "producer_byte_rate": "1"})
    assert found == {SCRAM_SHA_256: CREDENTIAL}
    assert "alice" in caplog.text
    assert "hunter2" not in caplog.text
