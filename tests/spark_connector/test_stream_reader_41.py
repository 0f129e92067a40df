"""The reader that Spark 4.1 sees: it is asked without being told where the query is."""

import pickle

import pytest

from kbroker.broker_process import BrokerProcess
from spark_connector.columns import ColumnPlan
from spark_connector.read_options import read_options
from tests.kbroker.client.topics import create_topic, produce_values
from tests.spark_connector.schemas import plain_schema

stream_reader_41 = pytest.importorskip("spark_connector.stream_reader_41")
PLAN = ColumnPlan(plain_schema(), tuple(plain_schema().names))


def test_the_reader_remembers_where_the_query_is(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 10)
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic_name}
    options = read_options({**given, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}, streaming=True)
    reader = pickle.loads(pickle.dumps(stream_reader_41.StreamReader41(options, PLAN)))
    start = reader.initialOffset()
    assert start == {topic_name: {"0": 0}}
    ends = []
    while (end := reader.latestOffset()) != start:
        shares = reader.partitions(start, end)
        assert sum(batch.num_rows for share in shares for batch in reader.read(share)) > 0
        reader.commit(end)
        ends.append(end[topic_name]["0"])
        start = end
    reader.stop()
    assert ends == [4, 8, 10]


def test_after_a_restart_the_first_batch_goes_to_the_end(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 10)
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic_name, "maxOffsetsPerTrigger": "4"}
    reader = stream_reader_41.StreamReader41(read_options(given, streaming=True), PLAN)
    assert reader.latestOffset() == {topic_name: {"0": 10}}
    shares = reader.partitions({topic_name: {"0": 7}}, {topic_name: {"0": 10}})
    assert [(each.start, each.end) for share in shares for each in share.ranges] == [(7, 10)]
    reader.stop()
