"""What test_cluster.py runs in a process of its own: one session on executors that are processes, asked several things.

    cluster_job.py BOOTSTRAP TOPIC ROWS FOLDER

The package travels as FOLDER/kbroker.zip. The Python of executors that starts while FOLDER/no-pyarrow is there finds no
pyarrow. Prints a JSON object.
"""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from kbroker.spark_connector.source import KbrokerDataSource

bootstrap, topic, rows, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])


def make_session() -> SparkSession:
    """Two executors of one core."""
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.executor.memory", "512m")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    return builder.config("spark.log.level", "OFF").getOrCreate()


def read(spark: Any) -> Any:
    """The topic as a frame, planned anew."""
    return spark.read.format("kbroker").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).load()


def counted(frame: Any) -> Any:
    """How many rows there are, and how many different ones."""
    return list(frame.selectExpr("count(*)", "count(DISTINCT partition, offset)").collect()[0])


def error_of(frame: Any) -> str:
    """Why a frame cannot be counted."""
    try:
        return f"it was counted: {frame.count()}"
    except Exception as error:
        return str(error)


def dying_once(batches: Iterator[Any]) -> Iterator[Any]:
    """Kill the executor, our daemon's parent, in the middle of the first task; later tasks pass all rows on."""
    for batch in batches:
        try:
            os.close(os.open(folder / "killed", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            yield batch
        else:
            os.kill(psutil.Process(os.getppid()).ppid(), signal.SIGKILL)


def replace_pythons() -> None:
    """Kill the Python of all executors: they start it anew."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # a Python worker that ends meanwhile
            is_executor = "CoarseGrainedExecutorBackend" in " ".join(child.cmdline())
            for python in child.children(recursive=True) if is_executor else ():
                with contextlib.suppress(psutil.NoSuchProcess):
                    python.kill()


def streamed(spark: Any) -> int:
    """Copy the topic by a streaming query; returns how many rows arrived."""
    copy = f"{topic}-copy"
    frame = spark.readStream.format("kbroker").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    frame = frame.option("startingOffsets", "earliest").load().select("key", "value")
    writer = frame.writeStream.format("kbroker").option("kafka.bootstrap.servers", bootstrap).option("topic", copy)
    writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    copied = spark.read.format("kbroker").option("kafka.bootstrap.servers", bootstrap).option("subscribe", copy)
    return int(copied.load().count())


def main() -> None:
    spark = make_session()
    spark.sparkContext.addPyFile(str(folder / "kbroker.zip"))
    spark.dataSource.register(KbrokerDataSource)  # what Spark finds by itself would come without the file
    found: dict[str, Any] = {}
    (folder / "no-pyarrow").touch()
    found["without pyarrow"] = error_of(read(spark))
    (folder / "no-pyarrow").unlink()
    replace_pythons()
    found["executor killed"] = counted(read(spark).mapInArrow(dying_once, read(spark).schema))
    found["it was killed"] = (folder / "killed").exists()
    found["streamed"] = streamed(spark)
    spark.stop()
    print(json.dumps(found))


main()
