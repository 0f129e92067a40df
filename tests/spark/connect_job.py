"""What test_connect.py runs in a process of its own: a Spark Connect server and its client, asked several things.

    connect_job.py BOOTSTRAP TOPIC FOLDER

Prints a JSON object.
"""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from kbroker import spark_connector

bootstrap, topic, folder = sys.argv[1:]


def read(spark: Any, name: str = topic) -> Any:
    """A topic as a frame."""
    return spark.read.format("kbroker").option("kafka.bootstrap.servers", bootstrap).option("subscribe", name).load()


def copy(spark: Any) -> None:
    """Write the rows of one partition to the other topic."""
    selected = read(spark).where("partition = 0").select("key", "value").write.format("kbroker").mode("append")
    selected.option("kafka.bootstrap.servers", bootstrap).option("topic", f"{topic}-copy").save()


def main() -> None:
    builder = SparkSession.builder.remote("local[2]")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    found: dict[str, Any] = {"session": type(spark).__module__}
    rows = read(spark)
    found["read"] = rows.count()
    found["columns"] = rows.columns
    spark.sql(
        f"CREATE TEMPORARY VIEW rows USING kbroker OPTIONS"
        f" ('kafka.bootstrap.servers' '{bootstrap}', subscribe '{topic}')"
    )
    found["view"] = spark.sql("SELECT count(*) AS rows FROM rows WHERE partition = 1").collect()[0].rows
    frame = spark.readStream.format("kbroker").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    writer = frame.option("startingOffsets", "earliest").load().select("key", "value").writeStream.format("kbroker")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", f"{topic}-copy")
    query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
    query.awaitTermination()
    found["streamed"] = read(spark, f"{topic}-copy").count()
    copy(spark)
    found["written"] = read(spark, f"{topic}-copy").count()
    spark.conf.set(spark_connector.FILTER_PUSHDOWN, "true")
    found["the setting alone"] = [
        spark.sql(f"SELECT count(*) AS rows FROM rows {which}").collect()[0].rows
        for which in ("WHERE partition = 1", "", "WHERE partition = 1")
    ]
    spark.conf.set(spark_connector.FILTER_PUSHDOWN, "false")
    copied = read(spark_connector.enable(spark), f"{topic}-copy")
    found["enabled"] = [copied.count()]
    copy(spark)
    found["enabled"].append(copied.count())
    spark.stop()
    print(json.dumps(found))


main()
