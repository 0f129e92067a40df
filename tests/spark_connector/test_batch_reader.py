"""Planning on the driver, reading in a task; without a Spark session."""

import json
from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.spark_connector.columns import ColumnPlan
from kbroker.spark_connector.options import OptionError
from kbroker.spark_connector.read_options import read_options
from tests.kbroker.client.topics import create_topic, produce_values
from tests.spark_connector.schemas import plain_schema, schema

pytest.importorskip("pyspark")
batch_reader = pytest.importorskip("kbroker.spark_connector.batch_reader")


def reader(broker: BrokerProcess, **options: str) -> Any:
    checked = read_options({"kafka.bootstrap.servers": broker.bootstrap, **options})
    return batch_reader.BatchReader(checked, ColumnPlan(plain_schema(), tuple(plain_schema().names)))


def test_small_partitions_share_a_task_and_large_ones_have_their_own(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=3)
    for partition, count in ((0, 10), (1, 10), (2, 700)):
        for _ in range(2):
            produce_values(broker.bootstrap, topic_name, partition, [b"v" * 1_000] * count)
    shares = reader(broker, subscribe=topic_name).partitions()
    assert [[each.partition for each in share.ranges] for share in shares] == [[0, 1], [2]]
    asked = reader(broker, subscribe=topic_name, minPartitions="3").partitions()
    assert [[each.partition for each in share.ranges] for share in asked] == [[0], [1], [2]]


def test_each_partition_with_records_is_read_and_no_other(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=3)
    for partition in (0, 2):
        produce_values(broker.bootstrap, topic_name, partition, [b"a", b"b"])
    planned = reader(broker, subscribe=topic_name)
    shares = planned.partitions()
    assert [(each.partition, each.start, each.end) for share in shares for each in share.ranges] == [
        (0, 0, 2),
        (2, 0, 2),
    ]
    rows = [row for share in shares for batch in planned.read(share) for row in batch.to_pylist()]
    assert [(row["partition"], row["offset"], row["value"]) for row in rows] == [
        (0, 0, b"a"),
        (0, 1, b"b"),
        (2, 0, b"a"),
        (2, 1, b"b"),
    ]


def test_sparks_stand_in_for_an_empty_plan_reads_nothing(broker: BrokerProcess) -> None:
    assert list(reader(broker, subscribe="t").read(batch_reader.InputPartition(None))) == []


def test_assigned_partitions_must_exist(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    with pytest.raises(OptionError, match=f"not there: {topic_name}-7"):
        reader(broker, assign=json.dumps({topic_name: [0, 7]})).partitions()


def test_an_assigned_partition_that_is_gone_is_left_out_also_where_the_offsets_name_it(
    broker: BrokerProcess, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 9)
    assigned, named = json.dumps({topic_name: [0, 7]}), json.dumps({topic_name: {"0": 3, "7": 5}})
    ends = json.dumps({topic_name: {"0": 8, "7": 9}})
    given = {"assign": assigned, "startingOffsets": named, "endingOffsets": ends}
    [share] = reader(broker, **given, failOnDataLoss="false").partitions()
    assert [(each.partition, each.start, each.end) for each in share.ranges] == [(0, 3, 8)]


def test_offsets_must_name_every_partition(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=2)
    with pytest.raises(OptionError, match=f"missing {topic_name}-1"):
        reader(broker, subscribe=topic_name, startingOffsets=json.dumps({topic_name: {"0": 0}})).partitions()


def test_a_read_that_ends_before_it_begins_is_an_error(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 8, timestamp_ms=5_000)
    at = {offset: json.dumps({topic_name: {"0": offset}}) for offset in (2, 5)}
    with pytest.raises(OptionError, match="startingOffsets is offset 5, endingOffsets is 2"):
        reader(broker, subscribe=topic_name, startingOffsets=at[5], endingOffsets=at[2]).partitions()
    with pytest.raises(OptionError, match="endingTimestamp is 0"):
        reader(broker, subscribe=topic_name, startingOffsets=at[5], endingTimestamp="4000").partitions()
    for fine in ({"startingOffsets": at[5], "endingOffsets": at[5]}, {"endingTimestamp": "4000"}):
        assert reader(broker, subscribe=topic_name, **fine).partitions() == []


@pytest.mark.parametrize(
    ("key_format", "kind", "value", "is_taken"),
    [
        ("binary", "binary", b"abc", True),
        ("string", "string", "abc", True),
        ("string", "string", b"abc", False),
        ("avro", "binary", b"abc", False),
        ("avro", "string", "abc", False),
    ],
)
def test_a_key_is_looked_for_in_the_records_only_where_the_column_is_what_they_hold(
    key_format: str, kind: str, value: object, is_taken: bool
) -> None:
    filters = pytest.importorskip("pyspark.sql.datasource")
    checked = read_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t", "keyFormat": key_format})
    pushing = batch_reader.PushingBatchReader(checked, ColumnPlan(schema(key=kind), ("key",)))
    wanted = filters.EqualTo(("key",), value)
    assert list(pushing.pushFilters([wanted])) == ([] if is_taken else [wanted])
    assert pushing.pushed.keys == (frozenset({b"abc"}) if is_taken else None)
