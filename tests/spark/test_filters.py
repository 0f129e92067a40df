"""Filters that spare reading: the same rows with and without, seen in the plan."""

import contextlib
import datetime
import io
from collections.abc import Iterator
from typing import Any

import pytest

import spark_connector
from kbroker.broker_process import BrokerProcess
from tests.spark.test_read import PARTITIONS, ROWS, TIMESTAMP_MS, create, read, send

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]
SETTING = "spark.sql.python.filterPushdown.enabled"


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
    unfiltered = read(pushing, broker, subscribe=topic_name)
    assert unfiltered.rdd.getNumPartitions() == PARTITIONS
    assert unfiltered.where("value = X'00'").count() == 0, "what cannot be pushed is Spark's"
