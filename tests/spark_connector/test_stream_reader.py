"""The reader that Spark 4.2 and newer see: limits, and the end of Trigger.AvailableNow."""

import pytest

from kbroker import Admin
from kbroker.dev.broker_process import BrokerProcess
from kbroker.spark_connector.columns import ColumnPlan
from kbroker.spark_connector.planning import DataLossError
from kbroker.spark_connector.read_options import read_options
from kbroker.spark_connector.stream_offsets import from_json
from tests.kbroker.client.topics import create_topic, produce_values
from tests.spark_connector.schemas import plain_schema

limits = pytest.importorskip("pyspark.sql.streaming.datasource")
stream_reader = pytest.importorskip("kbroker.spark_connector.stream_reader")
PLAN = ColumnPlan(plain_schema(), tuple(plain_schema().names))


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({}, "ReadAllAvailable()"),
        ({"maxOffsetsPerTrigger": "7", "maxBytesPerTrigger": "9"}, "ReadMaxRows(max_rows=7)"),
        ({"maxBytesPerTrigger": "9"}, "ReadMaxBytes(max_bytes=9)"),
        ({"minOffsetsPerTrigger": "3"}, "ReadMinRows(min_rows=3)"),
    ],
)
def test_spark_is_told_of_a_limit(given: dict[str, str], limit: str) -> None:
    options = read_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **given}, streaming=True)
    assert repr(stream_reader.StreamReader(options, PLAN).getDefaultReadLimit()) == limit


def test_limits_hold_unless_spark_wants_all(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 10)
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic_name, "startingOffsets": "earliest"}
    reader = stream_reader.StreamReader(read_options({**given, "maxOffsetsPerTrigger": "4"}, streaming=True), PLAN)
    assert reader.reportLatestOffset() is None
    start = reader.initialOffset()
    assert from_json(reader.latestOffset(start, reader.getDefaultReadLimit())) == {(topic_name, 0): 4}
    assert from_json(reader.latestOffset(start, limits.ReadAllAvailable())) == {(topic_name, 0): 10}
    assert reader.reportLatestOffset() == {topic_name: {"0": 10}}
    reader.prepareForTriggerAvailableNow()
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 10)
    end = reader.latestOffset({topic_name: {"0": 8}}, reader.getDefaultReadLimit())
    assert from_json(end) == {(topic_name, 0): 10}
    reader.stop()


def test_a_query_that_ended_well_tells_a_topic_made_again_before_it_plans_anything(
    broker: BrokerProcess, topic_name: str
) -> None:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic_name, "startingOffsets": "earliest"}
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"old"] * 2)
    first, second = (stream_reader.StreamReader(read_options(given, streaming=True), PLAN) for _ in range(2))
    seen = first.latestOffset(first.initialOffset(), limits.ReadAllAvailable())
    first.stop()
    with Admin(broker.bootstrap) as admin:
        admin.delete_topics([topic_name])
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"new"] * 3)
    with pytest.raises(DataLossError, match=f"topic {topic_name} was deleted and made again"):
        second.latestOffset(seen, limits.ReadAllAvailable())
    second.stop()
