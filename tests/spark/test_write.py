"""`df.write.format("kbroker")`: frames to topics, read back by our own source."""

from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.spark.test_read import create, read
from tests.spark_connector.test_producers import producer_ids

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def write(frame: Any, broker: BrokerProcess, mode: str = "append", **options: str) -> None:
    frame.write.format("kbroker").option("kafka.bootstrap.servers", broker.bootstrap).options(**options).mode(
        mode
    ).save()


def test_a_frame_with_sparks_columns_arrives_and_copies_to_another_topic(
    spark: Any, broker: BrokerProcess, topic_name: str
) -> None:
    create(broker, topic_name)
    create(broker, f"{topic_name}-copy")
    frame = spark.range(3_000).selectExpr(
        f"'{topic_name}' AS topic",
        "CASE WHEN id % 2 = 0 THEN CAST(id AS STRING) END AS key",
        "CASE WHEN id % 10 > 0 THEN CAST(CAST(id AS STRING) AS BINARY) END AS value",
        "CASE WHEN id % 3 > 0 THEN CAST(id % 3 AS INT) END AS partition",
        "array(struct('id' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value)) AS headers",
    )
    write(frame.repartition(2), broker)
    rows = read(spark, broker, subscribe=topic_name, includeHeaders="true")
    wanted = "count(*) AS rows, count(key) AS keys, count(value) AS values, count(DISTINCT headers[0].value) AS ids"
    assert rows.selectExpr(*wanted.split(", ")).collect()[0] == (3_000, 1_500, 2_700, 3_000)
    write(rows, broker, topic=f"{topic_name}-copy", **{"kafka.compression.type": "lz4"})
    copy = read(spark, broker, subscribe=f"{topic_name}-copy", includeHeaders="true")
    columns = ("key", "value", "partition", "headers")
    assert copy.select(*columns).exceptAll(rows.select(*columns)).count() == 0
    assert copy.count() == 3_000


def test_many_tasks_leave_few_producers_in_a_partitions_state(
    spark: Any, broker: BrokerProcess, topic_name: str
) -> None:
    create(broker, topic_name, partitions=1)
    for _ in range(3):
        write(spark.range(64, numPartitions=16).selectExpr("CAST(id AS STRING) AS value"), broker, topic=topic_name)
    ids = set(producer_ids(broker, topic_name))
    assert 1 <= len(ids) <= 4, "two workers at a time, and never 48"


def test_typed_frames_become_json(spark: Any, broker: BrokerProcess, topic_name: str) -> None:
    create(broker, topic_name)
    frame = spark.sql("SELECT 'UA' AS carrier, 5 AS delay, TIMESTAMP '2013-01-01 05:15:00' AS at")
    write(frame, broker, topic=topic_name, valueFormat="json", keyColumn="carrier")
    [row] = read(spark, broker, subscribe=topic_name).selectExpr("string(key) key", "string(value) value").collect()
    assert row.key == "UA"
    assert row.value.startswith('{"carrier":"UA","delay":5,"at":"2013-01-01T')


@pytest.mark.parametrize(
    ("frame", "mode", "options", "said"),
    [
        ("SELECT 1 AS value", "append", {"topic": "t"}, "the column value is int"),
        ("SELECT '1' AS value", "append", {}, 'neither the option "topic"'),
        ("SELECT '1' AS value", "overwrite", {"topic": "t"}, "can only be appended to"),
        ("SELECT '1' AS value, 99 AS partition", "append", {"topic": "made-by-writing"}, "there is no partition 99"),
    ],
)
def test_what_cannot_be_written_is_told_in_words(
    spark: Any, broker: BrokerProcess, frame: str, mode: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match=said):
        write(spark.sql(frame), broker, mode, **options)
