"""Filters that spare reading: the same rows with and without, seen in the plan."""

import contextlib
import datetime
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kbroker import spark_connector
from kbroker.dev.broker_process import BrokerProcess
from tests.spark.test_read import PARTITIONS, ROWS, TIMESTAMP_MS, create, read, send

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SETTING = spark_connector.FILTER_PUSHDOWN


@pytest.fixture
def pushing(spark: Any) -> Iterator[Any]:
    yield spark_connector.enable(spark)
    spark.conf.set(SETTING, "false")


def plan_of(frame: Any) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        frame.explain("formatted")
    return text.getvalue()


def test_each_filter_finds_the_same_rows_pushed_and_unpushed(
    pushing: Any, broker: BrokerProcess, topic_name: str
) -> None:
    create(broker, topic_name)
    send(broker, topic_name)
    middle = datetime.datetime.fromtimestamp((TIMESTAMP_MS + ROWS // 2) / 1000)
    session = f"TIMESTAMP '{middle.isoformat(sep=' ')}'"
    filters = {
        "partition = 1 AND offset >= 100 AND offset < 110": 10,
        "partition IN (0, 2) AND topic <> 'other'": 2 * ROWS // PARTITIONS,
        f"timestamp >= {session}": ROWS // 2,
        f"timestamp > {session} AND timestamp <= {session} + INTERVAL '0.010' SECOND": 10,
        f"timestamp < {session}": ROWS // 2,
        "key = X'6B65792D3330'": 1,
        "key IN (X'6B65792D3330', X'6B65792D3430')": 2,
        "topic = 'other'": 0,
    }
    for condition, rows in filters.items():
        frame = read(pushing, broker, subscribe=topic_name, maxTimestampDisorderMs="0").where(condition)
        assert frame.count() == rows, condition
        plan = plan_of(frame)
        assert "PushedFilters: [" in plan, plan
        assert "PushedFilters: []" not in plan, plan
        pushing.conf.set(SETTING, "false")
        assert read(pushing, broker, subscribe=topic_name).where(condition).count() == rows, condition
        pushing.conf.set(SETTING, "true")


def test_a_filter_on_one_partition_makes_one_task(pushing: Any, broker: BrokerProcess, topic_name: str) -> None:
    create(broker, topic_name)
    send(broker, topic_name, rows=30)
    filtered = read(pushing, broker, subscribe=topic_name).where("partition = 2 AND value IS NOT NULL")
    assert filtered.rdd.getNumPartitions() == 1
    unfiltered = read(pushing, broker, subscribe=topic_name, maxRecordsPerPartition="10")
    assert unfiltered.rdd.getNumPartitions() == PARTITIONS
    assert unfiltered.where("value = X'00'").count() == 0, "what cannot be pushed is Spark's"


def test_one_frame_serves_many_filters_and_none(pushing: Any, broker: BrokerProcess, topic_name: str) -> None:
    create(broker, topic_name)
    send(broker, topic_name, rows=300)
    frame = read(pushing, broker, subscribe=topic_name)
    first, second = frame.where("partition = 0"), frame.where("partition = 1 AND offset < 10")
    assert [first.count(), frame.count(), second.count(), frame.count()] == [100, 300, 10, 300]
    assert first.union(second).count() == 110
    assert first.union(frame).count() == 400
    assert first.join(frame.where("partition < 2"), "offset").count() == 200
    assert first.union(second).where("offset < 5").groupBy("partition").count().orderBy("partition").collect() == [
        (0, 5),
        (1, 5),
    ]
    assert [len(first.collect()), len(frame.collect()), len(first.collect())] == [100, 300, 100]
    send(broker, topic_name, rows=30)
    assert [frame.count(), first.count()] == [330, 110], "each query asks anew what there is"


def test_one_view_serves_many_filters_and_none(pushing: Any, broker: BrokerProcess, topic_name: str) -> None:
    create(broker, topic_name)
    send(broker, topic_name, rows=300)
    read(pushing, broker, subscribe=topic_name).createOrReplaceTempView("several")
    count = "(SELECT count(*) FROM several WHERE {})".format
    columns = ", ".join(map(count, ("partition = 0", "true", "offset < 7", "partition = 2 AND offset >= 90")))
    assert list(pushing.sql(f"SELECT {columns}").collect()[0]) == [100, 300, 21, 10]
    with ThreadPoolExecutor(4) as threads:
        conditions = [f"partition = {number % 3} AND offset < {number}" for number in range(12)]
        counts = threads.map(lambda each: pushing.sql(f"SELECT {count(each)}").collect()[0][0], conditions)
        assert list(counts) == list(range(12))


def test_frames_and_views_ask_anew_what_there_is_in_each_query(
    pushing: Any, broker: BrokerProcess, topic_name: str
) -> None:
    create(broker, topic_name)
    send(broker, topic_name, rows=30)
    frame = read(pushing, broker, subscribe=topic_name)
    frame.createOrReplaceTempView("of_a_frame")
    given = f"'kafka.bootstrap.servers' '{broker.bootstrap}', subscribe '{topic_name}'"
    pushing.sql(f"CREATE OR REPLACE TEMPORARY VIEW of_options USING kbroker OPTIONS ({given})")
    for pushdown in ("true", "false"):
        pushing.conf.set(SETTING, pushdown)
        for _ in range(2):
            [there] = read(pushing, broker, subscribe=topic_name).selectExpr("count(*)").collect()
            assert frame.count() == there[0]
            assert pushing.sql("SELECT count(*) FROM of_a_frame").collect() == [there]
            assert pushing.sql("SELECT count(*) FROM of_options").collect() == [there]
            send(broker, topic_name, rows=30)
