"""`kbroker acl` on a real broker with an authorizer."""

from collections.abc import Callable

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.cli.commands import fail, kbroker, rows, succeed

AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def listed(*arguments: str) -> list[tuple[str, str, str]]:
    return [(row["name"], row["principal"], row["operation"]) for row in rows("acl", "list", *arguments)]


def test_rules_are_added_listed_and_removed(
    make_broker: Callable[..., BrokerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBROKER_BOOTSTRAP", make_broker(properties=AUTHORIZER).bootstrap)
    assert listed() == []
    succeed("acl", "add", "topic", "orders", "-p", "User:a", "-p", "User:b", "-o", "read", "-o", "describe-configs")
    succeed("acl", "add", "topic", "or", "-p", "User:c", "-o", "write", "--prefixed", "--deny", "--host", "10.0.0.1")
    succeed("acl", "add", "cluster", "-p", "User:a", "-o", "cluster-action")
    assert len(listed()) == 6
    assert listed("--resource", "cluster") == [("kafka-cluster", "User:a", "ClusterAction")]
    assert listed("--name", "orders", "--principal", "User:b") == [
        ("orders", "User:b", "DescribeConfigs"),
        ("orders", "User:b", "Read"),
    ]
    (denied,) = rows("acl", "list", "-r", "topic", "-n", "orders", "--pattern", "match", "-p", "User:c")
    assert denied == {
        "resource": "Topic",
        "name": "or",
        "pattern": "prefixed",
        "principal": "User:c",
        "host": "10.0.0.1",
        "permission": "Deny",
        "operation": "Write",
    }
    assert len(rows("acl", "remove", "--principal", "User:a", "--operation", "read", "--dry-run")) == 1
    assert len(listed()) == 6
    assert len(rows("acl", "remove", "--principal", "User:a")) == 3
    assert {principal for _, principal, _ in listed()} == {"User:b", "User:c"}
    assert len(rows("acl", "remove", "--all")) == 3


def test_what_makes_no_rule_is_a_wrong_use() -> None:
    for arguments, said in (
        (("add", "sandwich", "ham", "-p", "User:a", "-o", "read"), "none of topic"),
        (("add", "topic", "t", "-p", "User:a", "-o", "eat"), "none of all"),
        (("add", "topic", "-p", "User:a", "-o", "read"), "a name is needed"),
        (("add", "topic", "t", "-p", "alice", "-o", "read"), "TYPE:NAME"),
        (("add", "topic", "t"), "who may do what"),
        (("remove",), "say which rules"),
    ):
        done = kbroker("acl", *arguments)
        assert done.returncode == 2
        assert said in done.stderr.replace("\n", " ")


def test_a_broker_without_an_authorizer_says_so(broker: BrokerProcess) -> None:
    assert "Authorizer" in fail("acl", "list", "--bootstrap", broker.bootstrap)
