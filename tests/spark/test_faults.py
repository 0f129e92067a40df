"""What goes wrong in the middle of a query: tasks and leaders killed, corrupt batches, topics made again."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from kbroker import Admin, Producer
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.records.batch import split_batches
from tests.fixtures.brokers import MakeCluster, kill_and_expire
from tests.kbroker.client.topics import produce_values
from tests.spark.queries import start_and_catch_up
from tests.spark.test_read import ROWS, create, read, send
from tests.spark.test_stream import run, stream

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
LIMIT_S = 120
MEGABYTE = 1 << 20
HUGE = 10 * MEGABYTE


def wait_for(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in time"
        time.sleep(0.05)


def fill(bootstrap: str, topic: str, megabytes: int) -> int:
    """Send values of 1 KB that do not compress; returns how many."""
    count = megabytes * 1024
    with Producer(bootstrap, acks="all", linger_ms=5) as producer:
        for _ in range(count):
            producer.send(topic, value=os.urandom(1024), partition=0)
        producer.flush()
    return count


def places(frame: Any) -> tuple[int, int]:
    """How many rows there are, and how many different ones."""
    [row] = frame.selectExpr("count(*)", "count(DISTINCT partition, offset)").collect()
    return row[0], row[1]


def in_the_middle(frame: Any, act: Callable[[Path], None], folder: Path) -> Any:
    """The frame's rows; after the first of them `act` runs, once, in the task that has more of them to come."""

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(folder / "begun", os.O_CREAT | os.O_EXCL))
                act(folder)
            yield batch

    return frame.mapInArrow(pass_on, frame.schema)


def test_a_task_whose_python_is_killed_is_tried_again_and_no_row_comes_twice(
    spark: Any, broker: BrokerProcess, topic_name: str, tmp_path: Path
) -> None:
    def kill_workers(_: Path) -> None:  # the reading one and this one, whose parent is Spark's daemon
        others = [each.pid for each in psutil.Process(os.getppid()).children() if each.pid != os.getpid()]
        for pid in [*others, os.getpid()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    create(broker, topic_name, partitions=1)
    count = fill(broker.bootstrap, topic_name, 30)
    rows = read(spark, broker, subscribe=topic_name, **{"kafka.max.partition.fetch.bytes": "200000"})
    assert places(in_the_middle(rows, kill_workers, tmp_path)) == (count, count)
    assert (tmp_path / "begun").exists()


def test_a_scan_goes_on_with_the_new_leader_when_the_old_one_dies(
    spark: Any, make_cluster: MakeCluster, topic_name: str, tmp_path: Path
) -> None:
    def wait_for_the_end_of_the_leader(folder: Path) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not (folder / "moved").exists() and time.monotonic() < deadline:
            time.sleep(0.05)

    cluster = make_cluster(2)
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(topic_name, partitions=1, replication_factor=2)
        count = fill(cluster.bootstrap, topic_name, 30)
        leader = admin.describe_topics([topic_name])[topic_name].partitions[0].leader
    rows = spark.read.format("kbroker").option("kafka.bootstrap.servers", cluster.bootstrap)
    rows = rows.option("subscribe", topic_name).option("kafka.max.partition.fetch.bytes", "200000").load()
    scan = in_the_middle(rows, wait_for_the_end_of_the_leader, tmp_path)
    found: list[tuple[int, int]] = []
    scanning = threading.Thread(target=lambda: found.append(places(scan)))
    scanning.start()
    try:
        wait_for((tmp_path / "begun").exists, "the scan")
        assert leader is not None
        kill_and_expire(cluster.broker(leader))
    finally:
        (tmp_path / "moved").touch()
        scanning.join(LIMIT_S)
    assert found == [(count, count)]


def test_a_corrupt_batch_is_named_or_left_out_with_fail_on_data_loss_false(
    spark: Any, own_broker: BrokerProcess, topic_name: str
) -> None:
    create(own_broker, topic_name, partitions=1)
    for first in (0, 10, 20):
        values = [b'{"number":%d}' % number for number in range(first, first + 10)]
        produce_values(own_broker.bootstrap, topic_name, 0, values)
    own_broker.stop()
    [log_file] = (own_broker.directory / "data" / f"{topic_name}-0").glob("*.log")
    data = bytearray(log_file.read_bytes())
    position, size = split_batches(data)[1][:2]
    data[position + size - 2] ^= 0xFF
    log_file.write_bytes(data)
    own_broker.start().wait_until_ready(LIMIT_S)
    with pytest.raises(Exception, match=f"{topic_name}-0: offset 10"):
        read(spark, own_broker, subscribe=topic_name).count()
    typed = {"subscribe": topic_name, "valueFormat": "json", "valueSchema": "number int"}
    with pytest.raises(Exception, match=f"{topic_name}-0: offset 10"):
        read(spark, own_broker, **typed, mode="PERMISSIVE").count()
    left = read(spark, own_broker, **typed, failOnDataLoss="false").selectExpr("value.number").collect()
    assert [row.number for row in left] == [*range(10), *range(20, 30)]


def test_values_of_ten_megabytes_and_absent_keys_go_there_and_back(
    spark: Any, broker: BrokerProcess, topic_name: str
) -> None:
    with Admin(broker.bootstrap) as admin:
        configs = {"max.message.bytes": str(HUGE + MEGABYTE)}
        admin.create_topic(topic_name, partitions=1, configs=configs)
    huge = spark.range(4).selectExpr(
        "CASE WHEN id % 2 = 1 THEN repeat('k', 100000) END AS key",
        f"CASE WHEN id < 3 THEN repeat(CAST(id AS STRING), {HUGE}) END AS value",
    )
    limit = {"kafka.max.request.size": str(HUGE + MEGABYTE)}
    writer = huge.coalesce(1).write.format("kbroker").mode("append").option("topic", topic_name)
    writer.option("kafka.bootstrap.servers", broker.bootstrap).options(**limit).save()
    rows = read(spark, broker, subscribe=topic_name)
    wanted = rows.selectExpr("length(key) AS key", "length(value) AS value", "string(substr(value, -1)) AS last")
    assert [tuple(row) for row in wanted.collect()] == [
        (None, HUGE, "0"),
        (100_000, HUGE, "1"),
        (None, HUGE, "2"),
        (100_000, None, None),
    ]


def test_a_topic_made_again_under_a_query_ends_it_or_is_read_from_its_first_record(
    spark: Any, broker: BrokerProcess, topic_name: str, tmp_path: Path
) -> None:
    create(broker, topic_name)
    send(broker, topic_name, rows=30)
    queries = {}
    for name, fail in (("strict", "true"), ("loose", "false")):
        frame = stream(spark, broker, subscribe=topic_name, failOnDataLoss=fail).selectExpr("partition", "offset")
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / name))
        queries[name] = start_and_catch_up(writer.option("checkpointLocation", str(tmp_path / f"{name}-checkpoint")))
    try:
        for name in queries:
            assert places(spark.read.parquet(str(tmp_path / name))) == (30, 30)
        with Admin(broker.bootstrap) as admin:
            admin.delete_topic(topic_name)
        create(broker, topic_name)
        send(broker, topic_name)  # more than there was: offsets alone would not tell
        wait_for(lambda: not queries["strict"].isActive, "the end of the strict query")
        said = str(queries["strict"].exception())
        assert "was deleted and made again" in said or "The topic was deleted" in said
        wait_for(
            lambda: spark.read.parquet(str(tmp_path / "loose")).count() >= 30 + ROWS, "the loose query's reading on"
        )
        queries["loose"].processAllAvailable()
        assert places(spark.read.parquet(str(tmp_path / "loose"))) == (30 + ROWS, ROWS)
    finally:
        for query in queries.values():
            query.stop()


def test_offsets_that_age_out_under_a_query_end_it_or_are_left_out(
    spark: Any, broker: BrokerProcess, topic_name: str, tmp_path: Path
) -> None:
    create(broker, topic_name)
    send(broker, topic_name, rows=30)
    output = {"path": str(tmp_path / "out")}
    run(stream(spark, broker, subscribe=topic_name), "parquet", tmp_path / "checkpoint", **output)
    send(broker, topic_name, rows=30)
    with Admin(broker.bootstrap) as admin:
        admin.delete_records({(topic_name, 0): 14})
    with pytest.raises(Exception, match=rf"{topic_name}-0: offsets \[10, 20\) were asked for, \[14, 20\) are there"):
        run(stream(spark, broker, subscribe=topic_name), "parquet", tmp_path / "checkpoint", **output)
    loose = stream(spark, broker, subscribe=topic_name, failOnDataLoss="false")
    run(loose, "parquet", tmp_path / "checkpoint", **output)
    assert places(spark.read.parquet(str(tmp_path / "out"))) == (56, 56)
