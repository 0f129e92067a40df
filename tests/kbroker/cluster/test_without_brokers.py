"""Writing to ZooKeeper before there is a broker."""

import pytest

from kbroker.cluster.without_brokers import in_zookeeper, new_credential
from kbroker.controller.znode_operations import ZooKeeperError
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.dev.free_ports import free_ports
from kbroker.security.scram import credential_of, decode_credential, salted_password
from tests.fixtures.zookeeper import ZooKeeperAddress


def test_kafkas_nodes_are_there_for_the_work_and_its_result_comes_back(zookeeper: ZooKeeperAddress) -> None:
    async def look(store: ZooKeeper) -> list[str]:
        return await store.children("/config")

    assert "users" in in_zookeeper(zookeeper.connect_string, look)


def test_a_zookeeper_that_is_not_there_is_an_error_after_the_given_time() -> None:
    async def nothing(store: ZooKeeper) -> None:
        raise AssertionError("it is connected")

    with pytest.raises(ZooKeeperError):
        in_zookeeper(f"127.0.0.1:{free_ports(1)[0]}", nothing, timeout_ms=200)


def test_each_credential_has_a_salt_of_its_own_and_holds_for_its_password() -> None:
    one, other = (decode_credential(new_credential("SCRAM-SHA-256", "secret", 5000)) for _ in range(2))
    assert one.salt != other.salt
    assert one.iterations == 5000
    salted = salted_password("SCRAM-SHA-256", "secret", one.salt, 5000)
    assert one == credential_of("SCRAM-SHA-256", salted, one.salt, 5000)
