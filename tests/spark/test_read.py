"""`spark.read.format("kbroker")` against a real broker, with records that another client wrote."""

import datetime
import json
from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
confluent_kafka = pytest.importorskip("confluent_kafka")
admin_module = pytest.importorskip("confluent_kafka.admin")

PARTITIONS = 3
ROWS = 3_000
TIMESTAMP_MS = 1_700_000_000_123
TIMEOUT = 60.0


def create(broker: BrokerProcess, topic: str, partitions: int = PARTITIONS) -> None:
    admin = admin_module.AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([admin_module.NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT)


def send(broker: BrokerProcess, topic: str, codec: str = "none", rows: int = ROWS) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 20}
    )
    for number in range(rows):
        producer.produce(
            topic,
            value=None if number % 100 == 99 else b"value-%d" % number,
            key=None if number % 10 else b"key-%d" % number,
            partition=number % PARTITIONS,
            timestamp=TIMESTAMP_MS + number,
            headers=[("source", b"test"), ("empty", None)] if number % 7 == 0 else None,
        )
    assert producer.flush(TIMEOUT) == 0


def read(spark: Any, broker: BrokerProcess, **options: str) -> Any:
    reader = spark.read.format("kbroker").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.options(**options).load()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_is_read_whole_whatever_its_compression(
    spark: Any, broker: BrokerProcess, topic_name: str, codec: str
) -> None:
    create(broker, topic_name)
    send(broker, topic_name, codec)
    rows = read(spark, broker, subscribe=topic_name, includeHeaders="true", minPartitions=str(PARTITIONS))
    assert rows.rdd.getNumPartitions() == PARTITIONS
    collected = sorted(rows.collect(), key=lambda row: (row.partition, row.offset))
    assert len(collected) == ROWS
    for row in collected:
        number = row.offset * PARTITIONS + row.partition
        assert row.value == (None if number % 100 == 99 else b"value-%d" % number)
        assert row.key == (None if number % 10 else b"key-%d" % number)
        assert row.topic == topic_name
        assert row.timestampType == 0
        assert row.timestamp == datetime.datetime.fromtimestamp((TIMESTAMP_MS + number) / 1000)
        headers = None if row.headers is None else [(header.key, header.value) for header in row.headers]
        assert headers == ([("source", b"test"), ("empty", None)] if number % 7 == 0 else None)


def test_columns_and_types_are_those_of_sparks_own_source(spark: Any, broker: BrokerProcess, topic_name: str) -> None:
    create(broker, topic_name)
    columns = read(spark, broker, subscribe=topic_name).dtypes
    assert columns == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    with_headers = read(spark, broker, subscribe=topic_name, includeHeaders="true").dtypes
    assert with_headers == [*columns, ("headers", "array<struct<key:string,value:binary>>")]


def test_offsets_per_partition_bound_the_read(spark: Any, broker: BrokerProcess, topic_name: str) -> None:
    create(broker, topic_name)
    send(broker, topic_name)
    rows = read(
        spark,
        broker,
        subscribe=topic_name,
        startingOffsets=json.dumps({topic_name: {"0": 10, "1": -2, "2": 1000}}),
        endingOffsets=json.dumps({topic_name: {"0": 15, "1": 3, "2": -1}}),
    )
    offsets = sorted((row.partition, row.offset) for row in rows.select("partition", "offset").collect())
    assert offsets == [*((0, offset) for offset in range(10, 15)), (1, 0), (1, 1), (1, 2)]


def test_an_empty_topic_is_an_empty_frame(spark: Any, broker: BrokerProcess, topic_name: str) -> None:
    create(broker, topic_name)
    assert read(spark, broker, subscribe=topic_name).count() == 0


def test_patterns_and_lists_of_topics_read_them_all(spark: Any, broker: BrokerProcess, topic_name: str) -> None:
    for suffix in ("a", "b"):
        create(broker, f"{topic_name}-{suffix}")
        send(broker, f"{topic_name}-{suffix}", rows=30)
    assert read(spark, broker, subscribe=f"{topic_name}-a,{topic_name}-b").count() == 60
    assert read(spark, broker, subscribePattern=f"{topic_name}-.*").count() == 60
    assert read(spark, broker, assign=json.dumps({f"{topic_name}-a": [0]})).count() == 10


def test_offsets_that_are_gone_end_the_query_or_are_left_out_as_asked(
    spark: Any, broker: BrokerProcess, topic_name: str
) -> None:
    create(broker, topic_name, partitions=PARTITIONS)
    send(broker, topic_name, rows=30)
    admin = admin_module.AdminClient({"bootstrap.servers": broker.bootstrap})
    place = confluent_kafka.TopicPartition(topic_name, 0, 4)
    admin.delete_records([place])[place].result(TIMEOUT)
    wanted = json.dumps({topic_name: {"0": 0, "1": 0, "2": 0}})
    with pytest.raises(Exception, match=rf"{topic_name}-0: offsets \[0, 10\) were asked for, \[4, 10\) are there"):
        read(spark, broker, subscribe=topic_name, startingOffsets=wanted).count()
    assert read(spark, broker, subscribe=topic_name, startingOffsets=wanted, failOnDataLoss="false").count() == 26


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "no-such-topic"}, "UNKNOWN_TOPIC_OR_PARTITION: no-such-topic"),
        ({"subscribe": "t", "startingOffset": "earliest"}, 'did you mean "startingOffsets"'),
        ({}, "exactly one of assign, subscribe, subscribePattern"),
    ],
)
def test_what_cannot_be_read_is_told_in_words(
    spark: Any, broker: BrokerProcess, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match=said):
        read(spark, broker, **options).count()


def test_sql_views_read_topics_too(spark: Any, broker: BrokerProcess, topic_name: str) -> None:
    create(broker, topic_name)
    send(broker, topic_name, rows=30)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW flights USING kbroker OPTIONS"
        f" ('kafka.bootstrap.servers' '{broker.bootstrap}', subscribe '{topic_name}')"
    )
    assert spark.sql("SELECT count(*) AS rows FROM flights WHERE partition = 1").collect()[0].rows == 10
