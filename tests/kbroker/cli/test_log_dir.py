"""`kbroker log-dir` on a real broker, and its rows alone."""

import pytest

from kbroker.cli.log_dir import directory_rows, topic_rows
from kbroker.client.types import LogDirDescription, ReplicaSize
from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.cli.commands import fail, rows, succeed


def test_directories_and_what_topics_take_in_them_are_shown(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)
    succeed("topic", "create", topic_name, "-p", "2")
    succeed("topic", "produce", topic_name, "-p", "0", given=b"a\nb\n")
    directories = rows("log-dir", "list")
    assert {row["broker"] for row in directories} == {1}
    assert all(row["state"] == "ok" and row["total_bytes"] > row["free_bytes"] > 0 for row in directories)
    assert rows("log-dir", "list", "--broker", "1") != []
    (row,) = rows("log-dir", "describe", topic_name)
    assert (row["replicas"], row["moving"]) == (2, 0)
    assert row["bytes"] > 0
    assert topic_name in succeed("log-dir", "describe")
    assert "no-such-topic" in fail("log-dir", "describe", topic_name, "no-such-topic")


def test_what_a_broker_does_not_know_is_left_open_and_the_largest_comes_first() -> None:
    replicas = (ReplicaSize("small", 0, 1, 0, False), ReplicaSize("t", 0, 5, 0, False), ReplicaSize("t", 1, 7, 0, True))
    described = [LogDirDescription(1, "/a", -1, -1, "KAFKA_STORAGE_ERROR", replicas)]
    (row,) = directory_rows(described)
    assert (row["bytes"], row["free_bytes"], row["total_bytes"]) == (13, None, None)
    assert row["state"] == "kafka_storage_error"
    first, second = topic_rows(described)
    assert (first["topic"], first["replicas"], first["bytes"], first["moving"]) == ("t", 2, 12, 1)
    assert second["topic"] == "small"
