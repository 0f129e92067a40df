"""The reader that Spark 4.1 sees: it is asked without being told where the query is."""

import pickle
from typing import Any

import pytest

from kbroker import Admin, TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from kbroker.spark_connector.columns import ColumnPlan
from kbroker.spark_connector.planning import DataLossError
from kbroker.spark_connector.read_options import read_options
from tests.kbroker.client.topics import create_topic, produce_values
from tests.spark_connector.schemas import plain_schema

stream_reader_41 = pytest.importorskip("kbroker.spark_connector.stream_reader_41")
PLAN = ColumnPlan(plain_schema(), tuple(plain_schema().names))


def make_reader(broker: BrokerProcess, topic: str) -> Any:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return stream_reader_41.StreamReader41(read_options({**given, "maxOffsetsPerTrigger": "4"}, streaming=True), PLAN)


def test_the_reader_remembers_where_the_query_is_and_limits_all_batches_but_the_first(
    broker: BrokerProcess, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 10)
    reader = pickle.loads(pickle.dumps(make_reader(broker, topic_name)))
    ends = [reader.latestOffset()]
    start = reader.initialOffset()  # Spark asks for it once it knows that there is something to read
    assert start == {topic_name: {"0": 0}}
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 10)
    while ends[-1] != start:
        shares = reader.partitions(start, ends[-1])
        assert sum(batch.num_rows for share in shares for batch in reader.read(share)) > 0
        reader.commit(ends[-1])
        start = ends[-1]
        ends.append(reader.latestOffset())
    reader.stop()
    assert [end[topic_name]["0"] for end in ends] == [10, 14, 18, 20, 20]


def test_a_query_that_goes_on_reads_to_the_end_once_and_misses_nothing_where_it_reads_nothing(
    broker: BrokerProcess, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 10)
    with Admin(broker.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic_name, 0): 8})
    reader = make_reader(broker, topic_name)
    seen, end = {topic_name: {"0": 7}}, {topic_name: {"0": 10}}
    assert reader.partitions(seen, seen) == []  # by that Spark tells the checkpoint's offsets
    assert reader.latestOffset() == end
    with pytest.raises(DataLossError, match=rf"{topic_name}-0: offsets \[7, 10\) were asked for, \[8, 10\) are there"):
        reader.partitions(seen, end)
    reader.stop()
