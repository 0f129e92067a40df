"""`kbroker cluster top`: its rows of two looks, and on a real broker."""

import json

import pytest
import yaml

from kbroker import Admin
from kbroker.cli.cluster_top import Look, broker_rows, topic_rows
from kbroker.client.types import (
    BrokerDescription,
    LogDirDescription,
    PartitionDescription,
    ReplicaSize,
    TopicDescription,
    TopicPartition,
)
from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.cli.commands import kbroker, succeed


def seen(at: float, end: int, size: int, committed: int) -> Look:
    partitions = (
        PartitionDescription(0, 1, 0, (1, 2), (1,), (2,)),
        PartitionDescription(1, 2, 0, (2, 1), (2, 1), ()),
    )
    return Look(
        at,
        1,
        (BrokerDescription(1, "a", 1, None), BrokerDescription(2, "b", 2, None)),
        {
            "t": TopicDescription("t", b"", False, partitions),
            "idle": TopicDescription("idle", b"", False, ()),
        },
        {TopicPartition("t", 0): end, TopicPartition("t", 1): 5},
        [LogDirDescription(1, "/d", 1000, 250, None, (ReplicaSize("t", 0, size, 0, False),))],
        [{"group": "g", "topic": "t", "committed": committed, "lag": end - committed}],
        {1: 0.0123},
    )


def test_rates_are_what_has_grown_since_the_look_before() -> None:
    first, second = broker_rows(seen(12.0, 300, 5000, 40), seen(10.0, 100, 1000, 20))
    assert (first["controller"], first["leads"], first["under_replicated"]) == (True, 1, 1)
    assert (first["records_per_s"], first["log_bytes"], first["log_bytes_per_s"]) == (100.0, 5000, 2000.0)
    assert (first["disk_used_percent"], first["answer_ms"]) == (75, 12.3)
    assert (second["controller"], second["under_replicated"], second["records_per_s"]) == (False, 0, 0.0)
    assert (second["disk_used_percent"], second["answer_ms"]) == (None, None)
    busy, idle = topic_rows(seen(12.0, 300, 5000, 40), seen(10.0, 100, 1000, 20))
    assert (busy["topic"], busy["records_per_s"], busy["group"], busy["lag"]) == ("t", 100.0, "g", 260)
    assert busy["reads_per_s"] == 10.0
    assert (idle["topic"], idle["group"], idle["lag"]) == ("idle", None, None)


def test_the_first_look_knows_no_rates() -> None:
    now = seen(1.0, 100, 1000, 20)
    assert [row["records_per_s"] for row in (*broker_rows(now, None), *topic_rows(now, None))] == [None] * 4


def test_what_is_not_known_is_no_number() -> None:
    now, before = seen(12.0, 300, 5000, 40), seen(10.0, 100, 1000, 20)
    del before.ends[TopicPartition("t", 0)]
    before.directories.clear()
    first, second = broker_rows(now, before)
    assert (first["records_per_s"], first["log_bytes"], first["log_bytes_per_s"]) == (None, 5000, None)
    assert (second["records_per_s"], second["log_bytes"]) == (0.0, None)
    assert {row["topic"]: row["records_per_s"] for row in topic_rows(now, before)} == {"t": None, "idle": 0.0}


def test_of_several_groups_the_slowest_is_shown_and_of_several_disks_the_fullest() -> None:
    now, before = seen(12.0, 300, 5000, 40), seen(10.0, 100, 1000, 20)
    now.lags.append({"group": "fast", "topic": "t", "committed": 299, "lag": 1})
    now.directories.append(LogDirDescription(1, "/e", 1000, 900, None, ()))
    assert topic_rows(now, before)[0]["group"] == "g"
    assert broker_rows(now, before)[0]["disk_used_percent"] == 75


def test_a_partition_that_is_shorter_than_before_takes_nothing_off_what_others_grew_by() -> None:
    now, before = seen(12.0, 50, 5000, 40), seen(10.0, 100, 1000, 20)
    now.ends[TopicPartition("t", 1)] = 25
    assert topic_rows(now, before)[0]["records_per_s"] == 10.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "silent",
    ["answer_seconds", "describe_cluster", "list_offsets", "describe_log_dirs", "list_groups", "list_group_offsets"],
)
def test_a_part_that_does_not_answer_is_named_and_the_rest_is_shown(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)
    succeed("topic", "create", topic_name)
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets(topic_name, {(topic_name, 0): 0})

    async def fail(*asked: object) -> None:
        raise TimeoutError("nobody answers")

    monkeypatch.setattr(f"kbroker.client.admin.Admin.{silent}", fail)
    text = succeed("cluster", "top", "-n", "2", "--every", "0.1", "--topics", "1000", "--format", "yaml")
    told, _ = yaml.safe_load_all(text)
    assert any("nobody answers" in each for each in told["problems"])
    (row,) = [row for row in told["topics"] if row["topic"] == topic_name]
    assert row["lag"] == (0 if silent in ("answer_seconds", "describe_cluster", "describe_log_dirs") else None)
    assert all(row["log_bytes"] is None for row in told["brokers"]) is (
        silent in ("describe_cluster", "describe_log_dirs")
    )


def test_what_is_not_known_is_said_beside_the_table(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*asked: object) -> None:
        raise TimeoutError("nobody answers")

    monkeypatch.setattr("kbroker.client.admin.Admin.list_groups", fail)
    done = kbroker("cluster", "top", "-n", "1", "-b", broker.bootstrap)
    assert done.returncode == 0
    assert done.stderr == "not known: groups: nobody answers\n"


@pytest.mark.slow
def test_looks_follow_each_other_on_a_broker(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)
    succeed("topic", "create", topic_name)
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets(topic_name, {(topic_name, 0): 0})
    succeed("topic", "produce", topic_name, given=b"a\nb\n")
    text = succeed("cluster", "top", "-n", "2", "--every", "0.1", "--topics", "1000")
    assert text.count("disk used percent") == 2
    (line,) = {line.split()[0] for line in text.splitlines() if line.split()[:1] == [topic_name]}
    assert line == topic_name
    told = json.loads(succeed("cluster", "top", "-n", "1", "--topics", "1000", "--format", "json"))
    assert all(row["answer_ms"] > 0 for row in told["brokers"])
    (row,) = [row for row in told["topics"] if row["topic"] == topic_name]
    assert (row["group"], row["lag"]) == (topic_name, 2)
