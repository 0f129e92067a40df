"""Arrow batches to topics, as a task of a write sends them."""

from typing import Any

import pytest

from kbroker.client.errors import InvalidTopicError
from kbroker.client.plain_cluster import PlainCluster
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.records.partitioner import partition_for_key
from kbroker.spark_connector.write_options import WriteOptions
from tests.kbroker.client.topics import create_topic
from tests.spark_connector.registries import serving

pa = pytest.importorskip("pyarrow")
row_sender = pytest.importorskip("kbroker.spark_connector.row_sender")
sink_layout = pytest.importorskip("kbroker.spark_connector.sink_layout")
range_reader = pytest.importorskip("kbroker.client.range_reader")


def rows_of(broker: BrokerProcess, topic: str, partition: int, count: int) -> list[dict[str, Any]]:
    with PlainCluster(broker.bootstrap, retry_for=10) as cluster:
        reader = range_reader.RangeReader(cluster, topic, partition, 0, count, include_headers=True)
        return [row for batch in reader for row in batch.to_pylist()]


def send(broker: BrokerProcess, columns: dict[str, Any], layout: dict[str, Any], **options: Any) -> Any:
    batch = pa.record_batch(columns)
    placed = sink_layout.SinkLayout(names=tuple(columns), **layout)
    return row_sender.send_rows(WriteOptions(broker.bootstrap, **options), placed, [batch])


def test_all_columns_of_a_record_arrive(broker: BrokerProcess, topic_name: str) -> None:
    for suffix in ("a", "b"):
        create_topic(broker.bootstrap, f"{topic_name}-{suffix}", partitions=2)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns = {
        "topic": pa.array([f"{topic_name}-a", f"{topic_name}-b", f"{topic_name}-a"]),
        "key": pa.array(["k", None, "k"]),
        "value": pa.array([b"1", b"2", None]),
        "partition": pa.array([1, 0, 1], pa.int32()),
        "headers": pa.array([[{"key": "h", "value": b"x"}], None, None], headers),
    }
    written = send(broker, columns, {name: name for name in columns})
    assert written.rows == 3
    assert written.bytes > 0
    assert written.offsets == {(f"{topic_name}-a", 1): (0, 1), (f"{topic_name}-b", 0): (0, 0)}
    [first, second] = rows_of(broker, f"{topic_name}-a", 1, 2)
    assert (first["key"], first["value"], first["headers"]) == (b"k", b"1", [{"key": "h", "value": b"x"}])
    assert (second["value"], second["headers"]) == (None, None)


def test_rows_without_a_partition_go_where_their_key_says(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=2)
    columns = {"key": ["k"] * 4, "value": ["v"] * 4, "partition": pa.array([0, 1, None, None], pa.int32())}
    layout = {name: name for name in columns}
    offsets = send(broker, columns, layout, topic=topic_name).offsets
    assert sum(last - first + 1 for first, last in offsets.values()) == 4
    assert set(offsets) == {(topic_name, 0), (topic_name, 1)}


def test_rows_keep_their_order_though_only_some_have_a_partition_of_their_own(
    broker: BrokerProcess, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=4)
    home = partition_for_key(b"k", 4)
    columns = {"key": ["k"] * 6, "value": list("012345"), "partition": pa.array([None, home] * 3, pa.int32())}
    assert send(broker, columns, {name: name for name in columns}, topic=topic_name).offsets == {
        (topic_name, home): (0, 5)
    }
    assert [row["value"] for row in rows_of(broker, topic_name, home, 6)] == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_typed_columns_become_json_and_null_structs_stay_null(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    columns = {"carrier": ["UA", "AA"], "delay": pa.array([2, None], pa.int32())}
    layout = {"key": "carrier", "fields": ("carrier", "delay")}
    send(broker, columns, layout, topic=topic_name, value_format="json")
    structs = pa.array([{"delay": 5}, None], pa.struct([("delay", pa.int64())]))
    send(broker, {"value": structs}, {"value": "value"}, topic=topic_name, value_format="json")
    rows = rows_of(broker, topic_name, 0, 4)
    assert [row["value"] for row in rows] == [
        b'{"carrier":"UA","delay":2}',
        b'{"carrier":"AA","delay":null}',
        b'{"delay":5}',
        None,
    ]
    assert [row["key"] for row in rows] == [b"UA", b"AA", None, None]


def test_rows_that_are_not_taken_are_an_error_with_place_and_reason(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    places = {"value": "value", "partition": "partition"}
    with pytest.raises(row_sender.RowsNotWritten, match=f"{topic_name}: there is no partition 7"):
        send(broker, {"value": ["v"], "partition": pa.array([7], pa.int32())}, places, topic=topic_name)
    with pytest.raises(row_sender.RowsNotWritten, match='row 1: the column "topic" is null'):
        send(broker, {"value": ["v", "v"], "topic": [topic_name, None]}, {"value": "value", "topic": "topic"})
    with pytest.raises(row_sender.RowsNotWritten, match="row 0 has 2000000 bytes"):
        send(broker, {"value": [b"x" * 2_000_000]}, {"value": "value"}, topic=topic_name)


def test_a_task_asks_the_registry_once_for_a_topics_schema(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_sender, "GATHERED_BYTES", 1)
    create_topic(broker.bootstrap, topic_name, partitions=1)
    schema = '{"type":"record","name":"V","fields":[{"name":"a","type":"long"}]}'
    layout = sink_layout.SinkLayout(names=("a",), fields=("a",))
    with serving({f"/subjects/{topic_name}-value/versions/latest": {"id": 7, "schema": schema}}) as fake:
        options = WriteOptions(
            broker.bootstrap, topic=topic_name, value_format="avro", registry=fake.url, avro_is_framed=True
        )
        row_sender.send_rows(options, layout, [pa.record_batch({"a": pa.array([0])})] * 2)
        assert len(fake.asked) == 1
    assert [row["value"] for row in rows_of(broker, topic_name, 0, 2)] == [b"\0\0\0\0\x07\0"] * 2


def test_rows_of_a_given_schema_are_framed_with_that_schemas_id(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    old, newest = (
        f'{{"type":"record","name":"V","fields":[{{"name":"a","type":"{kind}"}}]}}' for kind in ("int", "long")
    )
    subject = f"/subjects/{topic_name}-value"
    known = {f"{subject}/versions/latest": {"id": 7, "schema": newest}, f"{subject} {old}": {"id": 3, "version": 1}}
    avro = {"value_format": "avro", "avro_is_framed": True, "topic": topic_name}
    with serving(known) as fake:
        send(broker, {"a": pa.array([0])}, {"fields": ("a",)}, registry=fake.url, value_schema=old, **avro)
        with pytest.raises(RuntimeError, match=r"does not have the schema that is given as valueSchema"):
            send(broker, {"a": pa.array([0])}, {"fields": ("a",)}, registry=fake.url, value_schema='"int"', **avro)
    assert [row["value"] for row in rows_of(broker, topic_name, 0, 1)] == [b"\0\0\0\0\x03\0"]


def test_what_the_broker_refuses_is_told_with_its_reason(broker: BrokerProcess, topic_name: str) -> None:
    with pytest.raises(InvalidTopicError, match="no/topic"):
        send(broker, {"value": ["v"]}, {"value": "value"}, topic="no/topic", client={"max.block.ms": "500"})
    with pytest.raises(ValueError, match="did you mean 'compression'"):
        send(broker, {"value": ["v"]}, {"value": "value"}, topic=topic_name, client={"compresion": "zstd"})
