"""zookeeper.set.acl: what brokers make in ZooKeeper, read back with and without their name."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import ACL, Id, make_digest_acl_credential

from kbroker import Admin
from kbroker.client.types import AccessRule
from kbroker.controller.znode_access import ZooKeeperAccess
from kbroker.controller.znode_operations import NotAllowed, ZooKeeperUnreachable
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.dev.broker_process import BrokerFailed
from kbroker.security.acls import AclOperation, AclPattern, AclPermission, AclResource, Entry, Pattern
from tests.fixtures.brokers import MakeBroker
from tests.fixtures.zookeeper import ZooKeeperAddress
from tests.kbroker.cli.commands import succeed

DIGEST = "kafka:of-the-brokers"
PROTECTED = {
    "zookeeper.set.acl": "true",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "of-the-tokens",
}
ANYONE_READS = ACL(1, Id("world", "anyone"))
ANYONE = ACL(31, Id("world", "anyone"))
PATIENCE_S = 30
ACCESS = ZooKeeperAccess(digest=DIGEST, is_protected=True)


@contextlib.contextmanager
def session(address: str, digest: str | None = None, **options: object) -> Iterator[KazooClient]:
    client = KazooClient(address, auth_data=[("digest", digest)] if digest else None, **options)
    client.start(timeout=PATIENCE_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def tree(client: KazooClient, path: str = "/") -> Iterator[str]:
    """All nodes below the chroot, the chroot too."""
    yield path
    for name in client.get_children(path):
        yield from tree(client, f"{path.rstrip('/')}/{name}")


def expected(path: str, maker: ACL) -> list[ACL]:
    """Kafka's defaultAcls."""
    if path == "/consumers":
        return [ANYONE]
    if any(path.startswith(each) for each in ("/config/users", "/config/brokers", "/delegation_token/tokens")):
        return [maker]
    return [maker, ANYONE_READS]


def use(bootstrap: str, topic: str) -> None:
    """Let the broker make nodes of each kind."""
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, 3)
        admin.set_user("alice", "of-alice")
        admin.create_acls([AccessRule(AclResource.TOPIC, topic, "User:alice", AclOperation.READ)])
        admin.alter_client_quotas({"user": "alice"}, {"producer_byte_rate": 1e6})


def test_all_that_a_broker_makes_is_its_own_and_others_read_no_secrets(
    make_broker: MakeBroker, zookeeper: ZooKeeperAddress, topic_name: str
) -> None:
    broker = make_broker(properties={**PROTECTED, "kbroker.zookeeper.digest": DIGEST})
    use(broker.bootstrap, topic_name)
    maker = ACL(31, Id("digest", make_digest_acl_credential(*DIGEST.split(":"))))
    with session(zookeeper.connect_string, DIGEST) as own, session(zookeeper.connect_string) as stranger:
        paths = list(tree(own))
        assert {f"/brokers/topics/{topic_name}/partitions/2/state", "/config/users/alice", "/controller"} <= {*paths}
        for path in paths:
            assert own.get_acls(path)[0] == expected(path, maker), path
        assert stranger.get(f"/brokers/topics/{topic_name}")[0]
        for secret in ("/config/users/alice", "/config/users", "/delegation_token/tokens"):
            with pytest.raises(NoAuthError):
                stranger.get(secret)
        changes: list[Callable[[], object]] = [
            lambda: stranger.set("/controller_epoch", b"99"),
            lambda: stranger.delete("/controller"),
            lambda: stranger.create("/config/changes/config_change_", sequence=True),
            lambda: stranger.set_acls("/brokers/ids", [ANYONE]),
        ]
        for change in changes:
            with pytest.raises(NoAuthError):
                change()


def test_a_broker_without_the_name_says_what_keeps_it_out(make_broker: MakeBroker, zookeeper: ZooKeeperAddress) -> None:
    make_broker(properties={**PROTECTED, "kbroker.zookeeper.digest": DIGEST})
    stranger = make_broker(2, wait=False)
    with pytest.raises(BrokerFailed):
        stranger.wait_until_ready(PATIENCE_S)
    assert "ZooKeeper does not allow it at /" in stranger.log_tail(40)


async def test_what_may_not_be_read_does_not_count_as_missing(zookeeper: ZooKeeperAddress) -> None:
    own = ZooKeeper(zookeeper.connect_string, access=ACCESS)
    stranger = ZooKeeper(zookeeper.connect_string)
    await own.connect()
    await stranger.connect()
    try:
        await own.ensure_top_level_paths()
        await own.create("/config/users/alice", b"{}")
        with pytest.raises(NotAllowed, match="/config/users/alice: the node's ACL names others"):
            await stranger.get_many(["/config/users/alice"])
        with pytest.raises(NotAllowed):
            await stranger.children("/config/users")
    finally:
        await stranger.close()
        await own.close()


async def test_nodes_that_exist_keep_their_acls(zookeeper: ZooKeeperAddress) -> None:
    before = ZooKeeper(zookeeper.connect_string)
    await before.connect()
    await before.ensure_top_level_paths()
    await before.close()
    own = ZooKeeper(zookeeper.connect_string, access=ACCESS)
    await own.connect()
    try:
        await own.ensure_top_level_paths()
        await own.ensure_acl_paths()
        await own.change_acls(
            Pattern(AclResource.TOPIC, AclPattern.LITERAL, "t"),
            lambda _: frozenset({Entry("User:a", "*", AclOperation.READ, AclPermission.ALLOW)}),
        )
    finally:
        await own.close()
    with session(zookeeper.connect_string, DIGEST) as client:
        assert client.get_acls("/brokers/ids")[0] == [ANYONE]
        assert client.get_acls("/kafka-acl/Topic/t")[0][1:] == [ANYONE_READS]


def test_a_broker_logs_in_by_sasl_as_the_jaas_file_says(
    make_broker: MakeBroker, sasl_zookeeper: str, topic_name: str
) -> None:
    connect = f"{sasl_zookeeper}/protected"
    succeed("user", "add", "early", "--zookeeper", connect, given=b"of-early\n")
    broker = make_broker(properties=PROTECTED, zookeeper_connect=connect)
    use(broker.bootstrap, topic_name)
    maker = ACL(31, Id("sasl", "kafka"))
    with session(connect) as stranger:
        for path in ("/", "/controller", f"/brokers/topics/{topic_name}", "/config/topics", "/consumers"):
            assert stranger.get_acls(path)[0] == expected(path, maker), path
        with pytest.raises(NoAuthError):
            stranger.get("/config/users/early")
        with pytest.raises(NoAuthError):
            stranger.delete("/controller")


@pytest.mark.slow
async def test_a_wrong_password_is_told(sasl_zookeeper: str) -> None:
    told = ""
    for patience_ms in (1_000, 5_000, 30_000):  # as long as the machine may need
        wrong = ZooKeeper(sasl_zookeeper, 10_000, patience_ms, access=ZooKeeperAccess(sasl=("kafka", "wrong")))
        with pytest.raises(ZooKeeperUnreachable) as raised:
            await wrong.connect()
        told = str(raised.value)
        if "no log-in" in told:
            break
    assert re.search(r"no log-in at ZooKeeper at .*: user kafka is not let in", told)
    assert "wrong" not in told
