"""`exactlyOnce=true` in a real Spark whose drivers and tasks die: each row once for who reads what is committed.

A driver dies by an exception at one point of its commit, and is not asked to abort: to the brokers, to the ledger and
to the checkpoint that is a process that ended there. Tasks are killed for good. Each start goes on from the last death.
Other points are tried without Spark, in tests/spark_connector/test_exactly_once.py.
"""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.client.plain_cluster import PlainCluster
from kbroker.client.plain_transactions import PlainTransactions
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.messages.offsets import LATEST
from tests.kbroker.client.topics import create_topic, produce_values
from tests.spark.queries import run_to_the_end
from tests.spark.test_read import read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
pytest.importorskip("pyspark.sql.datasource")
source = pytest.importorskip("kbroker.spark_connector.source")
writer = pytest.importorskip("kbroker.spark_connector.exactly_once_writer")
RangeReader = pytest.importorskip("kbroker.client.range_reader").RangeReader
POINTS = ("before the decision", "after one end", "after the commit")


def mortal_source(folder: Path) -> Any:
    """The format `mortal`: as `kbroker`, but its drivers and tasks die once where files in `folder` say so."""
    wishes = str(folder)

    def takes(wish: str) -> bool:
        try:
            os.rename(f"{wishes}/{wish}", f"{wishes}/{wish} - done")
        except FileNotFoundError:
            return False
        return True

    class MortalWriter(writer.ExactlyOnceStreamWriter):  # type: ignore[misc,name-defined]
        def write(self, iterator: Iterator[Any]) -> Any:
            if takes("task while it writes"):
                super().write(dying_after(iterator))
            done = super().write(iterator)
            if done.rows.rows and takes("task after its flush"):
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        def commit(self, messages: Any, batchId: int) -> None:
            whole_write, whole_end = PlainTransactions.write, PlainTransactions.end

            def write(self: Any, *arguments: Any) -> None:
                if takes("before the decision"):
                    raise SystemError("died")
                whole_write(self, *arguments)

            def end(self: Any, owners: Any, *, commit: bool) -> Any:
                if not owners[0].transactional_id.endswith("driver"):
                    assert len(owners) > 1, "too few tasks to show anything"
                    if takes("after one end"):
                        whole_end(self, owners[:1], commit=commit)
                        raise SystemError("died")
                return whole_end(self, owners, commit=commit)

            PlainTransactions.write, PlainTransactions.end = write, end  # type: ignore[assignment, method-assign]
            try:
                super().commit(messages, batchId)
            finally:
                PlainTransactions.write, PlainTransactions.end = whole_write, whole_end  # type: ignore[method-assign]
            if takes("after the commit"):
                raise SystemError("died")

        def abort(self, messages: Any, batchId: int) -> None:
            """The dead abort nothing."""

    class MortalSource(source.KbrokerDataSource):  # type: ignore[misc,name-defined]
        @classmethod
        def name(cls) -> str:
            return "mortal"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            made = super().streamWriter(schema, overwrite)
            return MortalWriter(made.options, made.layout)

    return MortalSource


def dying_after(iterator: Iterator[Any]) -> Iterator[Any]:
    yield next(iterator)
    os.kill(os.getpid(), signal.SIGKILL)


def values_of(bootstrap: str, topic: str) -> list[int]:
    """All that is committed; nothing that is open may hide more."""
    with PlainCluster(bootstrap, {"isolation_level": "read_committed"}, retry_for=20) as cluster:
        ends = cluster.offsets(cluster.partitions([topic]), LATEST, read_committed=False)
        readers = [RangeReader(cluster, *place, 0, end) for place, end in ends.items() if end]
        return sorted(int(value) for each in readers for batch in each for value in batch["value"].to_pylist())


def test_rows_come_once_whoever_dies_and_wherever(
    spark: Any, broker: BrokerProcess, topic_name: str, tmp_path: Path
) -> None:
    target, shared = f"{topic_name}-out", {"kafka.bootstrap.servers": broker.bootstrap}
    create_topic(broker.bootstrap, topic_name, partitions=2)
    create_topic(broker.bootstrap, target, partitions=2)
    spark.dataSource.register(mortal_source(tmp_path))
    sent: list[int] = []

    def run(*wishes: str, tasks: int) -> str:
        """Send more, and run the query to the end of it or to its death; returns what ended it."""
        for partition in range(2):
            more = range(len(sent), len(sent) + 10)
            produce_values(broker.bootstrap, topic_name, partition, [b"%d" % n for n in more])
            sent.extend(more)
        for wish in wishes:
            (tmp_path / wish).touch()
        reading = {"subscribe": topic_name, "startingOffsets": "earliest", "minPartitions": str(tasks)}
        frame = spark.readStream.format("kbroker").options(**reading, **shared).load().select("value")
        options = {"topic": target, "exactlyOnce": "true", "checkpointLocation": str(tmp_path / "checkpoint"), **shared}
        said = ""
        try:
            run_to_the_end(frame.writeStream.format("mortal").options(**options))
        except Exception as error:
            said = str(error)
        assert not [wish for wish in wishes if (tmp_path / wish).exists()], f"nobody died of it: {said}"
        return said

    assert run("task while it writes", "task after its flush", tasks=2) == ""
    assert values_of(broker.bootstrap, target) == sent
    for number, point in enumerate(POINTS):
        assert "died" in run(point, tasks=2 + number)
    assert run(tasks=2) == ""
    assert values_of(broker.bootstrap, target) == sent
    with PlainCluster(broker.bootstrap) as cluster:
        assert PlainTransactions(cluster).open_ones("kbroker-spark-") == []


def test_a_checkpoint_that_was_set_back_ends_the_query_and_writes_nothing(
    spark: Any, broker: BrokerProcess, topic_name: str, tmp_path: Path
) -> None:
    target, shared = f"{topic_name}-out", {"kafka.bootstrap.servers": broker.bootstrap}
    create_topic(broker.bootstrap, topic_name, partitions=1)
    create_topic(broker.bootstrap, target, partitions=1)
    checkpoint, sent = tmp_path / "checkpoint", 0

    def run(more: int = 0) -> None:
        nonlocal sent
        if more:
            produce_values(broker.bootstrap, topic_name, 0, [b"%d" % n for n in range(sent, sent + more)])
            sent += more
        reading = {"subscribe": topic_name, "startingOffsets": "earliest"}
        frame = spark.readStream.format("kbroker").options(**reading, **shared).load().select("value")
        options = {"topic": target, "exactlyOnce": "true", "checkpointLocation": str(checkpoint), **shared}
        run_to_the_end(frame.writeStream.format("kbroker").options(**options))

    def set_back(to: str) -> None:
        shutil.rmtree(checkpoint)
        shutil.copytree(tmp_path / to, checkpoint)

    run(more=5)
    shutil.copytree(checkpoint, tmp_path / "first")
    run(more=5)
    shutil.copytree(checkpoint, tmp_path / "second")
    set_back("first")
    with pytest.raises(Exception, match="batch 1 comes with 8 rows, but 5 are written"):
        run(more=3)
    set_back("second")
    run()
    set_back("first")
    with pytest.raises(Exception, match="batch 1 begins, but batch 2 of this query"):
        run()
    assert values_of(broker.bootstrap, target) == list(range(13))


def test_a_frame_is_written_whole_or_not_at_all_and_spark_reads_it_so(
    spark: Any, broker: BrokerProcess, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=2)
    options = {"topic": topic_name, "exactlyOnce": "true", "kafka.bootstrap.servers": broker.bootstrap}
    good = spark.range(20, numPartitions=3).selectExpr("string(id) AS value")
    # One task: another that still runs when the job is given up may leave its transaction open for a while.
    bad = good.coalesce(1).selectExpr("IF(value = '13', string(1 / 0), value) AS value")
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        bad.write.format("kbroker").mode("append").options(**options).save()
    assert values_of(broker.bootstrap, topic_name) == []
    good.write.format("kbroker").mode("append").options(**options).save()
    assert values_of(broker.bootstrap, topic_name) == list(range(20))
    committed = read(spark, broker, subscribe=topic_name, **{"kafka.isolation.level": "read_committed"})
    assert committed.selectExpr("count(*)", "count(DISTINCT value)").collect()[0] == (20, 20)
    spark.range(0).selectExpr("string(id) AS value").write.format("kbroker").mode("append").options(**options).save()
