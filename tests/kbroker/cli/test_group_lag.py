"""`kbroker group lag` on a real broker."""

import pytest

from kbroker import Admin
from kbroker.cli.group_lag import _rows_of
from kbroker.client.types import TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.cli.commands import rows, succeed


@pytest.fixture
def topic(broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two partitions with three records and one; the group of the same name has two of the first to go."""
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)
    succeed("topic", "create", topic_name, "-p", "2", "-c", "retention.ms=-1")
    succeed("topic", "produce", topic_name, "-p", "0", given=b"a\nb\nc\n")
    succeed("topic", "produce", topic_name, "-p", "1", given=b"d\n")
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets(topic_name, {(topic_name, 0): 1, (topic_name, 1): 1})
    return topic_name


def test_the_lag_of_a_group_is_summed_up_with_its_worst_partition(topic: str) -> None:
    (row,) = rows("group", "lag", topic)
    assert (row["topic"], row["partitions"], row["committed"], row["end_offset"]) == (topic, 2, 2, 4)
    assert (row["lag"], row["worst"]) == (2, 0)
    assert topic in [row["group"] for row in rows("group", "lag")]
    assert rows("group", "lag", f"{topic}-none") == []


def test_watching_tells_how_fast_it_goes(topic: str) -> None:
    text = succeed("group", "lag", topic, "--watch", "0.1", "-n", "2")
    first, second = text.split("\n\n")
    assert first.splitlines()[-1].split()[-2:] == ["-", "-"]
    assert second.splitlines()[-1].split()[-2:] == ["0.0", "0.0"]
    assert "reads per s" in first


def test_the_lag_of_a_deleted_topic_is_unknown_and_not_nothing(broker: BrokerProcess, topic: str) -> None:
    group = f"{topic}-other"
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets(group, {(topic, 0): 1})
    assert rows("group", "lag", group)[0]["lag"] == 2
    succeed("topic", "delete", topic)
    assert all(row["lag"] is None for row in rows("group", "lag", group))


def test_a_lag_of_which_a_part_is_unknown_is_not_known() -> None:
    keys = [TopicPartition("t", partition) for partition in range(3)]
    ends = dict.fromkeys(keys, 10)
    (row,) = _rows_of("g", dict.fromkeys(keys, 4), ends)
    assert (row["committed"], row["end_offset"], row["lag"], row["worst"]) == (12, 30, 18, 0)
    del ends[keys[1]]
    (row,) = _rows_of("g", dict.fromkeys(keys, 4), ends)
    assert (row["committed"], row["end_offset"], row["lag"], row["worst"]) == (12, None, None, None)
