"""The reader that Spark 4.1 sees: it is asked without being told where the query is."""

import pickle
from typing import Any

import pytest

from kbroker import Admin, TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from kbroker.spark_connector.columns import ColumnPlan
from kbroker.spark_connector.planning import DataLossError
from kbroker.spark_connector.read_options import read_options
from kbroker.spark_connector.stream_offsets import from_json, topic_ids_in
from tests.kbroker.client.topics import create_topic, produce_values
from tests.spark_connector.schemas import plain_schema

stream_reader_41 = pytest.importorskip("kbroker.spark_connector.stream_reader_41")
PLAN = ColumnPlan(plain_schema(), tuple(plain_schema().names))


def make_reader(broker: BrokerProcess, topic: str, **further: str) -> Any:
    selection = {"subscribe": topic} if topic else {}
    given = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest", **selection, **further}
    return stream_reader_41.StreamReader41(read_options({**given, "maxOffsetsPerTrigger": "4"}, streaming=True), PLAN)


def test_the_reader_remembers_where_the_query_is_and_limits_all_batches_but_the_first(
    broker: BrokerProcess, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 10)
    reader = pickle.loads(pickle.dumps(make_reader(broker, topic_name)))
    ends = [reader.latestOffset()]
    start = reader.initialOffset()  # Spark asks for it once it knows that there is something to read
    assert from_json(start) == {(topic_name, 0): 0}
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
    assert from_json(reader.latestOffset()) == from_json(end)
    with pytest.raises(DataLossError, match=rf"{topic_name}-0: offsets \[7, 10\) were asked for, \[8, 10\) are there"):
        reader.partitions(seen, end)
    reader.stop()


def test_a_topic_made_again_while_the_query_was_down_is_told_by_its_id_however_large_it_is(
    broker: BrokerProcess, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"old"] * 4)
    first = make_reader(broker, topic_name)
    begin = first.initialOffset()
    seen = first.latestOffset()
    first.stop()
    with Admin(broker.bootstrap) as admin:
        admin.delete_topics([topic_name])
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"new"] * 6)
    strict, loose = make_reader(broker, topic_name), make_reader(broker, topic_name, failOnDataLoss="false")
    with pytest.raises(DataLossError, match=f"topic {topic_name} was deleted and made again"):
        strict.partitions(begin, seen)  # the last micro-batch, not finished when the query ended
    with pytest.raises(DataLossError, match=f"topic {topic_name} was deleted and made again"):
        strict.latestOffset()
    assert loose.partitions(begin, seen) == []
    without = loose.latestOffset()
    assert without == {}
    assert loose.partitions(seen, without) == []
    again = loose.latestOffset()
    assert topic_ids_in(again)[topic_name] != topic_ids_in(seen)[topic_name]
    rows = [
        row["value"] for share in loose.partitions(without, again) for b in loose.read(share) for row in b.to_pylist()
    ]
    assert rows == [b"new"] * 4, "four at once are wanted"
    for reader in (strict, loose):
        reader.stop()


@pytest.mark.parametrize("grown_to", [3, 9])
def test_a_topic_made_again_is_told_also_where_spark_asks_for_the_end_before_it_says_where_the_query_is(
    broker: BrokerProcess, topic_name: str, grown_to: int
) -> None:
    """So Spark 4.1 goes on after a micro-batch that was committed."""
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"old"] * 4)
    first = make_reader(broker, topic_name)
    first.initialOffset()
    seen = first.latestOffset()
    first.stop()
    with Admin(broker.bootstrap) as admin:
        admin.delete_topics([topic_name])
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"new"] * grown_to)
    strict, loose = make_reader(broker, topic_name), make_reader(broker, topic_name, failOnDataLoss="false")
    end = strict.latestOffset()
    with pytest.raises(DataLossError, match=f"topic {topic_name} was deleted and made again"):
        strict.partitions(seen, end)
    shares = loose.partitions(seen, loose.latestOffset())
    assert sum(batch.num_rows for share in shares for batch in loose.read(share)) == grown_to
    for reader in (strict, loose):
        reader.stop()


def test_a_topic_that_went_away_is_told_also_where_spark_asks_for_the_end_before_it_says_where_the_query_is(
    broker: BrokerProcess, topic_name: str
) -> None:
    create_topic(broker.bootstrap, f"{topic_name}-a", partitions=1)
    reader = make_reader(broker, "", subscribePattern=f"{topic_name}-.*")
    seen = {f"{topic_name}-a": {"0": 0}, f"{topic_name}-b": {"0": 4}}
    with pytest.raises(DataLossError, match=f"{topic_name}-b-0 is gone"):
        reader.partitions(seen, reader.latestOffset())
    reader.stop()


def test_a_checkpoint_without_ids_goes_on_and_gets_them_with_its_next_offsets(
    broker: BrokerProcess, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 2)
    reader = make_reader(broker, topic_name)
    old = {topic_name: {"0": 2}}
    reader.partitions(old, old)
    assert reader.latestOffset() == old, "no micro-batch of nothing but ids"
    produce_values(broker.bootstrap, topic_name, 0, [b"v"])
    end = reader.latestOffset()
    assert from_json(end) == {(topic_name, 0): 3}
    assert list(topic_ids_in(end)) == [topic_name]
    reader.stop()
