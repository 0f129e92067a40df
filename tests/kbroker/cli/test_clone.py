"""`kbroker topic clone` and `kbroker group clone` on a real broker."""

import pytest

from kbroker import Admin
from kbroker.client.types import OffsetAndMetadata, TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.cli.commands import fail, rows, succeed


@pytest.fixture(autouse=True)
def _bootstrap(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)


def test_a_topic_like_another_has_its_partitions_and_settings(topic_name: str) -> None:
    of_a_move = ("-c", "leader.replication.throttled.replicas=0:1")
    own = ("-c", "retention.ms=12345", "-c", "cleanup.policy=compact")
    succeed("topic", "create", topic_name, "-p", "3", *own, *of_a_move)
    succeed("topic", "clone", topic_name, f"{topic_name}-2")
    assert len(rows("topic", "describe", f"{topic_name}-2")) == 3
    described = {row["key"]: row["value"] for row in rows("config", "describe", "topic", f"{topic_name}-2")}
    assert described == {"retention.ms": "12345", "cleanup.policy": "compact"}
    assert "TOPIC_ALREADY_EXISTS" in fail("topic", "clone", topic_name, f"{topic_name}-2")


def test_a_group_goes_on_where_another_is(broker: BrokerProcess, topic_name: str) -> None:
    succeed("topic", "create", topic_name, "-p", "2")
    first, second = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets(topic_name, {first: OffsetAndMetadata(4, "note"), second: 7})
        told = rows("group", "clone", topic_name, f"{topic_name}-2", "--dry-run")
        assert admin.list_group_offsets(f"{topic_name}-2") == {}
        assert rows("group", "clone", topic_name, f"{topic_name}-2") == told
        assert [(row["before"], row["after"]) for row in told] == [(None, 4), (None, 7)]
        assert admin.list_group_offsets(f"{topic_name}-2") == admin.list_group_offsets(topic_name)
        admin.alter_group_offsets(f"{topic_name}-2", {first: 9})
        assert "--yes" in fail("group", "clone", topic_name, f"{topic_name}-2")
        assert admin.list_group_offsets(f"{topic_name}-2")[first].offset == 9
        told = rows("group", "clone", topic_name, f"{topic_name}-2", "--yes")
        assert [(row["before"], row["after"]) for row in told] == [(9, 4), (7, 7)]
        assert admin.list_group_offsets(f"{topic_name}-2") == admin.list_group_offsets(topic_name)
    assert "has committed nothing" in fail("group", "clone", f"{topic_name}-none", "other")
