"""A task's rows in a transaction that is left open, against a real broker and without Spark."""

from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.client.plain_cluster import PlainCluster
from kbroker.client.plain_transactions import PlainTransactions
from kbroker.client.range_reader import RangeReader
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.java_hash import partition_for
from kbroker.protocol.messages.offsets import LATEST
from kbroker.spark_connector.write_options import WriteOptions
from tests.kbroker.client.topics import create_topic

pa = pytest.importorskip("pyarrow")
tasks = pytest.importorskip("kbroker.spark_connector.transactional_tasks")
exactly_once = pytest.importorskip("kbroker.spark_connector.exactly_once")
ledger = pytest.importorskip("kbroker.spark_connector.ledger")
sink_layout = pytest.importorskip("kbroker.spark_connector.sink_layout")
LAYOUT = sink_layout.SinkLayout(names=("value",), value="value")


@pytest.fixture
def term(topic_name: str, bootstrap: str) -> Any:
    create_topic(bootstrap, topic_name, partitions=1)
    return exactly_once.Term(topic_name, exactly_once.Owner("driver", 1, 1), 0, 60_000, places=50)


def write(bootstrap: str, topic: str, term: Any, batches: Any, number: int = 0) -> Any:
    options = WriteOptions(bootstrap, topic=topic, exactly_once=True)
    return tasks.write_once(options, LAYOUT, term, tasks.Attempt("query", "run", 4, 2, number), batches)


def rows(*values: str) -> Any:
    return pa.record_batch({"value": pa.array(values, pa.string())})


def test_rows_are_read_when_somebody_else_commits_them(bootstrap: str, topic_name: str, term: Any) -> None:
    done = write(bootstrap, topic_name, term, [rows(), rows("a", "b"), rows("c")])
    lost = write(bootstrap, topic_name, term, [rows("lost")], number=1)
    assert (done.rows.rows, done.participant.offsets) == (3, ((topic_name, 0, 0, 2),))
    assert done.owner.transactional_id != lost.owner.transactional_id
    ids = (exactly_once.driver_id(topic_name), done.owner.transactional_id, lost.owner.transactional_id)
    assert len({partition_for(each, 50) for each in ids}) == 1
    with PlainCluster(bootstrap, {"isolation_level": "read_committed"}) as cluster:
        transactions = PlainTransactions(cluster)
        assert set(transactions.states([done.owner, lost.owner]).values()) == {"Ongoing"}
        assert transactions.end([done.owner], commit=True)[done.owner].error is ErrorCode.NONE
        assert transactions.end([lost.owner], commit=False)[lost.owner].error is ErrorCode.NONE
        end = cluster.offsets([(topic_name, 0)], LATEST, read_committed=False)[topic_name, 0]
        read = [value for each in RangeReader(cluster, topic_name, 0, 0, end) for value in each["value"].to_pylist()]
        assert read == [b"a", b"b", b"c"]


def test_a_task_without_rows_opens_nothing(bootstrap: str, topic_name: str, term: Any) -> None:
    done = write(bootstrap, topic_name, term, [rows()])
    assert (done.owner, done.participant, done.was_written) == (None, None, False)
    assert open_ones(bootstrap, topic_name) == []


def test_a_task_that_fails_leaves_nothing_open(bootstrap: str, topic_name: str, term: Any) -> None:
    def failing() -> Iterator[Any]:
        yield rows("a")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write(bootstrap, topic_name, term, failing())
    with pytest.raises(RuntimeError, match="row 0 has 2000000 bytes"):
        write(bootstrap, topic_name, term, [rows("x" * 2_000_000)])
    assert open_ones(bootstrap, topic_name) == []


def test_rows_of_a_batch_that_is_written_are_taken_and_not_sent(bootstrap: str, topic_name: str, term: Any) -> None:
    entry = ledger.Entry("query", 4, "host h", 0, (), is_done=True)
    known = exactly_once.Term(term.name, term.owner, 0, 60_000, entry=entry)
    left = iter([rows("a"), rows("b")])
    done = write(bootstrap, topic_name, known, left)
    assert (done.was_written, done.owner, next(left, None)) == (True, None, None)
    later = exactly_once.Term(term.name, term.owner, 0, 60_000, entry=ledger.Entry("query", 5, "host h", 0, (), True))
    with pytest.raises(ledger.LedgerError, match="the checkpoint was set back"):
        write(bootstrap, topic_name, later, iter([rows("a")]))


def test_spark_says_which_query_and_batch_a_task_is_of() -> None:
    context = tasks.TaskContext._getOrCreate()
    try:
        context._partitionId, context._attemptNumber = 3, 1
        context._localProperties = {tasks.QUERY_ID: "q", tasks.BATCH_ID: "17", tasks.RUN_ID: "r"}
        assert tasks.streaming_attempt() == tasks.Attempt("q", "r", 17, 3, 1)
        assert tasks.batch_attempt("w") == tasks.Attempt("w", "w", 0, 3, 1)
        context._localProperties = {}
        with pytest.raises(ledger.LedgerError, match="does not tell a task which query"):
            tasks.streaming_attempt()
    finally:
        tasks.TaskContext._setTaskContext(None)


def open_ones(bootstrap: str, name: str) -> list[str]:
    with PlainCluster(bootstrap) as cluster:
        return PlainTransactions(cluster).open_ones(exactly_once.prefix_of(name))
