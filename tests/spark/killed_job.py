"""What test_killed_queries.py runs in a process of its own: one start of a query that writes each row once.

    killed_job.py '{"bootstrap": …, "topic": …, "target": …, "folder": …, "frame": …, "tasks": …, "conf": {…}}'

Whoever passes by a step for which there is a file FOLDER/<step> does what it says, once: the file is renamed first. The
driver dies by SIGKILL, Python and JVM and all that they have started; or it stands still; or an executor dies.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr, window

from kbroker import Producer
from kbroker.client.plain_transactions import PlainTransactions
from kbroker.spark_connector.exactly_once_writer import ExactlyOnceStreamWriter
from kbroker.spark_connector.source import KbrokerDataSource

given = json.loads(sys.argv[1])
folder, driver = given["folder"], os.getpid()
SHARED = {"kafka.bootstrap.servers": given["bootstrap"]}
LIMIT_S = 600


def comes_to(step: str) -> bool:
    """Whether something is to happen at this step."""
    wish = Path(folder) / step
    try:
        wish.rename(wish.with_name(f"{step} - done"))
    except FileNotFoundError:
        return False
    return True


def end_all(*processes: Any) -> None:
    """Kill them, parents first, and this process."""
    for process in processes:
        if process.pid != os.getpid():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(step: str) -> None:
    """End the driver if this is the step at which it is to die."""
    if comes_to(step):
        end_all(psutil.Process(driver), *psutil.Process(driver).children(recursive=True))


def wait_at(step: str) -> None:
    """Stand still, if this is the step, until somebody says to go on."""
    if comes_to(step):
        deadline = time.monotonic() + LIMIT_S
        while not (Path(folder) / "go on").exists() and time.monotonic() < deadline:
            time.sleep(0.05)


def is_beside_another() -> None:
    """Of the first task that comes here stand still; another attempt of it sees whether this one is still there."""
    context = TaskContext.get()
    assert context is not None
    standing = Path(folder) / f"first attempt of {context.partitionId()}"
    if context.attemptNumber() and standing.exists() and psutil.pid_exists(int(standing.read_text())):
        (Path(folder) / "beside another").touch()
    elif not context.attemptNumber() and comes_to("one attempt stands still"):
        standing.write_text(str(os.getpid()))
        time.sleep(LIMIT_S)


def executor_dies_at(step: str) -> None:
    """End the executor, the parent of our daemon, if this is the step."""
    if comes_to(step):
        end_all(psutil.Process(psutil.Process(os.getppid()).ppid()))


class MortalWriter(ExactlyOnceStreamWriter):
    """Passes by each step of a micro-batch."""

    def __reduce__(self) -> tuple[Any, ...]:
        is_beginning = self._term is None
        reduced = super().__reduce__()
        if is_beginning:
            die_at("driver has begun")
        return reduced

    def write(self, iterator: Iterator[Any]) -> Any:
        whole = Producer.hand_over

        def hand_over(self: Any) -> Any:
            executor_dies_at("executor while it writes")
            return whole(self)

        with mock.patch.object(Producer, "hand_over", hand_over):
            done: Any = super().write(iterator)
        if done.owner is not None:
            is_beside_another()
            die_at("task has flushed")
            executor_dies_at("executor after its flush")
        return done

    def commit(self, messages: Any, batchId: int) -> None:
        whole_write, whole_end = PlainTransactions.write, PlainTransactions.end

        def write(self: Any, *arguments: Any) -> None:
            wait_at("driver stands still")
            die_at("before the decision")
            whole_write(self, *arguments)
            die_at("decision is sent")

        def end(self: Any, owners: Any, *, commit: bool) -> Any:
            is_driver = owners[0].transactional_id.endswith("driver")
            if not is_driver and (Path(folder) / "one task is committed").exists():
                assert len(owners) > 1, "too few tasks to show anything"
                whole_end(self, owners[:1], commit=commit)
                die_at("one task is committed")
            ended = whole_end(self, owners, commit=commit)
            die_at("decision is committed" if is_driver else "all tasks are committed")
            return ended

        with mock.patch.multiple(PlainTransactions, write=write, end=end):
            super().commit(messages, batchId)
        die_at("batch is done")


class MortalSource(KbrokerDataSource):
    """The format `mortal`: as `kbroker`, but for its end."""

    @classmethod
    def name(cls) -> str:
        return "mortal"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        made = super().streamWriter(schema, overwrite)
        return MortalWriter(made.options, made.layout)


def read(spark: Any, column: str, **more: str) -> Any:
    """The numbers of the topic, of transactions that are committed."""
    options = {"subscribe": given["topic"], "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    options |= {"minPartitions": str(given["tasks"])} | more
    frame = spark.readStream.format("kbroker").options(**options, **SHARED).load()
    return frame.selectExpr(f"CAST(CAST(value AS STRING) AS INT) AS {column}")


def rows(spark: Any) -> Any:
    """What the query writes: numbers as they come, each joined to itself, or how many come in two seconds."""
    numbers = read(spark, "number", commitOffsetsToGroup=f"{given['target']}-{given['frame']}")
    if given["frame"] == "counts":
        timed = numbers.selectExpr("timestamp_seconds(number) AS time").withWatermark("time", "0 seconds")
        counts = timed.groupBy(window("time", "2 seconds")).count()
        return counts.selectExpr("CAST(unix_seconds(window.start) * 1000 + count AS STRING) AS value")
    if given["frame"] == "joined":
        numbers = numbers.join(read(spark, "other"), on=expr("number = other")).select("number")
    return numbers.selectExpr("CAST(number AS STRING) AS value")


def main() -> None:
    builder = SparkSession.builder.config("spark.log.level", "ERROR")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.sql.shuffle.partitions", "2")
    for key, value in given["conf"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(MortalSource)
    options = {"topic": given["target"], "exactlyOnce": "true", "checkpointLocation": f"{folder}/checkpoint", **SHARED}
    writer = rows(spark).writeStream.format("mortal").options(**options)
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


main()
