"""`kbroker user` through a broker, and in ZooKeeper before there is one."""

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.fixtures.zookeeper import ZooKeeperAddress
from tests.kbroker.cli.commands import fail, kbroker, rows, succeed


def of(user: str, *options: str) -> list[tuple[str, int]]:
    return [(row["mechanism"], row["iterations"]) for row in rows("user", "list", *options) if row["user"] == user]


def test_users_are_added_listed_and_deleted(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)
    done = kbroker("user", "add", topic_name, "--iterations", "5000", given=b"hunter2\n")
    assert (done.returncode, done.stdout) == (0, "")
    assert "hunter2" not in done.stderr
    assert of(topic_name) == [("SCRAM-SHA-256", 5000), ("SCRAM-SHA-512", 5000)]
    succeed("user", "delete", topic_name, "-m", "scram-sha-256")
    assert of(topic_name) == [("SCRAM-SHA-512", 5000)]
    succeed("user", "delete", topic_name)
    assert "RESOURCE_NOT_FOUND" in fail("user", "delete", topic_name)


@pytest.mark.slow
def test_users_are_there_before_the_first_broker(zookeeper: ZooKeeperAddress) -> None:
    there = ("--zookeeper", zookeeper.connect_string)
    succeed("user", "add", "broker", "-m", "SCRAM-SHA-512", "--password", "hunter2", *there)
    succeed("user", "add", "alice", *there, given=b"hunter2\n")
    assert of("broker", *there) == [("SCRAM-SHA-512", 4096)]
    assert of("alice", *there) == [("SCRAM-SHA-256", 4096), ("SCRAM-SHA-512", 4096)]
    succeed("user", "delete", "broker", *there)
    assert of("broker", *there) == []
    assert "no such credential" in fail("user", "delete", "broker", *there)


@pytest.mark.parametrize(
    ("options", "given"),
    [(["-m", "MD5"], b"x\n"), (["--iterations", "1"], b"x\n"), ([], b"\n"), ([], b"")],
)
def test_what_cannot_be_a_user_is_a_usage_error(options: list[str], given: bytes) -> None:
    assert kbroker("user", "add", "alice", *options, given=given).returncode == 2
