"""`kbroker group lag` on a real broker."""

import time

import pytest

from kbroker import Admin, Producer
from kbroker.cli.group_lag import _rows_of
from kbroker.client.types import TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.cli.commands import rows, succeed

HOUR_MS = 3_600_000


@pytest.fixture
def topic(broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two partitions with three records and one; the group of the same name has two of the first to go."""
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setattr("kbroker.client.record_ages.WITHIN_S", 60.0)  # who stands still for seconds is told, too
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


@pytest.mark.slow
def test_the_lag_is_told_in_time_too(broker: BrokerProcess, topic: str) -> None:
    (row,) = rows("group", "lag", topic)
    assert 0 <= row["behind_ms"] < HOUR_MS
    moment = int(time.time() * 1000) - 30 * HOUR_MS
    with Producer(broker.bootstrap) as producer, Admin(broker.bootstrap) as admin:
        producer.send(topic, b"late", partition=1, timestamp_ms=moment).result(60)
        (row,) = rows("group", "lag", topic)
        assert 30 * HOUR_MS <= row["behind_ms"] < 31 * HOUR_MS
        assert "1 d 6 h" in succeed("group", "lag", topic)
        assert "1 d 6 h" in succeed("group", "lag", topic, "--watch", "0.1", "-n", "1")
        admin.alter_group_offsets(topic, {(topic, 0): 3, (topic, 1): 2})
    (row,) = rows("group", "lag", topic)
    assert (row["lag"], row["behind_ms"]) == (0, 0)
    assert succeed("group", "lag", topic).splitlines()[-1].split()[-1] == "0"


def test_watching_tells_how_fast_it_goes(topic: str) -> None:
    text = succeed("group", "lag", topic, "--watch", "0.1", "-n", "2")
    first, second = text.split("\n\n")
    assert first.splitlines()[-1].split()[-2:] == ["-", "-"]
    assert second.splitlines()[-1].split()[-2:] == ["0.0", "0.0"]
    assert "reads per s" in first


def test_the_lag_of_a_deleted_topic_is_unknown_until_its_offsets_are_forgotten(
    broker: BrokerProcess, topic: str
) -> None:
    group = f"{topic}-other"
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets(group, {(topic, 0): 1})
    assert rows("group", "lag", group)[0]["lag"] == 2
    succeed("topic", "delete", topic)
    deadline = time.monotonic() + 60
    while found := rows("group", "lag", group):
        assert [(row["lag"], row["behind_ms"]) for row in found] == [(None, None)]
        assert time.monotonic() < deadline


def test_a_lag_of_which_a_part_is_unknown_is_not_known() -> None:
    keys = [TopicPartition("t", partition) for partition in range(3)]
    ends = dict.fromkeys(keys, 10)
    offsets = dict.fromkeys(keys, 4)
    ages = {(key, 4): 1000 * (1 + key.partition) for key in keys}
    (row,) = _rows_of("g", offsets, ends, ages)
    assert (row["committed"], row["end_offset"], row["lag"], row["worst"]) == (12, 30, 18, 0)
    assert row["behind_ms"] == 3000
    (row,) = _rows_of("g", offsets | {keys[2]: 10}, ends, ages)
    assert row["behind_ms"] == 2000, "nothing is to be read of the third"
    (row,) = _rows_of("g", offsets, ends, {place: age for place, age in ages.items() if place[0] != keys[1]})
    assert (row["lag"], row["behind_ms"]) == (18, None)
    del ends[keys[1]]
    (row,) = _rows_of("g", offsets, ends, ages)
    assert (row["committed"], row["end_offset"], row["lag"], row["worst"]) == (12, None, None, None)
    assert row["behind_ms"] is None
