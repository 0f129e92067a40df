"""What runs on an executor."""

import pickle

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.spark_connector.columns import ColumnPlan
from kbroker.spark_connector.offset_ranges import OffsetRange
from kbroker.spark_connector.options import OptionError
from kbroker.spark_connector.read_options import read_options
from tests.kbroker.client.topics import create_topic, produce_values
from tests.spark_connector.schemas import plain_schema

tasks = pytest.importorskip("kbroker.spark_connector.tasks")


def test_a_pickled_share_of_the_read_is_read_as_planned(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"a", b"b", b"c"])
    given = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic_name,
        "kafkaConsumer.pollTimeoutMs": "9999",
    }
    plan = ColumnPlan(plain_schema(), tuple(plain_schema().names))
    share, options = pickle.loads(
        pickle.dumps((tasks.RangePartition(OffsetRange(topic_name, 0, 1, 3)), read_options(given)))
    )
    rows = [row["value"] for batch in tasks.read_range(options, plan, share) for row in batch.to_pylist()]
    assert rows == [b"b", b"c"]


def test_a_wrong_client_option_is_named() -> None:
    options = read_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t", "kafka.fetch.max.byte": "5"})
    with pytest.raises(OptionError, match=r"fetch\.max\.byte.*did you mean 'fetch_max_bytes'"):
        tasks.new_cluster(options)
