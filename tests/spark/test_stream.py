"""`spark.readStream.format("kbroker")` and `writeStream`: exact offsets, limits, recovery."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.spark_connector.stream_offsets import from_json
from tests.spark.queries import run_to_the_end
from tests.spark.test_read import ROWS, confluent_kafka, create, read, send

datasource = pytest.importorskip("pyspark.sql.datasource")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

needs_limits = pytest.mark.skipif(
    not hasattr(datasource.DataSourceStreamReader, "getDefaultReadLimit"),
    reason="a query's first micro-batch has no limits in Spark 4.1",
)

KILLED_QUERY = """
import sys
from pyspark.sql import SparkSession
bootstrap, topic, folder = sys.argv[1:]
builder = SparkSession.builder.master("local[2]")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.log.level", "ERROR").getOrCreate()
rows = spark.readStream.format("kbroker").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "100").load()
query = rows.selectExpr("partition", "offset").writeStream.format("parquet").option("path", folder + "/out")
query = query.option("checkpointLocation", folder + "/checkpoint").trigger(processingTime="0 seconds")
query.start().awaitTermination()
"""


def stream(spark: Any, broker: BrokerProcess, **options: str) -> Any:
    reader = spark.readStream.format("kbroker").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.option("startingOffsets", "earliest").options(**options).load()


def run(frame: Any, sink: str, checkpoint: Path, **options: str) -> Any:
    """Run a query until it has read all there is."""
    return run_to_the_end(
        frame.writeStream.format(sink).option("checkpointLocation", str(checkpoint)).options(**options)
    )


def last_offsets(checkpoint: Path) -> Any:
    newest = max(int(file.name) for file in (checkpoint / "offsets").iterdir() if file.name.isdigit())
    return json.loads((checkpoint / "offsets" / str(newest)).read_text().splitlines()[-1])


@needs_limits
def test_a_query_reads_exactly_what_is_there_in_limited_batches_and_goes_on_from_its_checkpoint(
    spark: Any, broker: BrokerProcess, topic_name: str, tmp_path: Path
) -> None:
    create(broker, topic_name)
    send(broker, topic_name, rows=300)
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "output"
    options = {"subscribe": topic_name, "maxOffsetsPerTrigger": "120", "commitOffsetsToGroup": topic_name}
    query = run(stream(spark, broker, **options), "parquet", checkpoint, path=str(output))
    assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [120, 120, 60]
    newest = {topic_name: {"0": 100, "1": 100, "2": 100}}
    assert json.loads(query.recentProgress[0]["sources"][0]["latestOffset"]) == newest, "what tools see as lag"
    assert from_json(last_offsets(checkpoint)) == from_json(newest)
    send(broker, topic_name, rows=30)
    run(stream(spark, broker, **options), "parquet", checkpoint, path=str(output))
    counted = spark.read.parquet(str(output)).selectExpr("count(*)", "count(DISTINCT partition, offset)").collect()[0]
    assert counted == (330, 330)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic_name})
    try:
        places = [confluent_kafka.TopicPartition(topic_name, number) for number in range(3)]
        assert [place.offset for place in consumer.committed(places, timeout=30)] == [110, 110, 110]
    finally:
        consumer.close()


def test_a_query_from_topic_to_topic_writes_each_row_once(
    spark: Any, broker: BrokerProcess, topic_name: str, tmp_path: Path
) -> None:
    create(broker, topic_name)
    create(broker, f"{topic_name}-out")
    send(broker, topic_name)
    frame = stream(spark, broker, subscribe=topic_name).selectExpr("key", "value AS original", "offset")
    target = {"topic": f"{topic_name}-out", "valueFormat": "json", "kafka.bootstrap.servers": broker.bootstrap}
    run(frame.selectExpr("key", "string(original) AS text", "offset"), "kbroker", tmp_path, **target)
    values = read(spark, broker, subscribe=f"{topic_name}-out").selectExpr("get_json_object(string(value), '$.text')")
    assert values.count() == ROWS
    assert values.distinct().count() == ROWS - ROWS // 100 + 1, "each value once, and null"


@needs_limits
def test_a_query_killed_at_any_moment_loses_and_doubles_nothing(
    spark: Any, broker: BrokerProcess, topic_name: str, tmp_path: Path
) -> None:
    create(broker, topic_name)
    send(broker, topic_name)
    arguments = [sys.executable, "-c", KILLED_QUERY, broker.bootstrap, topic_name, str(tmp_path)]
    child = subprocess.Popen(arguments, start_new_session=True)
    try:
        deadline = time.monotonic() + 300
        while not (tmp_path / "checkpoint" / "commits" / "2").exists():
            assert child.poll() is None
            assert time.monotonic() < deadline, "the query made no progress"
            time.sleep(0.05)
    finally:
        os.killpg(child.pid, signal.SIGKILL)  # the driver, its JVM and its workers at once
        child.wait()
    assert not (tmp_path / "checkpoint" / "commits" / "29").exists(), "killed too late to show anything"
    frame = stream(spark, broker, subscribe=topic_name).selectExpr("partition", "offset")
    run(frame, "parquet", tmp_path / "checkpoint", path=str(tmp_path / "out"))
    written = spark.read.parquet(str(tmp_path / "out"))
    assert written.selectExpr("count(*)", "count(DISTINCT partition, offset)").collect()[0] == (ROWS, ROWS)


def test_an_option_that_a_stream_cannot_have_is_told_in_words(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="endingOffsets cannot be given in a streaming read"):
        run(stream(spark, broker, subscribe="t", endingOffsets="latest"), "noop", tmp_path)
