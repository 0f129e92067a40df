"""What Spark calls on writers that write once: pickled for tasks, made anew for commit and abort."""

import logging
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kbroker.client.plain_cluster import PlainCluster
from kbroker.client.plain_transactions import PlainTransactions
from kbroker.client.range_reader import RangeReader
from kbroker.protocol.messages.offsets import LATEST
from kbroker.spark_connector.ledger import LedgerError
from kbroker.spark_connector.write_options import WriteOptions
from tests.kbroker.client.topics import create_topic

pa = pytest.importorskip("pyarrow")
writer = pytest.importorskip("kbroker.spark_connector.exactly_once_writer")
tasks = pytest.importorskip("kbroker.spark_connector.transactional_tasks")
sink_layout = pytest.importorskip("kbroker.spark_connector.sink_layout")
LAYOUT = sink_layout.SinkLayout(names=("value",), value="value")


@pytest.fixture
def options(bootstrap: str, topic_name: str) -> WriteOptions:
    create_topic(bootstrap, topic_name, partitions=1)
    return WriteOptions(bootstrap, topic_name, exactly_once=True, name=topic_name, ledger=f"{topic_name}-ledger")


@pytest.fixture
def context() -> Iterator[Any]:
    """A task's context, as Spark fills it in."""
    made = tasks.TaskContext._getOrCreate()
    made._partitionId, made._attemptNumber = 0, 0
    made._localProperties = {tasks.QUERY_ID: "query", tasks.BATCH_ID: "0", tasks.RUN_ID: "run"}
    yield made
    tasks.TaskContext._setTaskContext(None)


def rows(*values: str) -> Iterator[Any]:
    return iter([pa.record_batch({"value": pa.array(values, pa.string())})])


def read(options: WriteOptions) -> list[bytes]:
    place = (options.topic, 0)
    with PlainCluster(options.bootstrap, {"isolation_level": "read_committed"}, retry_for=10) as cluster:
        assert PlainTransactions(cluster).open_ones(f"{writer_prefix(options)}") == []
        end = cluster.offsets([place], LATEST, read_committed=False)[place]
        batches = RangeReader(cluster, *place, 0, end) if end else ()
        return [value for batch in batches for value in batch["value"].to_pylist()]


def writer_prefix(options: WriteOptions) -> str:
    from kbroker.spark_connector.exactly_once import prefix_of

    return prefix_of(options.name)


def test_a_stream_is_taken_over_when_its_writer_goes_to_the_tasks_and_committed_by_another(
    options: WriteOptions, context: Any, caplog: pytest.LogCaptureFixture
) -> None:
    made = writer.ExactlyOnceStreamWriter(options, LAYOUT)
    pickled = [pickle.dumps(made) for _ in range(2)]
    assert pickled[0] == pickled[1], "taken over once"
    message = pickle.loads(pickle.dumps(pickle.loads(pickled[0]).write(rows("a", "b"))))
    with caplog.at_level(logging.INFO):
        writer.ExactlyOnceStreamWriter(options, LAYOUT).commit([message], 0)
        assert read(options) == [b"a", b"b"]
        again = pickle.loads(pickle.dumps(writer.ExactlyOnceStreamWriter(options, LAYOUT))).write(rows("a", "b"))
        writer.ExactlyOnceStreamWriter(options, LAYOUT).commit([again], 0)
    assert "micro-batch 0: wrote 2 rows" in caplog.text
    assert "micro-batch 0 was written before" in caplog.text
    assert read(options) == [b"a", b"b"]


def test_of_two_attempts_beside_each_other_only_the_one_that_spark_takes_is_written(
    options: WriteOptions, context: Any
) -> None:
    for batch, winner in enumerate((0, 1)):
        context._localProperties[tasks.BATCH_ID] = str(batch)
        pickled = pickle.dumps(writer.ExactlyOnceStreamWriter(options, LAYOUT))
        messages: dict[int, Any] = {}

        def first_attempt() -> Iterator[Any]:
            """In the middle of it the second one runs to its end."""
            yield from rows("a")
            context._attemptNumber = 1
            messages[1] = pickle.loads(pickled).write(rows("a", "b"))  # noqa: B023
            yield from rows("b")

        context._attemptNumber = 0
        messages[0] = pickle.loads(pickled).write(first_attempt())
        assert messages[0].owner.transactional_id != messages[1].owner.transactional_id
        writer.ExactlyOnceStreamWriter(options, LAYOUT).commit([messages[winner]], batch)
        assert read(options) == [b"a", b"b"] * (batch + 1)


def test_a_batch_that_comes_again_with_more_rows_is_an_error_and_no_silence(
    options: WriteOptions, context: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def run(*values: str, lost_batch: str = "") -> None:
        given = replace(options, lost_batch=lost_batch)
        message = pickle.loads(pickle.dumps(writer.ExactlyOnceStreamWriter(given, LAYOUT))).write(rows(*values))
        writer.ExactlyOnceStreamWriter(given, LAYOUT).commit([message], 0)

    run("a", "b")
    with pytest.raises(LedgerError, match="batch 0 comes with 3 rows, but 2 are written") as problem:
        run("a", "b", "never written")
    assert '"0 skip"' in str(problem.value)
    with caplog.at_level(logging.WARNING):
        run("a")
        run("a", "b", "left out", lost_batch="0 skip")
    assert "batch 0 was written before, with 2 rows; now it has 1" in caplog.text
    assert read(options) == [b"a", b"b"]


def test_a_micro_batch_that_fails_is_aborted_and_written_again(options: WriteOptions, context: Any) -> None:
    message = pickle.loads(pickle.dumps(writer.ExactlyOnceStreamWriter(options, LAYOUT))).write(rows("failed"))
    writer.ExactlyOnceStreamWriter(options, LAYOUT).abort([message, None], 0)
    writer.ExactlyOnceStreamWriter(options, LAYOUT).abort([None], 0)
    assert read(options) == []
    context._attemptNumber = 1
    message = pickle.loads(pickle.dumps(writer.ExactlyOnceStreamWriter(options, LAYOUT))).write(rows("a"))
    writer.ExactlyOnceStreamWriter(options, LAYOUT).commit([message], 0)
    assert read(options) == [b"a"]


def test_a_frame_is_committed_or_aborted_by_the_writer_that_its_tasks_had(options: WriteOptions, context: Any) -> None:
    for value in ("aborted", "written"):
        its = pickle.loads(pickle.dumps(writer.ExactlyOnceBatchWriter(options, LAYOUT)))
        messages = [its.write(rows(value))]
        context._partitionId = 1
        messages.append(its.write(rows()))
        if value == "written":
            its.commit(messages)
        else:
            its.abort(messages)
    assert read(options) == [b"written"]
