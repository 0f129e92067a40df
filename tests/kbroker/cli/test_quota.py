"""`kbroker quota` on a real broker."""

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.cli.commands import fail, kbroker, rows, succeed


def test_limits_are_set_listed_and_removed(own_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBROKER_BOOTSTRAP", own_broker.bootstrap)
    assert rows("quota", "list") == []
    succeed("quota", "set", "producer_byte_rate=1000000", "request_percentage=12.5", "--user", "ann")
    succeed("quota", "set", "consumer_byte_rate=5", "--user", "*", "--client-id", "app")
    succeed("quota", "set", "consumer_byte_rate=7", "--user", "bob", "--dry-run")
    listed = [(row["user"], row["client_id"], row["key"], row["limit"]) for row in rows("quota", "list")]
    assert listed == [
        ("*", "app", "consumer_byte_rate", 5.0),
        ("ann", None, "producer_byte_rate", 1_000_000.0),
        ("ann", None, "request_percentage", 12.5),
    ]
    assert "not_a_key" in fail("quota", "set", "not_a_key=1", "--user", "ann")
    succeed("quota", "remove", "producer_byte_rate", "request_percentage", "--user", "ann")
    assert len(rows("quota", "list")) == 1


def test_what_makes_no_limit_is_a_wrong_use() -> None:
    assert kbroker("quota", "set", "producer_byte_rate=1").returncode == 2
    assert kbroker("quota", "set", "producer_byte_rate=much", "--user", "a").returncode == 2
    assert kbroker("quota", "remove", "producer_byte_rate").returncode == 2
